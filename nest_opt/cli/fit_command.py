"""`nest-opt fit`: what kernels attain in measured training runs."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nest_opt.cli.group import json_option

if TYPE_CHECKING:
    from nest_opt.prediction.fit import FamilyFit


@click.command("fit")
@click.argument("runs_path", metavar="RUNS", type=click.Path(path_type=Path))
@json_option
def fit_command(runs_path: Path, as_json: bool) -> int:
    """Fit the shares of peak that kernels attain to measured runs.

    RUNS is a CSV file: columns source and measured_s, and the fields of a run's file. Prints
    the two fitted constants of each accelerator with the errors of every source by what the
    others give, and by the catalogue.
    """
    from nest_opt.prediction.fit import fit_accelerators
    from nest_opt.prediction.runs_table import read_runs

    fits = fit_accelerators(read_runs(runs_path))
    if as_json:
        from nest_opt.cli.json_output import print_json

        print_json({"status": "fitted", "accelerators": [_object(fit) for fit in fits]})
        return 0
    from nest_opt.cli.console import print_report

    print_report(*map(_table, fits))
    return 0


def _table(found: "FamilyFit") -> Any:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    shares = found.fit.shares
    table = Table(
        title=f"{found.accelerator.name}: product_share {shares.product}, elementwise_share "
        f"{shares.elementwise}, fitted to {found.fit.rows} runs",
        title_justify="left",
        box=SIMPLE_HEAD,
    )
    for name in ("source", "runs", "median error by the others", "largest", "by the catalogue"):
        table.add_column(name, justify="left" if name == "source" else "right")
    for source in found.sources:
        table.add_row(
            source.source,
            str(source.runs),
            _percent(_median(source.held_out)),
            _percent(max(source.held_out, default=None)),
            _percent(_median(source.catalogue)),
        )
    return table


def _median(values: tuple[float, ...]) -> float | None:
    from statistics import median

    return median(values) if values else None


def _percent(value: float | None) -> str:
    return "no others" if value is None else f"{100 * value:.1f}%"


def _object(found: "FamilyFit") -> dict[str, Any]:
    return {
        "accelerator": found.accelerator.name,
        "product_share": float(found.fit.shares.product),
        "elementwise_share": float(found.fit.shares.elementwise),
        "runs": found.fit.rows,
        "loss": found.fit.loss,
        "sources": [
            {
                "source": source.source,
                "runs": source.runs,
                "median_error_by_the_others": _median(source.held_out),
                "median_error_by_the_catalogue": _median(source.catalogue),
            }
            for source in found.sources
        ],
    }
