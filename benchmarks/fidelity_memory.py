"""Predicted against published peak memory: BigScience's sweep, Zero Bubble, torchtitan.

    python benchmarks/fidelity_memory.py [--write]

Reads `facts/published_runs.csv` in the folder of public data (NEST_OPT_DATA). Prints a
line for each run and a table for each source; `--write` puts the tables into
docs/fidelity.md and draws docs/figures/fidelity_memory.svg with its CSV.

A run is stated as its source states it; what a source leaves open is filled in here, with the
reason beside it. Nothing is fitted: constants are those of the package, whose sources are
in docs/runtimes.md and docs/hardware.md.
"""

import csv
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import click
from plotting import new_figure, save_figure, save_rows

from nest_opt.models.families import gpt, llama
from nest_opt.prediction.predict import READINGS, Prediction, Reading, StageMemory, predict
from nest_opt.prediction.run import RunConfiguration

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "fidelity.md"
FIGURE = ROOT / "docs" / "figures" / "fidelity_memory.svg"
MARKERS = "<!-- memory {} -->\n"
TARGET = 0.10
WORST = 8

GIB = 2**30
# nvidia-smi prints MiB, and the notes drop three digits: they have "80GB" on a device of 79.35 GiB.
THOUSAND_MIB = 1000 * 2**20

Record = dict[str, str]


@dataclass(frozen=True)
class Measured:
    """A published run.

    Attributes
    ----------
    name, source
        Its id in the table of published runs, and the source's short name.
    run
        The run as a launcher states it.
    peak_bytes
        Peak memory; None if it ran out of memory.
    reading
        What the source read.
    device_bytes
        Nominal size of the device's memory.
    most_in_flight
        Microbatches in flight of a schedule that the package does not know, as its paper says.
    """

    name: str
    source: str
    run: RunConfiguration
    peak_bytes: float | None
    reading: Reading
    device_bytes: int
    most_in_flight: int | None = None


@dataclass(frozen=True)
class Compared:
    """A published run beside its prediction.

    Attributes
    ----------
    measured
        The run.
    stage, memory
        The fullest stage and its memory.
    plain_bytes
        The same reading without the rules of a runtime.
    """

    measured: Measured
    stage: int
    memory: StageMemory
    plain_bytes: int

    @property
    def predicted_bytes(self) -> int:
        """Return what the source would have read."""
        return self.memory.reading_bytes(self.measured.reading)

    @property
    def error(self) -> float | None:
        """Return (predicted - measured) / measured; None if it ran out of memory."""
        peak = self.measured.peak_bytes
        return None if peak is None else self.predicted_bytes / peak - 1

    @property
    def plain_error(self) -> float | None:
        """Return the same without the rules of a runtime."""
        peak = self.measured.peak_bytes
        return None if peak is None else self.plain_bytes / peak - 1

    @property
    def out_of_memory(self) -> bool:
        """Return whether the prediction is that the run does not fit."""
        return self.memory.used_bytes > self.measured.device_bytes


def _number(record: Record, name: str, default: int = 0) -> int:
    text = record[name]
    return int(text) if text.isdigit() else default


def bloom(record: Record) -> Measured:
    """Return a run of BigScience's sweep before BLOOM.

    Megatron-DeepSpeed's defaults hold where the notes say nothing (dropout on, as in the slurm
    script of BLOOM, which sets none); heads that are not printed are those of the run before.
    """
    summed = "bf16" in record["precision"]
    layers, hidden, pp = (_number(record, name) for name in ("layers", "hidden", "pp"))
    spec = gpt(
        "bloom",
        source="BigScience, tr11-176B-ml/chronicles-prequel.md",
        layers=layers,
        hidden=hidden,
        heads=_number(record, "heads", 96),
        vocabulary=_number(record, "vocab"),
        positions=_number(record, "seq"),
        position_rows=0,
        embedding_norm=True,
    )
    run = RunConfiguration(
        model=spec,
        cluster="dgx-a100",
        devices=_number(record, "devices"),
        global_batch=_number(record, "gbs"),
        microbatch=_number(record, "mbs"),
        tp=_number(record, "tp"),
        pp=pp,
        recompute="full",
        zero=1,
        attention="stored",
        precision="bf16" if summed else "fp16",
        runtime="deepspeed",
        stage_layers=bloom_stages(layers, pp, summed),
    )
    peak = record["peak_mem"]
    ran = None if peak == "OOM" else float(peak) * THOUSAND_MIB
    return Measured(record["id"], "BigScience", run, ran, "device", 80 * 10**9)


