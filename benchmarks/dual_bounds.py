"""Lower bounds of the small instances' free family by linear programs: the table of their gaps.

    python benchmarks/dual_bounds.py [--only tp-by-stage] [--splits 100] [--optima FILE]

For each problem of `instances/small`: its optimum over the free family, by integer programs; what
linear programs prove of it without any split, and with at most so many in each group; leaves,
bytes and numbers of the multipliers, and processor seconds to find trees and to confirm them in
fractions. Groups that the closed form settles have no tree. `--optima` keeps the optima in a file,
so that they need not be found again. Exits with 1 if a bound is above the optimum or a tree does
not prove it.
"""

import argparse
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from nest_opt import solve
from nest_opt.certify.dual import DualProof, even_share_ps, prove
from nest_opt.certify.dual_groups import group_numbers, groups
from nest_opt.certify.dual_rows import Group, open_leaf
from nest_opt.milp.exact import exact
from nest_opt.plan.evaluate import Costs
from nest_opt.problem import Problem
from nest_opt.problem.files import read_problem

FOLDER = Path(__file__).resolve().parent.parent / "instances" / "small"
PS_PER_S = 10**12
COLUMNS = ("instance", "optimum (s)", "groups", "no split", "splits", "bound", "leaves", "bytes",
           "make s", "check s")  # fmt: skip


@dataclass(frozen=True)
class Bound:
    """What is proved of an instance: the trees of all groups that need one, and the seconds."""

    groups: int
    proofs: list[tuple[Group, DualProof]]
    limit_ps: int
    make_s: float
    check_s: float
    wrong: int

    @property
    def bound_ps(self) -> int:
        """No placement has an objective below this."""
        return min([self.limit_ps, *(proof.bound_ps for _, proof in self.proofs)])

    @property
    def root_ps(self) -> int:
        """The same without splits."""
        return min([self.limit_ps, *(proof.root_ps for _, proof in self.proofs)])


def optimum_ps(problem: Problem, kept: dict[str, int], name: str) -> int:
    """Return the optimum over the free family, found once."""
    if name not in kept:
        start = solve(problem).plan
        found = exact(problem, start=start.placement() if start else None, family="free")
        if found.status != "optimal" or found.value_ps is None:
            raise SystemExit(f"{name}: {found.status}")
        kept[name] = found.value_ps
    return kept[name]


def bound(problem: Problem, limit_ps: int, most_splits: int) -> Bound:
    """Prove what can be proved, and confirm every tree at the bound of all."""
    costs, proofs, count = Costs(problem), [], 0
    begin = time.process_time()
    for at in groups(costs):
        count += 1
        group = group_numbers(costs, at)
        if group is not None and even_share_ps(group) < limit_ps:
            proofs.append((group, prove(group, limit_ps, most_splits)))
    made = time.process_time()
    claim = min([limit_ps, *(proof.bound_ps for _, proof in proofs)])
    wrong = sum(open_leaf(group, claim, proof.tree) is not None for group, proof in proofs)
    return Bound(count, proofs, limit_ps, made - begin, time.process_time() - made, wrong)


def row(name: str, best_ps: int, found: Bound) -> tuple[str, ...]:
    """Return an instance's row of the table."""
    trees = [json.dumps(proof.tree, separators=(",", ":")) for _, proof in found.proofs]
    return (
        name,
        f"{best_ps / PS_PER_S:.4f}",
        f"{len(found.proofs)} of {found.groups}",
        f"{100 * (1 - found.root_ps / best_ps):.2f}%",
        str(sum(proof.splits for _, proof in found.proofs)),
        f"{100 * (1 - found.bound_ps / best_ps):.2f}%",
        str(sum(proof.leaves for _, proof in found.proofs)),
        f"{sum(map(len, trees)):,}",
        f"{found.make_s:.1f}",
        f"{found.check_s:.1f}",
    )


def main() -> int:
    """Bound what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", default="", help="part of an instance's name")
    parser.add_argument("--splits", type=int, default=100, help="most splits of a group")
    parser.add_argument("--optima", type=Path, help="file to keep optima in")
    asked = parser.parse_args()
    console, table = Console(width=150), Table(*COLUMNS)
    kept: dict[str, int] = {}
    if asked.optima and asked.optima.exists():
        kept = json.loads(asked.optima.read_text())
    wrong = 0
    for path in sorted(FOLDER.glob("*.json")):
        if asked.only not in path.stem:
            continue
        problem = read_problem(path)
        best_ps = optimum_ps(problem, kept, path.stem)
        found = bound(problem, best_ps, asked.splits)
        wrong += found.wrong + (found.bound_ps > best_ps)
        table.add_row(*row(path.stem, best_ps, found))
        console.print(", ".join(row(path.stem, best_ps, found)))
        if asked.optima:
            asked.optima.write_text(json.dumps(kept))
    console.print(table)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
