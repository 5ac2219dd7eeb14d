"""How far the aligned optimum is from a proved bound on the free family, any distinct devices.

    python benchmarks/free_bounds.py
    python benchmarks/free_bounds.py --only spineleaf --json free_bounds.json

Rows are the instances of `instances/paper` and Llama-3.1-405B on 16,384 devices of `dgx-h100`
(a batch of 16,384 sequences of 8,192 tokens). The gap is (value - bound) / bound. `group` has
the bound; without one the aligned optimum is the best of the free family. Then it is proved
anew, group by group, that no plan is below the bound: `proofs` are groups that runs of stages
are needed for, `slabs` the most limits of max Z that one of them takes. Seconds are of the CPU.
"""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from nest_opt.dp.default_source import DefaultSource
from nest_opt.dp.free_bounds import free_bound, prove
from nest_opt.dp.free_source import FreeSource
from nest_opt.dp.search import search
from nest_opt.models.request import Request, derive_problem
from nest_opt.plan.evaluate import Costs
from nest_opt.problem import Problem
from nest_opt.problem.files import read_problem

PAPER = Path(__file__).resolve().parent.parent / "instances" / "paper"
LARGE = Request(
    model="llama-3.1-405b",
    cluster="dgx-h100",
    devices=16384,
    global_batch=16384,
    sequence_length=8192,
)


def problems(only: str) -> Iterator[tuple[str, Problem]]:
    """Yield the problems whose names have `only` in them."""
    for path in sorted(PAPER.glob("*.json")):
        if only in path.stem:
            yield path.stem, read_problem(path)
    name = f"{LARGE.model}-{LARGE.cluster}-{LARGE.devices}"
    if only in name:
        yield name, derive_problem(LARGE).problem


def measure(problem: Problem) -> dict[str, Any]:
    """Solve a problem, bound the free family, and prove the bound; return what it took."""
    costs = Costs(problem)
    marks = [time.process_time()]
    solved = search(DefaultSource(costs))
    marks.append(time.process_time())
    source = FreeSource(costs)
    bound = free_bound(source, solved.value_ps)
    marks.append(time.process_time())
    assert bound.bound_ps is not None
    proof = prove(FreeSource(costs), bound.bound_ps)
    marks.append(time.process_time())
    assert not proof.open
    value, group = solved.value_ps, bound.group
    assert value is not None
    return {
        "value_ps": str(value),
        "bound_ps": str(bound.bound_ps),
        "gap": (value - bound.bound_ps) / bound.bound_ps,
        "group": group
        and f"b={group.microbatch} {group.configuration} d={group.replicas} S={group.stages}",
        "relaxed": bound.relaxed,
        "proofs": len(proof.proofs),
        "slabs": max((len(each.sync_ps) for each in proof.proofs), default=0),
        **{
            name: after - before
            for name, before, after in zip(
                ("search_s", "bound_s", "proof_s"), marks, marks[1:], strict=False
            )
        },
    }


COLUMNS = (
    ("value_ps", "value s", lambda found: f"{int(found) / 1e12:.4f}"),
    ("bound_ps", "bound s", lambda found: f"{int(found) / 1e12:.4f}"),
    ("gap", "gap %", lambda found: f"{100 * found:.3f}"),
    ("group", "group", lambda found: found or ""),
    ("relaxed", "relaxed", str),
    ("proofs", "proofs", str),
    ("slabs", "slabs", str),
    ("search_s", "search s", "{:.2f}".format),
    ("bound_s", "bound s", "{:.2f}".format),
    ("proof_s", "proof s", "{:.2f}".format),
)


@click.command()
@click.option("--only", default="", help="Rows whose name has this in it.")
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write the figures.")
def main(only: str, json_path: Path | None) -> None:
    """Measure and print the table."""
    table = Table(title="Bounds of the free family", box=None)
    table.add_column("problem")
    for _, title, _ in COLUMNS:
        table.add_column(title, justify="right")
    figures = {}
    for name, problem in problems(only):
        figures[name] = found = measure(problem)
        table.add_row(name, *(text(found[key]) for key, _, text in COLUMNS))
        if json_path is not None:  # after each row: a run cut short keeps its figures
            json_path.write_text(json.dumps(figures, indent=1) + "\n")
    Console(width=180).print(table)


if __name__ == "__main__":
    main()
