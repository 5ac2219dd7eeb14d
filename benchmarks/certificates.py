"""What certificates cost: seconds to make and to check, bytes, and the gap that they prove.

    python benchmarks/certificates.py
    python benchmarks/certificates.py --all --json certificates.json
    python benchmarks/certificates.py --small

Each instance of the paper (a few of them unless `--all` is given), and Llama-3.1-405B on 16,384
devices, in both families. `--small` takes the small instances instead, whose best free plan integer
programs find, without linear programs in the proof and with up to 100 splits of one. `make` is all
of `nest-opt bound`: the search for a plan, the bound and its proofs. `check` is the checker alone,
on the text that was written. Seconds are those of the processor. A certificate that the checker
refuses, or whose claim is not the bound, ends the run with exit code 1.
"""

import gzip
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from multiprocessing import Pool
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from nest_opt import Problem, bound, exact
from nest_opt.certify import checker
from nest_opt.models.request import Request, derive_problem
from nest_opt.problem.files import read_problem

INSTANCES = Path(__file__).resolve().parent.parent / "instances"
PAPER, SMALL = INSTANCES / "paper", INSTANCES / "small"
FEW = "*-1024.json"
LARGE = "llama-3.1-405b on 16,384 x dgx-h100"
FAMILIES = ("aligned", "free")
SPLITS = 100


@dataclass(frozen=True)
class Row:
    """One certificate."""

    instance: str
    family: str
    splits: int
    groups: int
    proofs: dict[str, int]
    gap: float
    make_s: float
    check_s: float
    text_bytes: int
    packed_bytes: int


def problem_of(name: str) -> Problem:
    """Return the problem of a row's name."""
    if name == LARGE:
        request = Request(
            model="llama-3.1-405b",
            cluster="dgx-h100",
            devices=16384,
            global_batch=4096,
            sequence_length=8192,
        )
        return derive_problem(request).problem
    folder = SMALL if (SMALL / f"{name}.json").exists() else PAPER
    return read_problem(folder / f"{name}.json")


def measure(task: tuple[str, str, int, int | None]) -> Row:
    """Make a certificate and check it; the value of the best plan is given, or looked for."""
    name, family, splits, value_ps = task
    problem = problem_of(name)
    begin = time.process_time()
    found = bound(problem, family=family, splits=splits)
    if value_ps is not None:
        found = replace(found, value_ps=value_ps)
    made = time.process_time()
    if found.certificate is None or found.gap is None:
        raise SystemExit(f"{name}, {family}: no certificate: {found.uncertified}")
    text = found.certificate.text()
    data = json.loads(text)
    before = time.process_time()
    verdict = checker.check(data)
    checked = time.process_time()
    if verdict.least_ps != found.bound_ps:
        raise SystemExit(f"{name}, {family}: proved {verdict.least_ps}, not {found.bound_ps}")
    return Row(
        instance=name,
        family=family,
        splits=splits,
        groups=found.groups,
        proofs=dict(found.proofs),
        gap=found.gap,
        make_s=made - begin,
        check_s=checked - before,
        text_bytes=len(text.encode()),
        packed_bytes=len(gzip.compress(text.encode(), mtime=0)),
    )


def tasks(every: bool) -> Iterator[tuple[str, str, int, int | None]]:
    """Yield instance, family, splits and no value."""
    names = sorted(path.stem for path in PAPER.glob("*.json" if every else FEW))
    for name in (*names, LARGE):
        yield from ((name, family, 0, None) for family in FAMILIES)


def small_tasks() -> Iterator[tuple[str, str, int, int | None]]:
    """Yield instance, family, splits and the best free value, of those that have certificates."""
    for path in sorted(SMALL.glob("*.json")):
        problem = read_problem(path)
        if not problem.search.per_stage:
            best = exact(problem, family="free")
            assert best.evaluation is not None
            for splits in (0, SPLITS):
                yield path.stem, "free", splits, best.evaluation.value_ps


@click.command()
@click.option("--all", "every", is_flag=True, help="All instances of the paper.")
@click.option("--small", is_flag=True, help="The small instances instead.")
@click.option("--json", "path", type=Path, help="Write the figures here.")
@click.option("--workers", type=int, default=2, show_default=True, help="Processes at a time.")
def main(every: bool, small: bool, path: Path | None, workers: int) -> None:
    """Make and check certificates, and print what they cost."""
    table = Table("instance", "family", "splits", "groups", "thresholds", "runs", "dual", "gap",
                  "make", "check", "text", "gzip")  # fmt: skip
    rows = []
    # Solvers are not started from the pool's threads.
    wanted = list(small_tasks() if small else tasks(every))
    with Pool(workers, maxtasksperchild=1) as pool:
        for row in pool.imap(measure, wanted):
            rows.append(row)
            print(row.instance, row.family, f"{row.gap:.4%}", file=sys.stderr)
            table.add_row(
                row.instance,
                row.family,
                str(row.splits),
                f"{row.groups:,}",
                str(row.proofs.get("thresholds", 0)),
                str(row.proofs.get("runs", 0)),
                str(row.proofs.get("dual", 0)),
                f"{row.gap:.3%}",
                f"{row.make_s:.1f} s",
                f"{row.check_s:.1f} s",
                f"{row.text_bytes / 1e6:.2f} MB",
                f"{row.packed_bytes / 1e3:.0f} kB",
            )
    console = Console(width=140)
    console.print(table)
    for family in FAMILIES:
        own = [row for row in rows if row.family == family]
        if not own:
            continue
        console.print(
            f"{family}: at most {max(r.make_s for r in own):.1f} s to make, "
            f"{max(r.check_s for r in own):.1f} s to check, "
            f"{max(r.text_bytes for r in own) / 1e6:.2f} MB, gap {max(r.gap for r in own):.3%}"
        )
    if path:
        path.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")


if __name__ == "__main__":
    main()
