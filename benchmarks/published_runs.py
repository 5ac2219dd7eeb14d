"""Published training runs as runs that `nest_opt.predict` takes.

The rows are read from $NEST_OPT_DATA/facts/published_runs.csv. What a table of rows does not
state but its source does, or the software of its time settles (attention kernels, bytes of a
gradient, sequence parallelism), is `TRAITS`: facts about runs, no constants.
"""

import csv
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import gcd
from pathlib import Path

from nest_opt import RunConfiguration, predict
from nest_opt.models.catalogue import find_model
from nest_opt.models.figure import Figure
from nest_opt.models.hardware import find_accelerator
from nest_opt.models.operations import recomputed_flops, training_flops
from nest_opt.models.share import Attention
from nest_opt.models.spec import MoeSpec, TransformerSpec
from nest_opt.prediction.fit import Shares
from nest_opt.prediction.predict import Prediction

Row = Mapping[str, str]


@dataclass(frozen=True)
class Traits:
    """What all rows of a source have in common.

    Attributes
    ----------
    name, starts
        Short name, and what the source's name in the table begins with.
    attention
        `stored` before fused attention kernels (FlashAttention: May 2022) reached the software.
    sequence_parallel
        Whether tensor-parallel ranks share the sequence (Korthikanti et al., May 2022).
    bytes_per_parameter
        16: 16-bit gradients, 18: 32-bit gradients.
    dropout
        Whether attention and MLP outputs pass dropout.
    overlap
        Whether gradients are synchronised during the last backward pass.
    kernel
        Of fused attention, if it is none of today's: see `KERNELS`.
    """

    name: str
    starts: str
    attention: Attention
    sequence_parallel: bool
    bytes_per_parameter: int
    dropout: bool
    overlap: bool = False
    kernel: str = ""


# Fused attention kernels older than those that the catalogue has: FLOP/s by accelerator.
KERNELS = {
    # FlashAttention-2 (arXiv:2307.08691), abstract: the first one attains 25 to 40% of the peak on
    # A100; the middle. On H100 as much less as the second does (50 to 73% and 35%), derived.
    ("flash-1", "A100"): 101 * 10**12,
    ("flash-1", "H100"): 183 * 10**12,
    # FlashAttention-3 (arXiv:2407.08608), abstract: the second one attains 35% of the peak on H100.
    ("flash-2", "H100"): 346 * 10**12,
}

TRAITS = (
    Traits("Megatron-LM 2020", "Megatron-LM README (Sep", "stored", False, 16, True),
    Traits("SC'21", "Narayanan", "stored", False, 16, True),
    Traits("vTrain", "vTrain", "stored", False, 16, True),
    Traits("vTrain, one node", "VIA-Research/vTrain", "stored", False, 16, True),
    Traits("BigScience", "BigScience", "stored", False, 16, True),
    Traits("BLOOM", "BLOOM", "stored", False, 18, True),
    Traits("DeepSpeed-Azure", "DeepSpeed", "stored", False, 16, True),
    Traits("Zero Bubble", "Zero Bubble", "stored", False, 18, True),
    Traits("MosaicML", "MosaicML", "flash", False, 16, False, kernel="flash-1"),
    Traits("Megatron-LM H100", "Megatron-LM README H100", "flash", True, 18, False, overlap=True),
    Traits("Megatron-LM Llama", "Megatron-LM examples", "flash", True, 18, False, overlap=True),
    Traits("dgxc", "NVIDIA dgxc", "flash", True, 18, False, overlap=True),
    Traits("Megatron-Bridge", "Megatron-Bridge", "flash", True, 18, False, overlap=True),
    Traits("torchtitan", "torchtitan", "flash", True, 16, False, overlap=True, kernel="flash-2"),
    Traits("MaxText", "Google tpu-recipes", "flash", False, 16, False),
)

