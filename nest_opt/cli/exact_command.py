"""`nest-opt exact`: find the best plan by integer programs."""

from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nest_opt.cli.group import EXIT_NO, json_option
from nest_opt.cli.number_types import factor

if TYPE_CHECKING:
    from nest_opt.api import ExactResult

FAMILIES = ("aligned", "free")

time_limit_option = click.option(
    "--time-limit",
    "time_limit_s",
    metavar="S",
    type=factor,
    help="Stop the exact search after so many seconds, with incumbent and bound.",
)


@click.command("exact")
@click.argument("problem_path", metavar="PROBLEM", type=click.Path(path_type=Path))
@click.option(
    "--family",
    type=click.Choice(FAMILIES),
    default="aligned",
    help="The family of plans: aligned device maps, as of `solve`, or any devices.",
)
@time_limit_option
@click.option(
    "--gap",
    metavar="G",
    type=factor,
    default="0",
    help="A plan within this share of its value of the bound is good enough; 0 unless given.",
)
@click.option(
    "--fix",
    "fixes",
    metavar="KEY=VALUE[,VALUE]",
    multiple=True,
    help="Search only these values of a dimension, as `solve` does. Repeatable.",
)
@click.option(
    "-o", "--output", metavar="PLAN", type=click.Path(path_type=Path), help="Write the plan here."
)
@json_option
def exact_command(
    problem_path: Path,
    family: str,
    time_limit_s: Fraction | None,
    gap: Fraction,
    fixes: tuple[str, ...],
    output: Path | None,
    as_json: bool,
) -> int:
    """Find the best plan by integer programs, and hold `solve` against it.

    The plan that `solve` finds is the first incumbent. Ctrl-C ends the search
    and prints incumbent and bound.
    """
    limit_s = None if time_limit_s is None else float(time_limit_s)
    try:
        result = _search(problem_path, family, limit_s, float(gap), fixes, output)
    except KeyboardInterrupt:
        # Before the search began there is nothing to show.
        result = None
    if as_json:
        from nest_opt.cli.json_output import print_json

        print_json(_json(result))
    elif result is None:
        click.echo("interrupted: no plan yet")
    else:
        from nest_opt.cli.console import print_report
        from nest_opt.cli.exact_report import exact_report

        print_report(*exact_report(result, output))
    return 0 if result and result.plan else EXIT_NO


def _search(
    problem_path: Path,
    family: str,
    time_limit_s: float | None,
    gap: float,
    fixes: tuple[str, ...],
    output: Path | None,
) -> "ExactResult":
    from nest_opt import api
    from nest_opt.cli.fix import fix, parse_fixes
    from nest_opt.cli.output_files import check_output, write_text
    from nest_opt.cli.progress import SearchProgress
    from nest_opt.problem import files

    wanted = parse_fixes(fixes)
    if output:
        check_output(output, problem_path)
    problem = fix(files.read_problem(problem_path), wanted)
    with SearchProgress() as progress:
        result = api.exact(
            problem,
            time_limit_s=time_limit_s,
            gap=gap,
            progress=progress,
            family="free" if family == "free" else "aligned",
        )
    if output and result.plan:
        write_text(output, files.to_json_text(result.plan))
    return result


def _json(result: "ExactResult | None") -> Mapping[str, Any]:
    from nest_opt.cli.json_exact import exact_json
    from nest_opt.cli.json_output import interrupted_json

    if result is None:
        return {**interrupted_json(), "bound_vouched_by": None}
    return exact_json(result)
