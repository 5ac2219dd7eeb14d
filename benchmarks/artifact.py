"""Wall time, peak memory and value of every input of the NEST artifact.

    python benchmarks/artifact.py --data ../shared/data/nest

Each input is imported and solved by a process of its own; the value is held
against the exact row of results.csv.
"""

import csv
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

PROGRAM = """
import json, resource, sys
from pathlib import Path
from nest_opt import solve
from nest_opt.models.nest_artifact import read_nest_artifact
result = solve(read_nest_artifact(Path(sys.argv[1])))
value = None if result.evaluation is None else result.evaluation.value_ps
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({"status": result.status, "value_ps": value, "peak_kib": peak}))
"""


def exact_values(folder: Path) -> dict[str, float]:
    """Return the exact batch time in seconds of each input, by file stem."""
    with (folder / "results.csv").open() as file:
        return {
            f"{row['setup']}__{row['model']}__mbs{row['mbs']}__{row['devices']}": float(
                row["time_per_batch_s"]
            )
            for row in csv.DictReader(file)
            if row["method"] == "EXACT-same-cost-model"
        }


@click.command()
@click.option(
    "--data", type=click.Path(exists=True, file_okay=False, path_type=Path), required=True
)
def main(data: Path) -> None:
    """Solve every input and print a table; exit 1 if a value is not the exact one."""
    exact, wrong = exact_values(data), 0
    table = Table("input", "status", "batch time (s)", "off by (relative)", "wall (s)", "peak (MB)")
    for path in sorted((data / "inputs").glob("*.json")):
        start = time.perf_counter()
        run = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(path)], check=True, capture_output=True, text=True
        )
        seconds = time.perf_counter() - start
        found = json.loads(run.stdout)
        value = "" if found["value_ps"] is None else f"{found['value_ps'] / 1e12:.9g}"
        off = ""
        if path.stem in exact and found["value_ps"] is not None:
            error = abs(found["value_ps"] / 1e12 / exact[path.stem] - 1)
            off = f"{error:.1e}"
            wrong += error > 1e-9
        else:
            wrong += (path.stem in exact) != (found["value_ps"] is not None)
        peak = f"{found['peak_kib'] * 1024 / 1e6:.0f}"
        table.add_row(path.stem, found["status"], value, off, f"{seconds:.2f}", peak)
    Console().print(table)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    click.echo(f"{wrong} values are not the exact ones; {children.ru_utime:.1f} s of CPU in all")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
