"""Every baseline on every instance of the paper's models, under the default cost model.

    python benchmarks/planners.py [--only gpt-3] [--devices 64] [--write]

Prints how much longer a batch takes by each planner's plan than by the optimum.
`--write` puts the table into docs/planners.md. Seeds and budgets are the
planners' own, so that runs repeat; only the seconds differ.
"""

import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from nest_opt import compare
from nest_opt.comparison import Comparison
from nest_opt.planners import planners
from nest_opt.problem.files import read_problem

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "instances" / "paper"
PAGE = ROOT / "docs" / "planners.md"
MARKER = "<!-- table -->\n"
NAMES = tuple(planners())
CLUSTERS = ("dgx-h100", "paper-h100-spineleaf", "paper-tpuv4-fattree")


def excesses(found: Comparison) -> dict[str, float | None]:
    """Return by which share each plan is above the optimum, None for a planner without one."""
    bound = found.optimum.bound_ps
    assert bound is not None
    return {
        each.planner: None
        if each.evaluation is None
        else (each.evaluation.value_ps - bound) / bound
        for each in found.outcomes
    }


def percent(share: float | None) -> str:
    """Return a share in percent, `-` where there is none."""
    return "-" if share is None else f"{100 * share:.1f}%"


def summary(rows: dict[str, dict[str, float | None]]) -> Iterator[str]:
    """Yield a table of geometric means over the instances of each cluster that all plan."""
    yield f"| cluster | instances | {' | '.join(NAMES)} |"
    yield f"|---|---|{'---|' * len(NAMES)}"
    for cluster in (*CLUSTERS, ""):
        own = {name: row for name, row in rows.items() if f"-{cluster}" in name}
        if not own:
            continue
        cells = []
        for name in NAMES:
            shares = [share for row in own.values() if (share := row[name]) is not None]
            mean = math.exp(sum(math.log1p(share) for share in shares) / max(1, len(shares))) - 1
            best = sum(share == 0 for share in shares)
            cells.append(f"{100 * mean:.1f}% of {len(shares)}, {best} optimal" if shares else "-")
        yield f"| {cluster or 'all'} | {len(own)} | {' | '.join(cells)} |"


def table(rows: dict[str, dict[str, float | None]]) -> Iterator[str]:
    """Yield the lines of the table."""
    yield f"| instance | {' | '.join(NAMES)} |"
    yield f"|---|{'---|' * len(NAMES)}"
    for name, row in rows.items():
        yield f"| {name} | {' | '.join(percent(row[each]) for each in NAMES)} |"


def by_devices(path: Path) -> tuple[str, int]:
    """Return model and cluster of an instance, and its number of devices."""
    name, _, devices = path.stem.rpartition("-")
    return name, int(devices)


@click.command()
@click.option("--only", default="", help="Instances with this in their names.")
@click.option("--devices", type=int, multiple=True, help="Instances of so many; 64 and 256.")
@click.option("--write", is_flag=True, help="Put the table into docs/planners.md.")
@click.option("--log", type=click.Path(path_type=Path), help="Write seconds and values here.")
def main(only: str, devices: tuple[int, ...], write: bool, log: Path | None) -> None:
    """Run every planner on the instances asked for."""
    rows, lines = {}, []
    for path in sorted(FOLDER.glob("*.json"), key=by_devices):
        if only not in path.stem or by_devices(path)[1] not in (devices or (64, 256)):
            continue
        found = compare(read_problem(path))
        rows[path.stem] = excesses(found)
        lines.append(
            json.dumps(
                {
                    "instance": path.stem,
                    **{
                        each.planner: [
                            each.evaluation and str(each.evaluation.value_ps),
                            each.reason,
                            round(each.wall_s, 2),
                        ]
                        for each in found.rows
                    },
                }
            )
        )
        if log:
            log.write_text("\n".join(lines) + "\n", encoding="utf-8")
        seconds = sum(each.wall_s for each in found.rows)
        shown = " ".join(f"{name} {percent(share)}" for name, share in rows[path.stem].items())
        click.echo(f"{path.stem}: {shown} ({seconds:.1f} s)", err=True)
    text = "\n".join([*summary(rows), "", *table(rows)]) + "\n"
    if write:
        before = PAGE.read_text(encoding="utf-8").partition(MARKER)[0]
        PAGE.write_text(f"{before}{MARKER}\n{text}", encoding="utf-8")
    else:
        click.echo(text)
    sys.exit(
        any(share is not None and share < 0 for row in rows.values() for share in row.values())
    )


if __name__ == "__main__":
    main()
