"""The best known result of every instance: check it, or write it anew.

    python benchmarks/best_known.py --check
    python benchmarks/best_known.py --write

Solves all of `instances/tiny`, `paper` and `networks`, prints a line for each,
and compares with `instances/best_known.json` or replaces it. Write it anew
after an instance changed, and after a change of the cost model; then look at
what changed before committing it.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from known_results import BEST_KNOWN, instance_paths, record, recorded  # noqa: E402

from nest_opt import solve  # noqa: E402
from nest_opt.cost.units import to_s  # noqa: E402
from nest_opt.problem.files import read_problem  # noqa: E402


def solve_all(table: Table) -> dict[str, Any]:
    """Solve every instance; add a row of the table for each, and return the records."""
    records = {}
    for name, path in instance_paths().items():
        start = time.perf_counter()
        result = solve(read_problem(path), rank_by="levels")
        seconds = time.perf_counter() - start
        records[name] = record(result)
        value = "" if result.evaluation is None else f"{to_s(result.evaluation.value_ps):.6f}"
        cells = f"{result.cells - result.cells_pruned} of {result.cells}"
        table.add_row(name, result.status, value, cells, f"{seconds:.2f}")
    return records


def differences(known: dict[str, Any], found: dict[str, Any]) -> list[str]:
    """Return a line for each instance whose record is missing, superfluous or different."""
    lines = [f"{name}: has no record" for name in found if name not in known]
    lines += [f"{name}: no such instance" for name in known if name not in found]
    for name, entry in found.items():
        for key, value in entry.items():
            before = known.get(name, entry).get(key)
            if before != value:
                lines.append(f"{name}: {key}: recorded {before}, found {value}")
    return lines


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description="Check or write the best known results.")
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--check", action="store_true", help="exit 1 if a result differs")
    action.add_argument("--write", action="store_true", help=f"write {BEST_KNOWN.name}")
    options = parser.parse_args()
    table = Table("instance", "status", "value (s)", "cells solved", "wall (s)", box=None)
    found = solve_all(table)
    known = recorded() if BEST_KNOWN.is_file() else {}
    if options.write:
        data = {"format": "nest-opt-best-known", "version": 1, "instances": found}
        BEST_KNOWN.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    console = Console(width=100)
    console.print(table)
    lines = differences(known, found)
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    return 1 if lines and not options.write else 0


if __name__ == "__main__":
    raise SystemExit(main())
