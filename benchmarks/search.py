"""What a search costs: seconds, memory and cells, on instances, at scale, and where nothing fits.

    python benchmarks/search.py
    python benchmarks/search.py scale --per-stage tp --json search.json

`paper` solves the instances of the repository. `scale` solves models of the
catalogue on 64 to 131,072 devices of `dgx-h100`, a batch of 16,384 sequences;
open are microbatch, tp, ep, sp, dp, pp, recomputation, ZeRO 0 to 3, all four
schedules (2, 4 or 8 chunks), both orders and all pitches; `--wide` adds cp 1, 2
and 4, a ZeRO level of the experts' own and 1, 2, 4 or 8 runs of replicas, `--narrow` leaves
ZeRO 0 and 1F1B alone, `--per-stage` lets stages differ, without the interleaved schedule.
`none` asks for plans where there are none. A few rows of each unless `--all` is given.

Each row is a process of its own: CPU seconds and peak memory are the operating
system's account of it, Python's start and imports included. The search's seconds
are those of `solve`, which evaluates and checks the plan too and, without a
plan, says why.
"""

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
PAPER = ROOT / "instances" / "paper"
FEW_PAPER = "*-dgx-h100-1024.json"

# Sequence lengths as in the instances; the last two are the models' usual ones.
MODELS = {
    "bert-large": 512,
    "llama-2-7b": 4096,
    "llama-3-70b": 4096,
    "gpt3-175b": 2048,
    "mixtral-8x7b": 4096,
    "llama-3.1-405b": 8192,
    "deepseek-v3": 4096,
}
CLUSTER = "dgx-h100"
GLOBAL_BATCH = 16384
DEVICES = tuple(2**power for power in range(6, 18))
FEW_DEVICES = (64, 1024, 16384, 131072)
GIB = 2**30
FULL: dict[str, Any] = {
    "zero": [0, 1, 2, 3],
    "schedule": ["1f1b", "gpipe", "interleaved", "zb-h1"],
}
WIDE: dict[str, Any] = {"cp": [1, 2, 4], "zero_instances": [1, 2, 4, 8]}
SPACES: dict[str, dict[str, Any]] = {"narrow": {}, "full": FULL, "wide": FULL | WIDE}

KINDS = ("paper", "scale", "none")


@dataclass(frozen=True, kw_only=True)
class Row:
    """A problem to solve: an instance's path, or a model on some devices.

    `memory_bytes` stands in the place of the device's own; `pins` are
    (layer's place, stage) pairs.
    """

    kind: str
    name: str
    path: str = ""
    model: str = ""
    devices: int = 0
    sequence_length: int = 0
    space: str = "full"
    per_stage: list[str] = field(default_factory=list)
    memory_bytes: int | None = None
    pins: list[list[int]] = field(default_factory=list)


def rows(every: bool) -> Iterator[Row]:
    """Yield the rows in the order of the table."""
    for path in sorted(PAPER.glob("*.json" if every else FEW_PAPER)):
        yield Row(kind="paper", name=path.stem, path=str(path))
    for model in MODELS:
        for devices in DEVICES if every else FEW_DEVICES:
            yield _of_model("scale", model, devices)
    yield from _without_plan()


def _of_model(kind: str, model: str, devices: int, what: str = "", **fields: Any) -> Row:
    name = f"{model} {devices:,}{what}"
    return Row(
        kind=kind, name=name, model=model, devices=devices, sequence_length=MODELS[model], **fields
    )


def _without_plan() -> Iterator[Row]:
    """Yield problems that have no plan: too little memory, or stages that pins make too large."""
    for model, devices, memory in (
        ("gpt3-175b", 1024, 6 * GIB),
        ("gpt3-175b", 128, 16 * GIB),
        ("llama-3.1-405b", 1024, 8 * GIB),
        ("deepseek-v3", 512, 16 * GIB),
    ):
        what = f", {memory // GIB} GiB"
        yield _of_model("none", model, devices, what, memory_bytes=memory)
    for model, devices in (("gpt3-175b", 1024), ("llama-3.1-405b", 16384)):
        # All but the last layers in the first stage: too much for any device.
        yield _of_model("none", model, devices, ", layer 90 in stage 0", pins=[[90, 0]])
        # Layer 0 cannot be in the second stage: the first would be empty.
        yield _of_model("none", model, devices, ", layer 0 in stage 1", pins=[[0, 1]])


def solve_row(row: Row) -> dict[str, Any]:
    """Solve a row's problem in this process and return what it took."""
    from nest_opt.api import solve_pipeline

    begin = time.perf_counter()
    problem = _problem(row)
    derived = time.perf_counter()
    cpu_s = time.process_time()
    groups: dict[bool, int] = {}

    def progress(done: int, total: int, value_ps: int | None) -> None:
        # A second search, of stages that differ, has totals of its own.
        groups[bool(groups) and total != groups.get(False)] = total

    result = solve_pipeline(problem, progress)
    diagnosis = result.diagnosis
    return {
        "status": result.status,
        "value_ps": result.evaluation.value_ps if result.evaluation else None,
        "binding_bytes": diagnosis.heaviest.memory_bytes
        if diagnosis and diagnosis.heaviest
        else None,
        "fits_on_devices": diagnosis.devices if diagnosis else None,
        "conflict": [str(member) for member in result.conflict.members] if result.conflict else [],
        "derive_s": derived - begin,
        "search_s": time.perf_counter() - derived,
        "search_cpu_s": time.process_time() - cpu_s,
        "cells": result.cells,
        "cells_pruned": result.cells_pruned,
        "groups": sum(groups.values()) or None,
    }


