"""`nest-opt crosscheck`: hold the faces of registered constraints against each other."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nest_opt.cli.group import EXIT_NO, json_option
from nest_opt.cli.number_types import whole
from nest_opt.cli.registering import run_registering, told_errors

if TYPE_CHECKING:
    from nest_opt.agreement import CrosscheckResult

    Results = dict[str, CrosscheckResult]


@click.command("crosscheck")
@click.argument("path", metavar="FILE.py", type=click.Path(path_type=Path))
@click.option(
    "--instances",
    metavar="N",
    type=whole,
    default="200",
    help="Random small problems for each constraint; 200 unless given.",
)
@click.option(
    "--seed", metavar="N", type=whole, default="0", help="The first problem's seed; 0 unless given."
)
@click.option(
    "-o",
    "--output",
    metavar="PROBLEM",
    type=click.Path(path_type=Path),
    help="Write the problem of the first disagreement here, shrunk.",
)
@json_option
def crosscheck_command(
    path: Path, instances: int, seed: int, output: Path | None, as_json: bool
) -> int:
    """Compare rule, rows and checker of your constraints on random small problems.

    FILE.py registers them, each with `parameters`. Exit code 1: they disagree.
    """
    from nest_opt.cli.output_files import check_output, write_text
    from nest_opt.problem.files import to_json_text

    if instances < 1:
        raise click.UsageError(f"--instances: found {instances}, at least 1 is needed: raise it")
    if output:
        check_output(output, path)
    with told_errors([path]):
        results = _crosscheck(run_registering(path), instances, seed)
    found = [each for result in results.values() for each in result.disagreements]
    if output and found:
        write_text(output, to_json_text(found[0].problem))
    if as_json:
        from nest_opt.cli.json_output import print_json

        print_json(_json(results))
    else:
        _print(results, output if found else None)
    return EXIT_NO if found else 0


def _crosscheck(names: list[str], instances: int, seed: int) -> "Results":
    from nest_opt.agreement import crosscheck
    from nest_opt.cli.progress import CountProgress

    results = {}
    for name in names:
        with CountProgress(f"comparing {name}") as progress:
            results[name] = crosscheck(name, count=instances, seed=seed, progress=progress)
    return results


def _json(results: "Results") -> dict[str, Any]:
    from nest_opt.problem.files import to_json_data

    agree = not any(result.disagreements for result in results.values())
    return {
        "status": "agreement" if agree else "disagreement",
        "constraints": [
            {
                "name": name,
                "problems": result.problems,
                "feasible": result.feasible,
                "binding": result.binding,
                "relaxed": result.relaxed,
                "disagreements": [
                    {
                        "face": each.face,
                        "told": str(each),
                        "shrunk": each.original is not None,
                        "problem": to_json_data(each.problem),
                    }
                    for each in result.disagreements
                ],
            }
            for name, result in results.items()
        ],
    }


def _print(results: "Results", written: Path | None) -> None:
    from nest_opt.cli.console import print_report
    from nest_opt.cli.crosscheck_report import crosscheck_report

    print_report(*crosscheck_report(results, written))
