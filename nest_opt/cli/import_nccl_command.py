"""`nest-opt import nccl-tests`: one's own measurements as the constants of a fabric."""

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nest_opt.cli.amounts import bandwidth, parsed, size
from nest_opt.cli.group import json_option
from nest_opt.cli.number_types import whole_list

if TYPE_CHECKING:
    from nest_opt.network.collectives import Calibration, Collective, Fabric, Measurement, Spread

OPERATIONS = (
    *("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast", "send-receive"),
)
# Level 1 is the network in the names of constants; a call belongs to the node.
FITS: Mapping[str, Callable[[str], bool]] = {
    "all": lambda name: True,
    "node": lambda name: "level 1" not in name,
    "network": lambda name: "level 1" in name,
}


@click.command("nccl-tests")
@click.argument(
    "paths", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path)
)
@click.option(
    "--accelerator",
    metavar="NAME",
    required=True,
    help="The fabric inside a node to start from, as h100 or a100.",
)
@click.option(
    "--network",
    metavar="NAME",
    help="The network between nodes to start from, as infiniband or efa, for runs over several.",
)
@click.option(
    "--bandwidth",
    "peak",
    metavar="50GB/s",
    callback=parsed(bandwidth),
    help="The network's peak per device and direction; needed with --network.",
)
@click.option(
    "--operation",
    type=click.Choice(OPERATIONS),
    help="What was run, where the files do not name the program.",
)
@click.option(
    "--ranks",
    metavar="N,N",
    callback=parsed(whole_list),
    help="Ranks of a node, and nodes, where the files do not list devices.",
)
@click.option(
    "--from",
    "least",
    metavar="SIZE",
    callback=parsed(size),
    default="0B",
    show_default=True,
    help="Leave out smaller buffers.",
)
@click.option(
    "--fit",
    type=click.Choice(tuple(FITS)),
    default="all",
    show_default=True,
    help="The constants to fit: those of the node, of the network, or all.",
)
@click.option(
    "--into",
    metavar="PROBLEM",
    type=click.Path(path_type=Path),
    help="Write this problem with what was measured as its innermost levels.",
)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Write the problem here instead of on standard output.",
)
@json_option
def import_nccl_command(
    paths: tuple[Path, ...],
    accelerator: str,
    network: str | None,
    peak: Fraction | None,
    operation: "Collective | None",
    ranks: tuple[int, ...] | None,
    least: int,
    fit: str,
    into: Path | None,
    output: Path | None,
    as_json: bool,
) -> int:
    """Fit a fabric to what nccl-tests printed, and calibrate a problem by it."""
    from nest_opt.cli.output_files import check_output, write_text
    from nest_opt.models.calibrated import with_measured_levels
    from nest_opt.models.fabrics import build_fabric
    from nest_opt.network.collectives import Spread, calibrate
    from nest_opt.problem.files import read_problem, to_json_data, to_json_text

    if output is not None:
        if into is None:
            raise click.UsageError(
                f"-o: found {output} without a problem, --into PROBLEM is needed: add it, or take "
                "--json for the constants"
            )
        check_output(output, paths[0])
    start = build_fabric(accelerator, network, peak)
    problem = None if into is None else read_problem(into)
    # One node is a run over one level, whichever way it is said.
    if ranks and ranks[1:] == (1,):
        ranks = ranks[:1]
    spread = None if ranks is None else Spread(ranks)
    rows = _rows(paths, operation, spread, least, start)
    found = calibrate(start, rows, FITS[fit])
    if problem is not None:
        problem = with_measured_levels(problem, found.fabric)
    if problem is not None and output is not None:
        write_text(output, to_json_text(problem))
    if as_json:
        from nest_opt.cli.json_output import print_json

        data = None if problem is None else to_json_data(problem)
        print_json({**_json(start, found, rows, output), "problem": data})
    elif problem is not None and output is None:
        click.echo(to_json_text(problem), nl=False)
    else:
        _print(start, found, rows, output)
    return 0


def _rows(
    paths: Sequence[Path],
    operation: "Collective | None",
    spread: "Spread | None",
    least: int,
    fabric: "Fabric",
) -> "list[Measurement]":
    from nest_opt.errors import InstanceError
    from nest_opt.models.nccl_tests import read_nccl_tests

    found = []
    for path in paths:
        rows = read_nccl_tests(path, operation, spread)
        levels = len(rows[0].spread.counts)
        if levels > len(fabric.links):
            raise InstanceError(
                f"{path}: found a run over {levels} levels {rows[0].spread.counts}, fabric "
                f"{fabric.name} has {len(fabric.links)}: add --network and --bandwidth"
            )
        found += [row for row in rows if row.size_bytes >= least]
    return found


def _json(
    start: "Fabric", found: "Calibration", rows: "Sequence[Measurement]", output: Path | None
) -> dict[str, Any]:
    from nest_opt.models.calibrated import measured_levels
    from nest_opt.network.collectives import constants

    before = {constant.name: float(constant.get(start)) for constant in constants(start)}
    return {
        "status": "imported",
        "format": "nccl-tests",
        "output": None if output is None else str(output),
        "fabric": found.fabric.name,
        "rows": len(rows),
        "median_error": found.median_error,
        "p90_error": found.p90_error,
        "constants": [
            {"name": name, "before": before[name], "fitted": value} for name, value in found.moved
        ],
        "kept": list(found.kept),
        "levels": [
            {
                "bandwidth_bytes_per_s": float(level.bandwidth_bytes_per_s),
                "latency_s": float(level.latency_s),
            }
            for level in measured_levels(found.fabric)
        ],
    }


def _print(
    start: "Fabric", found: "Calibration", rows: "Sequence[Measurement]", output: Path | None
) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    from nest_opt.cli.console import print_report
    from nest_opt.cli.stage_table import facts
    from nest_opt.cli.units import bytes_text, count_text, gap_text, time_text
    from nest_opt.models.calibrated import measured_levels
    from nest_opt.network.collectives import constants, error_at, relative_errors

    before = {constant.name: float(constant.get(start)) for constant in constants(start)}
    errors = relative_errors(start, rows)
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("constant")
    table.add_column("before", justify="right")
    table.add_column("fitted", justify="right")
    for name, value in found.moved:
        is_time = name.endswith("(s)")
        shown = [
            time_text(round(each * 10**12)) if is_time else f"{100 * each:.1f}%"
            for each in (before[name], value)
        ]
        table.add_row(name.removesuffix(" (s)"), *shown)
    levels = [
        f"{bytes_text(int(level.bandwidth_bytes_per_s))}/s and "
        f"{time_text(round(level.latency_s * 10**12))}"
        for level in measured_levels(found.fabric)
    ]
    rows_text = {
        "fabric": f"{found.fabric.name}, fitted to {count_text(len(rows), 'row')}",
        "error": f"median {gap_text(found.median_error)}, nine in ten within "
        f"{gap_text(found.p90_error)}; before {gap_text(error_at(errors, 0.5))} and "
        f"{gap_text(error_at(errors, 0.9))}",
        "levels": f"{'; '.join(levels)} (bandwidth that rings attain, and a step)",
        "kept": ", ".join(found.kept) if found.kept else "nothing",
    }
    if output is not None:
        rows_text["written"] = str(output)
    print_report(facts(rows_text), Text(), table)