def _problem(row: Row) -> Any:
    from nest_opt import Problem
    from nest_opt.models.request import Request, derive_problem
    from nest_opt.problem.files import read_problem, to_json_data
    from nest_opt.problem.validation import build

    if row.path:
        problem = read_problem(Path(row.path))
    else:
        problem = derive_problem(
            Request(
                model=row.model,
                cluster=CLUSTER,
                devices=row.devices,
                global_batch=GLOBAL_BATCH,
                sequence_length=row.sequence_length,
                context_parallel_degrees=tuple(SPACES[row.space].get("cp", [1])),
            )
        ).problem
    data = to_json_data(problem)
    if row.kind != "paper":
        data["search"].update(SPACES[row.space])
        if row.space == "wide" and problem.model.experts:
            data["search"]["zero_expert"] = FULL["zero"]
    if row.per_stage:
        data["search"].update(per_stage=row.per_stage)
        # Stages that differ have one chunk each.
        asked = data["search"].get("schedule", ["1f1b"])
        data["search"]["schedule"] = [name for name in asked if name != "interleaved"]
    if row.memory_bytes is not None:
        for kind in data["cluster"]["device_kinds"].values():
            kind["memory_bytes"] = row.memory_bytes
    data.setdefault("constraints", []).extend(
        {"type": "pinned-layers", "layers": [problem.model.ids[place]], "stage": stage}
        for place, stage in row.pins
    )
    return build(Problem, data, row.name)


def measure(row: Row, timeout_s: float) -> dict[str, Any]:
    """Solve a row in a process of its own."""
    begin = time.perf_counter()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    found: dict[str, Any] = asdict(row)
    try:
        process = subprocess.run(
            [sys.executable, __file__, "--row", json.dumps(asdict(row))],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        found["status"] = "timeout"
    else:
        if process.returncode:
            sys.exit(f"{row.name}: {process.stderr}")
        found |= json.loads(process.stdout)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    found["wall_s"] = time.perf_counter() - begin
    found["cpu_s"] = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return found


COLUMNS: tuple[tuple[str, str, str], ...] = (
    ("wall_s", "wall s", "{:.2f}"),
    ("cpu_s", "CPU s", "{:.2f}"),
    ("search_s", "search wall s", "{:.2f}"),
    ("search_cpu_s", "search CPU s", "{:.2f}"),
    ("peak_mib", "MiB", "{:,.0f}"),
    ("groups", "groups", "{:,}"),
    ("cells", "cells", "{:,}"),
    ("cells_pruned", "pruned", "{:,}"),
    ("status", "status", "{}"),
    ("fits_on_devices", "fits on", "{:,}"),
)


def _cells(found: dict[str, Any]) -> list[str]:
    """Return a row of the table."""
    values = ((found.get(name), text) for name, _, text in COLUMNS)
    return [found["name"], *("" if value is None else text.format(value) for value, text in values)]


def _growth(results: list[dict[str, Any]]) -> Iterator[str]:
    """Yield, for each model, how many times the CPU seconds of its fewest devices its most take."""
    for model in MODELS:
        series = [
            found for found in results if found["kind"] == "scale" and found["model"] == model
        ]
        if len(series) > 1:
            first, last = series[0], series[-1]
            yield (
                f"{model}: {last['cpu_s'] / first['cpu_s']:.1f} times the CPU seconds on "
                f"{last['devices']:,} devices as on {first['devices']:,}"
            )


@click.command()
@click.argument("kinds", nargs=-1, type=click.Choice(KINDS))
@click.option("--all", "every", is_flag=True, help="All rows, not a few of each kind.")
@click.option("--only", default="", help="Rows whose name has this in it.")
@click.option("--wide", "space", flag_value="wide", help="More dimensions of `scale` and `none`.")
@click.option("--narrow", "space", flag_value="narrow", help="ZeRO 0 and 1F1B alone.")
@click.option("--per-stage", default="", help="Degrees that may differ by stage, as tp,sp.")
@click.option("--timeout", default=600.0, help="Seconds after which a row is given up.")
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write the figures.")
@click.option("--row", "one", default=None, hidden=True)
def main(
    kinds: tuple[str, ...], every: bool, only: str, space: str | None, per_stage: str,
    timeout: float, json_path: Path | None, one: str | None,
) -> None:  # fmt: skip
    """Measure the searches and print the table."""
    if one is not None:
        found = solve_row(Row(**json.loads(one)))
        # Kilobytes on Linux, bytes on macOS.
        unit = 2**20 if sys.platform == "darwin" else 2**10
        found["peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
        print(json.dumps(found))
        return
    options: dict[str, Any] = {
        "per_stage": per_stage.split(",") if per_stage else [],
        "space": space or "full",
    }
    console = Console(width=180)
    results = []
    for row in rows(every):
        if row.kind not in (kinds or KINDS) or only not in row.name:
            continue
        if console.is_terminal:
            console.print(f"{row.name} ...", end="\r")
        results.append(measure(replace(row, **options), timeout))
        if json_path is not None:  # after each row: a run cut short keeps its figures
            json_path.write_text(json.dumps(results, indent=1) + "\n")
    table = Table(title="Searches", box=None)
    table.add_column("problem")
    for _, title, _ in COLUMNS:
        table.add_column(title, justify="right")
    for found in results:
        table.add_row(*_cells(found))
    console.print(table)
    for line in _growth(results):
        console.print(line)


if __name__ == "__main__":
    main()