# What the table's column of hardware begins with: accelerator, its family, cluster.
_HARDWARE = (
    ("V100-32GB SXM3", "v100-32", "V100", "v100-dgx2"),
    ("A100-80GB SXM (Jean Zay", "a100-80", "A100", "jean-zay-a100"),
    ("A100-80GB SXM (8/node, 4x200Gb", "a100-80", "A100", "a100-12.5"),
    ("A100 (single", "a100-80", "A100", "a100-12.5"),
    ("A100-40GB", "a100-40", "A100", "dgx-a100"),
    ("A100-80GB", "a100-80", "A100", "dgx-a100"),
    ("H100", "h100", "H100", "dgx-h100"),
    ("H200", "h200", "H200", "dgx-h200"),
    ("B200", "b200", "B200", "dgx-b200"),
    ("GB200", "gb200", "GB200", "gb200-nvl72"),
    ("TPU v5p", "tpuv5p", "TPU v5p", "tpuv5p-pod"),
    ("TPU v6e", "tpuv6e", "TPU v6e", "tpuv6e-pod"),
)


@dataclass(frozen=True)
class PublishedRun:
    """A row of the table.

    Attributes
    ----------
    id, source, family, precision
        Of the row; `family` of the accelerator, `source` by its short name.
    measured_s
        Iteration time.
    runs
        What a launcher was told: several where the source leaves the microbatch open, of which
        the fastest is taken.
    zero_bubble
        Whether the schedule has no bubble at all (ZB-2p, ZB-V), which `predict` does not know.
    half_recomputed
        Whether every second product is recomputed (torchtitan's selective mode): half-way
        between none and all.
    kernel
        See `Traits`.
    sweep
        What rows of one sweep agree in: source, family, accelerator, precision, model, length,
        devices and batch.
    configuration
        What they may differ in.
    """

    id: str
    source: str
    family: str
    precision: str
    measured_s: float
    runs: tuple[RunConfiguration, ...]
    zero_bubble: bool
    half_recomputed: bool
    kernel: str
    sweep: tuple[str, ...]
    configuration: tuple[str, ...]


def predicted_s(published: PublishedRun, shares: Shares | None = None) -> float:
    """Return the predicted iteration time in seconds, by the closed form.

    Parameters
    ----------
    published
        A row; of several runs the fastest counts.
    shares
        Fitted constants in place of the catalogue's.
    """
    return min(_run_s(published, run, shares) for run in published.runs)


def _run_s(published: PublishedRun, run: RunConfiguration, shares: Shares | None) -> float:
    assert run.accelerator is not None
    accelerator = find_accelerator(run.accelerator)
    if shares is not None:
        accelerator = shares.on(accelerator)
    older = KERNELS.get((published.kernel, published.family))
    if older is not None:
        accelerator = replace(accelerator, attention_flops=Figure(older, published.kernel))
    run = replace(run, accelerator=accelerator)
    found = predict(run, simulate=False)
    if published.half_recomputed:
        again = predict(replace(run, recompute="full"), simulate=False)
        return (found.iteration_s + again.iteration_s) / 2
    return zero_bubble_s(found) if published.zero_bubble else found.iteration_s


def zero_bubble_s(found: Prediction) -> float:
    """Return the time under ZB-2p or ZB-V in seconds.

    m (F + B + W) of the busiest stage once the pipeline is full, and never less than
    (m + p - 1) (F + B) + W (Qi et al., arXiv:2401.10241, appendix).
    """
    stage = max(found.evaluation.stages, key=lambda stage: stage.time_ps)
    rounds, stages = found.evaluation.rounds, len(found.evaluation.stages)
    filled = (rounds + stages - 1) * (stage.time_ps - stage.weight_gradient_ps)
    busy = max(rounds * stage.time_ps, filled + stage.weight_gradient_ps)
    return (busy + found.exposed_sync_ps - found.hidden_sync_ps + found.step_ps) / 10**12


def peak_s(published: PublishedRun) -> float:
    """Return seconds at the peak: FLOPs with recomputation, and the bubble of an even pipeline.

    The baseline divides this by one efficiency of the family.
    """
    return min(_peak_s(published, run) for run in published.runs)


