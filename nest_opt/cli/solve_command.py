"""`nest-opt solve`: find the best plan."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from nest_opt.cli.group import EXIT_NO, json_option

if TYPE_CHECKING:
    from nest_opt.api import SolveResult


@click.command("solve")
@click.argument("problem_path", metavar="PROBLEM", type=click.Path(path_type=Path))
@click.option(
    "-o", "--output", metavar="PLAN", type=click.Path(path_type=Path), help="Write the plan here."
)
@click.option(
    "--fix",
    "fixes",
    metavar="KEY=VALUE[,VALUE]",
    multiple=True,
    help="Search only these values of microbatch (b), tp, cp, ep, sp, dp, pp, recompute, order "
    "or pitch, as in --fix tp=8. Repeatable.",
)
@json_option
def solve_command(
    problem_path: Path, output: Path | None, fixes: tuple[str, ...], as_json: bool
) -> int:
    """Find the best plan of the aligned family for a problem file.

    Ctrl-C ends the search and prints the best plan so far.
    """
    from nest_opt.cli.fix import parse_fixes

    wanted = parse_fixes(fixes)
    try:
        result = _solve(problem_path, output, wanted)
    except KeyboardInterrupt:
        # Before the search began there is nothing to show.
        result = None
    if as_json:
        from nest_opt.cli.json_output import interrupted_json, print_json, solve_json

        print_json(solve_json(result) if result else interrupted_json())
    elif result is None:
        click.echo("interrupted: no plan yet")
    else:
        from nest_opt.cli.console import print_report
        from nest_opt.cli.solve_report import solve_report

        print_report(*solve_report(result, output))
    return 0 if result and result.plan else EXIT_NO


def _solve(
    problem_path: Path, output: Path | None, fixes: dict[str, tuple[object, ...]]
) -> "SolveResult":
    from nest_opt import api
    from nest_opt.cli.fix import fix
    from nest_opt.cli.output_files import check_output, write_text
    from nest_opt.cli.progress import SearchProgress
    from nest_opt.problem.files import read_problem, to_json_text

    if output:
        check_output(output, problem_path)
    problem = fix(read_problem(problem_path), fixes)
    with SearchProgress() as progress:
        result = api.solve(problem, progress)
    if output and result.plan:
        write_text(output, to_json_text(result.plan))
    return result
