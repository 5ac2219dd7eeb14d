"""`nest-opt solve`: find the best plan."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nest_opt.cli.group import EXIT_NO, json_option
from nest_opt.cli.narrowing import Narrowing, runtime_option
from nest_opt.cli.number_types import whole
from nest_opt.cli.registering import register_option
from nest_opt.cli.request_options import Asked, request_options

# That of nest_opt.memory_front, which help must not wait for.
DEFAULT_POINTS = 100

if TYPE_CHECKING:
    from rich.console import RenderableType

    from nest_opt.api import GraphSolveResult, SolveResult
    from nest_opt.cli.solve_run import Solved


@click.command("solve")
@click.argument(
    "problem_path", metavar="[PROBLEM]", required=False, type=click.Path(path_type=Path)
)
@request_options()
@click.option(
    "-o", "--output", metavar="PLAN", type=click.Path(path_type=Path), help="Write the plan here."
)
@click.option(
    "--fix",
    "fixes",
    metavar="KEY=VALUE[,VALUE]",
    multiple=True,
    help="Search only these values of microbatch (b), tp, cp, ep, sp, dp, pp, recompute, order, "
    "pitch, schedule, chunks, zero, zero_expert, zero_instances, per_stage or layer_order, "
    "as in --fix tp=8. Repeatable.",
)
@runtime_option
@click.option(
    "--what-if",
    "what_ifs",
    metavar="KEY=VALUE[+KEY=VALUE]",
    multiple=True,
    help="Also find the best plan with this fixed, and compare, as in --what-if tp=8+pp=2. "
    "Repeatable.",
)
@click.option(
    "--top",
    type=whole,
    metavar="N",
    help="Also list the N best plans, one for each choice of degrees and device map.",
)
@click.option(
    "--front",
    is_flag=True,
    help="Also list the least batch time for each limit on memory per device.",
)
@click.option(
    "--front-points",
    type=whole,
    metavar="N",
    help="Under --front, find so many plans at most; 100 unless given.",
)
@click.option("--explain", is_flag=True, help="Give every term of the plan's cost and memory.")
@register_option
@json_option
def solve_command(
    problem_path: Path | None,
    asked: Asked,
    output: Path | None,
    fixes: tuple[str, ...],
    runtime: str | None,
    what_ifs: tuple[str, ...],
    top: int | None,
    front: bool,
    front_points: int | None,
    explain: bool,
    as_json: bool,
) -> int:
    """Find the best plan of the aligned family, or split of a placement graph.

    The problem is a file, or derived from --model, --cluster, --devices and
    --global-batch. Ctrl-C ends the search and prints the best plan so far.
    """
    from nest_opt.cli.problem_source import check_source

    check_source(problem_path, asked)
    points = _points(asked, top, front, front_points)
    try:
        solved = _solve(problem_path, asked, output, fixes, runtime, what_ifs, top, points)
    except KeyboardInterrupt:
        # Before the search began there is nothing to show.
        solved = None
    if as_json:
        from nest_opt.cli.json_output import print_json

        print_json(_json(solved, explain, top))
    elif solved is None:
        click.echo("interrupted: no plan yet")
    else:
        from nest_opt.cli.console import print_report

        print_report(*_report(solved, output, explain, top))
    return 0 if solved and _result(solved).plan else EXIT_NO


def _points(asked: Asked, top: int | None, front: bool, front_points: int | None) -> int | None:
    """Return how many points of the front to find, None for no front."""
    if front_points is not None and not front:
        raise click.UsageError(
            f"--front-points: found {front_points} without --front, both are needed: add --front"
        )
    given = [
        name for name, is_given in (("--top", top is not None), ("--front", front)) if is_given
    ]
    if asked.smallest:
        given.append("--smallest")
    if len(given) > 1:
        raise click.UsageError(
            f"{given[0]}: found {given[1]} beside it, one of the two is allowed: leave one out"
        )
    if not front:
        return None
    return DEFAULT_POINTS if front_points is None else front_points


def _solve(
    problem_path: Path | None,
    asked: Asked,
    output: Path | None,
    fixes: tuple[str, ...],
    runtime: str | None,
    what_ifs: tuple[str, ...],
    top: int | None,
    points: int | None,
) -> "Solved | GraphSolveResult":
    from nest_opt.cli.fix import check_pitch, parse_fixes
    from nest_opt.cli.output_files import check_output, write_text
    from nest_opt.cli.progress import SearchProgress
    from nest_opt.cli.solve_run import Wanted, solve_file, solve_request
    from nest_opt.cli.what_if import parse_questions
    from nest_opt.problem.files import to_json_text

    fixed = parse_fixes(fixes)
    wanted = Wanted(parse_questions(what_ifs), top, points)
    if asked.smallest:
        check_pitch(fixed)
    if output:
        check_output(output, problem_path or asked.model_path)
    narrow = Narrowing(fixed, runtime)
    with SearchProgress() as progress:
        solved = (
            solve_file(problem_path, narrow, wanted, progress)
            if problem_path
            else solve_request(asked, narrow, wanted, progress)
        )
    plan = _result(solved).plan
    if output and plan:
        write_text(output, to_json_text(plan))
    return solved


def _result(solved: "Solved | GraphSolveResult") -> "SolveResult | GraphSolveResult":
    from nest_opt.api import GraphSolveResult

    return solved if isinstance(solved, GraphSolveResult) else solved.result


def _json(
    solved: "Solved | GraphSolveResult | None", explain: bool, top: int | None
) -> Mapping[str, Any]:
    from nest_opt.api import GraphSolveResult
    from nest_opt.cli.json_derived import derived_json, smallest_json
    from nest_opt.cli.json_graph import graph_solve_json
    from nest_opt.cli.json_output import explanation_json, interrupted_json, solve_json
    from nest_opt.cli.json_plans import front_json, ranking_json
    from nest_opt.cli.json_what_if import what_if_json

    if solved is None:
        return interrupted_json()
    if isinstance(solved, GraphSolveResult):
        return graph_solve_json(solved, explain)
    result, derived = solved.result, solved.derived
    data = solve_json(result)
    if explain:
        data["explanation"] = result.plan and explanation_json(result.plan, result.evaluation)
    if top is not None:
        data.update(ranking_json(result))
    if solved.front:
        data.update(front_json(solved.front))
    if solved.answers:
        data["what_if"] = what_if_json(result, solved.answers)
    if derived:
        data["derived_from"] = derived_json(derived)
        if solved.smallest:
            data["smallest"] = smallest_json(derived.template, solved.smallest)
    return data


def _report(
    solved: "Solved | GraphSolveResult", output: Path | None, explain: bool, top: int | None
) -> "Iterator[RenderableType]":
    from nest_opt.api import GraphSolveResult
    from nest_opt.cli.graph_report import graph_solve_report
    from nest_opt.cli.problem_summary import derived_facts
    from nest_opt.cli.smallest_report import fewest_text, smallest_facts
    from nest_opt.cli.solve_report import solve_report

    if isinstance(solved, GraphSolveResult):
        return graph_solve_report(solved, output, explain=explain)
    derived, smallest = solved.derived, solved.smallest
    about: dict[str, str] = {}
    fewest = None
    if derived and smallest:
        fewest = fewest_text(derived.template, smallest)
        if solved.result.plan:
            about.update(smallest_facts(derived.template, smallest))
    if derived:
        about.update(derived_facts(derived))
    return solve_report(
        solved.result,
        output,
        explain=explain,
        answers=solved.answers,
        ranked=top is not None,
        front=solved.front,
        about=about,
        fewest=fewest,
    )
