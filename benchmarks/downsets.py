"""Solve the dnn-partitioning inputs by the dynamic program over downsets.

    python benchmarks/downsets.py --data ../shared/data/dnn-partitioning

Prints a row for each input: blocks and downsets of the search, its value and
the published program's in milliseconds, seconds of the search by the clock and
of the processor, and the most memory that the process took. Each input is
solved in a process of its own. Exits with 1 where a value is not the published one.
"""

import csv
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import click

from nest_opt import GraphSolveResult, solve
from nest_opt.models.dnn_partitioning import read_dnn_partitioning

PS_PER_MS = 10**9
HEAD = ("input", "blocks", "downsets", "value", "published", "wall s", "cpu s", "memory MB")
WIDTHS = (42, 7, 9, 12, 10, 8, 8, 10)


def measure(path: Path) -> dict[str, float | int | str]:
    """Solve one input in this process."""
    problem = read_dnn_partitioning(path)
    start = time.process_time()
    result = solve(problem)
    cpu_s = time.process_time() - start
    assert isinstance(result, GraphSolveResult)
    assert result.evaluation is not None
    return {
        "status": result.status,
        "blocks": result.blocks,
        "downsets": result.downsets,
        "value_ps": result.evaluation.value_ps,
        "wall_s": result.wall_s,
        "cpu_s": cpu_s,
        "memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000,
    }


def row(values: tuple[str, ...]) -> str:
    """Return a line of the table."""
    first, *rest = zip(values, WIDTHS, strict=True)
    return first[0].ljust(first[1]) + "".join(value.rjust(width) for value, width in rest)


@click.command()
@click.option(
    "--data",
    type=click.Path(path_type=Path, exists=True),
    required=True,
    help="The folder with reference.csv.",
)
@click.option("--one", is_flag=True, hidden=True, help="Measure this one input, for a parent.")
def main(data: Path, one: bool) -> None:
    """Measure all inputs of a folder."""
    if one:
        print(json.dumps(measure(data)))
        return
    print(row(HEAD))
    different = []
    with (data / "reference.csv").open() as file:
        for entry in csv.DictReader(file):
            path, published = data / entry["input"], entry["max_load_contiguous"]
            command = [sys.executable, __file__, "--one", "--data", str(path)]
            found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
            value = f"{found['value_ps'] / PS_PER_MS:.6g}"
            cells = (
                entry["input"],
                f"{found['blocks']:,}",
                f"{found['downsets']:,}",
                value,
                published or "-",
                f"{found['wall_s']:.2f}",
                f"{found['cpu_s']:.2f}",
                f"{found['memory_mb']:.0f}",
            )
            print(row(cells), flush=True)
            if found["status"] != "optimal" or (published and value != published):
                different.append(entry["input"])
    if different:
        raise SystemExit(f"not the published value: {', '.join(different)}")


if __name__ == "__main__":
    main()