def bloom_stages(layers: int, stages: int, embedding_is_a_layer: bool) -> tuple[int, ...]:
    """Return the blocks of each stage: with the bf16 optimizer embeddings count as layers.

    Otherwise blocks alone are counted, and the last stage has what is left ("78/12: the last
    stage has 1 block, while the rest have 7").
    """
    if embedding_is_a_layer:
        each = (layers + 2) // stages
        return (each - 1, *[each] * (stages - 2), each - 1)
    each = -(-layers // stages)
    return tuple(min(each, max(0, layers - each * stage)) for stage in range(stages))


def zero_bubble(record: Record) -> Measured:
    """Return a run of Qi et al. 2023 (arXiv:2401.10241): GPT, pipelines alone, no recomputation.

    fp16 and an untied head as in its repository's script; attention scores are kept, as its
    table 1 counts them. ZB-1p and ZB-V hold what ZB-H1 does, p microbatches; ZB-2p 2 p - 1.
    """
    layers, pp = _number(record, "layers"), _number(record, "pp")
    spec = gpt(
        "zero-bubble",
        source="Qi et al. 2023, table 3",
        layers=layers,
        hidden=_number(record, "hidden"),
        heads=_number(record, "heads"),
        vocabulary=_number(record, "vocab", 50304),
        positions=_number(record, "seq"),
        tied=False,
    )
    batch, microbatch = _number(record, "gbs"), _number(record, "mbs")
    rounds, name = batch // microbatch, record["schedule"]
    chunks = (layers + 2) // pp if name == "1F1B-I" else 1
    # One layer fewer on both ends.
    each = (layers + 2) // (pp * chunks)
    splits = name.startswith("ZB")
    run = RunConfiguration(
        model=spec,
        cluster="dgx-a100",
        devices=_number(record, "devices"),
        global_batch=batch,
        microbatch=microbatch,
        pp=pp,
        virtual_stages=chunks,
        # Fewer microbatches than stages are all in flight.
        schedule=("zb-h1" if rounds >= pp else "gpipe") if splits else None,
        attention="stored",
        precision="fp16",
        runtime="megatron",
        stage_layers=(each - 1, *[each] * (pp * chunks - 2), each - 1),
    )
    most = min(2 * pp - 1, rounds) if name == "ZB-2p" else None
    peak = float(record["peak_mem"]) * 10**9
    return Measured(record["id"], "Zero Bubble", run, peak, "allocated", 80 * 10**9, most)


def torchtitan(record: Record) -> Measured:
    """Return a run of torchtitan's benchmarks: Llama 3.1 under FSDP2, maximum of what is reserved.

    Pipelines run as many microbatches as stages, torchtitan's default, with weights gathered
    throughout, which is level 1 here. The H200 run, half a year later, compiles its loss.
    """
    layers, pp, tp, cp = (_number(record, name, 1) for name in ("layers", "pp", "tp", "cp"))
    spec = llama(
        "llama-3.1",
        source="Llama 3.1, config.json",
        layers=layers,
        hidden=_number(record, "hidden"),
        heads=_number(record, "heads"),
        kv_heads=_number(record, "kv_heads"),
        ffn=_number(record, "ffn"),
        vocabulary=_number(record, "vocab"),
        sequence_length=_number(record, "seq"),
    )
    devices, batch = _number(record, "devices"), _number(record, "gbs")
    local = batch // (devices // (tp * pp * cp))
    each = -(-layers // pp)
    ends = each - (each * pp - layers) // 2
    later = "h200" in record["id"]
    run = RunConfiguration(
        model=spec,
        cluster="dgx-h200" if later else "dgx-h100",
        devices=devices,
        global_batch=batch,
        microbatch=_number(record, "mbs", local // pp),
        sequence_length=spec.sequence_length,
        tp=tp,
        pp=pp,
        cp=cp,
        sequence_parallel=tp > 1,
        recompute="full" if record["recompute"] == "full" else "selective",
        zero=3 if pp == 1 else 1,
        runtime="torchtitan",
        fused_loss=later,
        stage_layers=(ends, *[each] * (pp - 2), ends) if pp > 1 else None,
    )
    peak = float(record["peak_mem"]) * GIB
    size = (141 if later else 96) * 10**9
    return Measured(record["id"], "torchtitan", run, peak, "reserved", size)


READERS: dict[str, Callable[[Record], Measured]] = {
    "bloom": bloom,
    "zb": zero_bubble,
    "tt": torchtitan,
}


def published(path: Path) -> list[Measured]:
    """Return the runs of the three sources with a peak, or that ran out of memory.

    Those that their authors call not comparable (`clean` is `no`) are left out.
    """
    with path.open(encoding="utf-8", newline="") as file:
        records = [
            record
            for record in csv.DictReader(file)
            if record["peak_mem"] and record["clean"] in ("yes", "oom")
        ]
    return [
        READERS[kind](record)
        for record in records
        if (kind := record["id"].split("-")[0]) in READERS
    ]


def compared(measured: Measured) -> Compared:
    """Predict a published run."""
    found = predict(measured.run, simulate=False)
    stages = _memory(found, measured)
    number = max(range(len(stages)), key=lambda stage: stages[stage].used_bytes)
    plain = replace(measured.run, runtime=None, fused_loss=False)
    return Compared(
        measured,
        number,
        stages[number],
        max(
            stage.reading_bytes(measured.reading)
            for stage in _memory(predict(plain, simulate=False), measured)
        ),
    )


def _memory(found: Prediction, measured: Measured) -> list[StageMemory]:
    """Return the stages' memory, with the stashes of a schedule that the package does not know."""
    if measured.most_in_flight is None:
        return list(found.memory)
    return [
        replace(
            memory,
            terms_bytes={
                **memory.terms_bytes,
                "stash": memory.terms_bytes["stash"] // stage.in_flight * measured.most_in_flight,
            },
        )
        for memory, stage in zip(found.memory, found.evaluation.stages, strict=True)
    ]


def _absolute(errors: Iterator[float | None]) -> list[float]:
    return [abs(error) for error in errors if error is not None]


def _percent(share: float, sign: str = "") -> str:
    return f"{100 * share:{sign}.1f}%"


def summary(runs: Sequence[Compared]) -> Iterator[str]:
    """Yield a table, a line for each source and one for all."""
    yield (
        "| source | reading | runs | median error | within 10% | largest | mean, signed "
        "| without the rules, median |"
    )
    yield "|---|---|--:|--:|--:|--:|--:|--:|"
    sources = list(dict.fromkeys(run.measured.source for run in runs))
    for source in (*sources, "all"):
        own = [run for run in runs if source in (run.measured.source, "all")]
        errors = _absolute(run.error for run in own)
        signed = [run.error for run in own if run.error is not None]
        readings = sorted({READINGS[run.measured.reading] for run in own})
        yield (
            f"| {source} | {readings[0] if len(readings) == 1 else ''} | {len(errors)} "
            f"| {_percent(median(errors))} "
            f"| {sum(error <= TARGET for error in errors)} | {_percent(max(errors))} "
            f"| {_percent(sum(signed) / len(signed), '+')} "
            f"| {_percent(median(_absolute(run.plain_error for run in own)))} |"
        )


def out_of_memory(runs: Sequence[Compared]) -> Iterator[str]:
    """Yield what became of the runs that ran out of memory, and of those that did not."""
    ran_out = [run for run in runs if run.measured.peak_bytes is None]
    ran = [run for run in runs if run.measured.peak_bytes is not None]
    alarms = [run for run in ran if run.out_of_memory]
    yield "| run | predicted, without fragmentation | of the device | recognised |"
    yield "|---|--:|--:|---|"
    for run in ran_out:
        used, size = run.memory.used_bytes, run.measured.device_bytes
        yield (
            f"| {run.measured.name} | {used / 1e9:.1f} GB | {_percent(used / size)} "
            f"| {'yes' if run.out_of_memory else 'no'} |"
        )
    yield ""
    names = ", ".join(run.measured.name for run in alarms) or "none"
    yield f"Of {len(ran)} runs that ran, called out of memory: {len(alarms)} ({names})."


def worst(runs: Sequence[Compared]) -> Iterator[str]:
    """Yield a table of the runs that are furthest off."""
    known = [run for run in runs if run.error is not None]
    known.sort(key=lambda run: -abs(run.error or 0))
    yield "| run | measured | predicted | error | states | stash | work | reserve |"
    yield "|---|--:|--:|--:|--:|--:|--:|--:|"
    for run in known[:WORST]:
        terms = " | ".join(
            f"{run.memory.terms_bytes[name] / 1e9:.1f} GB"
            for name in ("states", "stash", "work", "reserve")
        )
        yield (
            f"| {run.measured.name} | {(run.measured.peak_bytes or 0) / 1e9:.1f} GB "
            f"| {run.predicted_bytes / 1e9:.1f} GB | {_percent(run.error or 0, '+')} | {terms} |"
        )


TABLES: dict[str, Callable[[Sequence[Compared]], Iterator[str]]] = {
    "summary": summary,
    "out of memory": out_of_memory,
    "worst": worst,
}


def write_page(runs: Sequence[Compared]) -> None:
    """Put the tables between their markers in the page."""
    text = PAGE.read_text(encoding="utf-8")
    for name, table in TABLES.items():
        start, end = MARKERS.format(name), MARKERS.format(f"{name} end")
        before, rest = text.split(start)
        _, after = rest.split(end)
        text = before + start + "\n".join(table(runs)) + "\n" + end + after
    PAGE.write_text(text, encoding="utf-8")


def draw(runs: Sequence[Compared]) -> None:
    """Draw predicted over measured, and write the data."""
    known = [run for run in runs if run.measured.peak_bytes is not None]
    figure, axes = new_figure(6.0, 5.0)
    most = 100.0
    axes.plot([0, most], [0, most], color="black", linewidth=0.8)
    axes.fill_between([0, most], [0, 0.9 * most], [0, 1.1 * most], color="black", alpha=0.07)
    for mark, source in zip(
        "os^", dict.fromkeys(run.measured.source for run in known), strict=True
    ):
        own = [run for run in known if run.measured.source == source]
        axes.scatter(
            [(run.measured.peak_bytes or 0) / 1e9 for run in own],
            [run.predicted_bytes / 1e9 for run in own],
            s=16,
            marker=mark,
            alpha=0.7,
            label=f"{source} ({len(own)})",
        )
    axes.set(xlim=(0, most), ylim=(0, most), aspect="equal")
    axes.set_xlabel("measured peak memory, GB")
    axes.set_ylabel("predicted, GB")
    axes.legend(title="line: equal; band: 10%", frameon=False)
    save_figure(figure, FIGURE)
    save_rows(
        FIGURE.with_suffix(".csv"),
        ("run", "source", "reading", "measured_bytes", "predicted_bytes", "stage"),
        (
            (
                run.measured.name,
                run.measured.source,
                run.measured.reading,
                round(run.measured.peak_bytes or 0),
                run.predicted_bytes,
                run.stage,
            )
            for run in known
        ),
    )


def data_folder() -> Path:
    """Return the folder of public data."""
    return Path(os.environ.get("NEST_OPT_DATA", ROOT.parent / "shared" / "data"))


def _line(run: Compared) -> str:
    peak, error = run.measured.peak_bytes, run.error
    found = "OOM" if peak is None else f"{peak / 1e9:.1f} GB"
    off = "" if error is None else _percent(error, "+")
    said = " (out of memory)" if run.out_of_memory else ""
    predicted = f"{run.predicted_bytes / 1e9:6.1f} GB"
    return f"{run.measured.name:32} measured {found:>8} predicted {predicted} {off}{said}"


@click.command()
@click.option("--write", is_flag=True, help="Write the tables into docs/fidelity.md, and draw.")
def main(write: bool) -> None:
    """Compare predicted with published peak memory."""
    path = data_folder() / "facts" / "published_runs.csv"
    if not path.is_file():
        raise SystemExit(f"no runs at {path}: set NEST_OPT_DATA to the folder of public data")
    runs = [compared(measured) for measured in published(path)]
    for run in runs:
        print(_line(run))
    for table in TABLES.values():
        print("\n" + "\n".join(table(runs)))
    if write:
        write_page(runs)
        draw(runs)


if __name__ == "__main__":
    main()