def _peak_s(published: PublishedRun, run: RunConfiguration) -> float:
    assert isinstance(run.model, TransformerSpec)
    assert run.accelerator is not None
    length = run.sequence_length or run.model.sequence_length
    full = replace(run.model, causal=False)
    flops = training_flops(full, length) + recomputed_flops(full, length, run.recompute)
    peak = float(find_accelerator(run.accelerator).matmul_16bit_flops.value)
    data = run.devices // (run.tp * run.pp * run.cp)
    rounds = run.global_batch // (run.microbatch * data)
    bubble = 0.0 if published.zero_bubble else (run.pp - 1) / (run.virtual_stages * rounds)
    return flops * run.global_batch / (run.devices * peak) * (1 + bubble)


def facts() -> Path | None:
    """Return the directory of the tables, if $NEST_OPT_DATA has it."""
    root = os.environ.get("NEST_OPT_DATA")
    path = Path(root) / "facts" if root else None
    return path if path and path.is_dir() else None


def published_runs(directory: Path) -> Iterator[PublishedRun]:
    """Yield the rows that are fit to validate against and have a time."""
    with (directory / "published_runs.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            known = any(row["hardware"].startswith(start) for start, *_ in _HARDWARE)
            if known and row["clean"] == "yes" and (row["iter_s"] or row["iter_s_derived"]):
                yield published_run(row)


def single_node_runs(directory: Path) -> Iterator[PublishedRun]:
    """Yield vTrain's rows of small models on one node."""
    fixed = {"kv_heads": "", "ffn": "", "mlp": "gelu", "vocab": "50257", "experts": "", "zero": "0"}
    fixed |= {"iter_s_derived": "", "precision": "fp16", "model": "GPT", "notes": "", "vpp": ""}
    fixed |= {"ep": "1", "cp": "1"}
    name = "published_runs_vtrain_single.csv"
    with (directory / name).open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            yield published_run({**fixed, **row})


def traits_of(row: Row) -> Traits:
    """Return the traits of a row's source."""
    return max(
        (traits for traits in TRAITS if row["source"].startswith(traits.starts)),
        key=lambda traits: len(traits.starts),
    )


def published_run(row: Row) -> PublishedRun:
    """Return a row as runs."""
    traits = traits_of(row)
    hardware = next(item for item in _HARDWARE if row["hardware"].startswith(item[0]))
    _, accelerator, family, cluster = hardware
    spec = _spec(row)
    tp, pp, cp = _whole(row["tp"], 1), _whole(row["pp"], 1), _whole(row["cp"], 1)
    devices, batch = int(row["devices"]), int(row["gbs"])
    data = devices // (tp * pp * cp)
    virtual = _virtual_stages(row, spec.layers, pp)
    fp8 = row["precision"].startswith(("fp8", "mxfp8", "nvfp4"))
    run = RunConfiguration(
        model=spec,
        cluster=cluster,
        devices=devices,
        accelerator=accelerator,
        global_batch=batch,
        sequence_length=int(row["seq"]),
        tp=tp,
        pp=pp,
        cp=cp,
        ep=_expert_parallel(row, data),
        virtual_stages=virtual,
        sequence_parallel=traits.sequence_parallel and tp > 1,
        recompute="full" if row["recompute"].startswith("full") else "none",
        zero=3 if "FSDP" in row["zero"] else _whole(row["zero"], 0),
        schedule="zb-h1" if row["schedule"] == "ZB-1p" else None,
        precision="fp8" if fp8 else "bf16",
        stage_layers=_stage_layers(spec.layers, pp * virtual),
        attention=traits.attention,
        bytes_per_parameter=traits.bytes_per_parameter,
        overlap_gradients=traits.overlap,
        dropout=traits.dropout,
    )
    sizes = [int(row["mbs"])] if row["mbs"] else [1, 2, 4, 8]
    if row["mbs"] and batch % (sizes[0] * data):
        sizes = [gcd(batch // data, sizes[0])]
    runs = tuple(
        replace(run, microbatch=size)
        for size in sizes
        if batch % (size * data) == 0 and (virtual == 1 or batch // (size * data) % pp == 0)
    )
    return PublishedRun(
        row["id"],
        traits.name,
        family,
        "fp8" if fp8 else "16-bit",
        float(row["iter_s"] or row["iter_s_derived"]),
        runs,
        row["schedule"] in ("ZB-2p", "ZB-V"),
        "per-op SAC" in row["recompute"],
        traits.kernel,
        (
            traits.name,
            family,
            accelerator,
            row["precision"],
            f"{spec.layers}x{spec.hidden}x{spec.heads}",
            row["seq"],
            row["devices"],
            row["gbs"],
        ),
        tuple(
            row[name]
            for name in ("tp", "pp", "cp", "ep", "vpp", "mbs", "schedule", "recompute", "zero")
        ),
    )


def _whole(text: str, default: int) -> int:
    return int(text) if text.isdigit() else default


def _expert_parallel(row: Row, data: int) -> int:
    """Return ep; where it is larger than dp, tensor-parallel ranks hold experts too: dp."""
    return gcd(_whole(row["ep"], 1), data)


def _virtual_stages(row: Row, layers: int, pp: int) -> int:
    """Return v: as stated, or of interleaved schedules without one the least that divides.

    1 where chunks would be unequal, which interleaving here does not take.
    """
    if row["vpp"].isdigit():
        chunks = pp * int(row["vpp"])
        even = layers % chunks == 0 or (layers + 2) % chunks == 0
        return int(row["vpp"]) if even else 1
    if row["vpp"].startswith("max"):
        return (layers + 2) // pp
    if "interleaved" in row["schedule"] and pp > 1 and layers % pp == 0:
        each = layers // pp
        return next((v for v in range(2, 8) if each % v == 0), 1)
    return 1


def _stage_layers(layers: int, chunks: int) -> tuple[int, ...] | None:
    """Return the blocks of each chunk, None where they divide evenly.

    Where two layers more would divide, embedding and head count as one each, as launchers
    allow; else the stages in the middle have one more than the rest.
    """
    if layers % chunks == 0:
        return None
    if (layers + 2) % chunks == 0:
        each = (layers + 2) // chunks
        return (each - 1, *[each] * (chunks - 2), each - 1)
    each, more = divmod(layers, chunks)
    start = (chunks - more) // 2
    return tuple(each + (start <= place < start + more) for place in range(chunks))


def _spec(row: Row) -> TransformerSpec:
    if row["kv_heads"] == "MLA":
        spec = find_model("deepseek-v3")
        assert isinstance(spec, TransformerSpec)
        return spec
    hidden = int(row["hidden"])
    heads = _whole(row["heads"], 96)
    old = row["mlp"] == "gelu"
    head_dim = 64 if row["model"].startswith("GPT OSS") else hidden // heads
    return TransformerSpec(
        name=row["model"] or "GPT",
        family="published",
        source=row["source"],
        hidden=hidden,
        layers=int(row["layers"]),
        heads=heads,
        kv_heads=_whole(row["kv_heads"], heads),
        head_dim=head_dim,
        ffn=_whole(row["ffn"], 4 * hidden),
        gated=row["mlp"] == "swiglu",
        vocabulary=_whole(row["vocab"], 51200),
        sequence_length=int(row["seq"]),
        norm="layer" if old else "rms",
        learned_positions=int(row["seq"]) if old else 0,
        tied=old,
        moe=_moe(row),
    )


def _moe(row: Row) -> MoeSpec | None:
    experts = _whole(row["experts"], 0)
    if experts < 2:
        return None
    width = int(row["moe_ffn"])
    maverick = "Maverick" in row["model"]
    shared = width if "Llama4" in row["model"] else 0
    return MoeSpec(
        experts=experts,
        top_k=int(row["topk"]),
        expert_ffn=width,
        shared_ffn=shared,
        every=2 if maverick else 1,
    )
