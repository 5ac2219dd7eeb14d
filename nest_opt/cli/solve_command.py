"""`nest-opt solve`: find the best plan."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
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

    from nest_opt.api import GraphSolveResult, RankBy, SolveResult
    from nest_opt.cli.solve_run import Solved


@dataclass(frozen=True)
class Outputs:
    """The files that are asked for."""

    plan: Path | None
    certificate: Path | None

    def check(self, source: Path | None) -> None:
        """Refuse what cannot be written, and files that would overwrite one another."""
        from nest_opt.cli.output_files import check_output

        if self.plan:
            check_output(self.plan, source)
        if self.certificate:
            check_output(self.certificate, source)
        if self.plan and self.certificate and self.plan.resolve() == self.certificate.resolve():
            raise click.UsageError(
                f"--certify: found {self.certificate}, which --output names as well, a file of its "
                "own is needed: choose another path"
            )


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
    "--rank-by",
    type=click.Choice(["levels", "links"]),
    help="Return the plan that is best by levels, or of some timed on the network's links the "
    "best there: links on a graph unless given.",
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
@click.option(
    "--certify",
    "certificate",
    metavar="CERTIFICATE",
    type=click.Path(path_type=Path),
    help="Also prove that no plan is better, and write the certificate here.",
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
    rank_by: "RankBy | None",
    front: bool,
    front_points: int | None,
    certificate: Path | None,
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
    if rank_by == "links" and (front or asked.smallest):
        raise click.UsageError(
            f"--rank-by: found links beside {'--front' if front else '--smallest'}, whose searches "
            "rank by levels: leave one out"
        )
    outputs = Outputs(output, certificate)
    try:
        solved = _solve(
            problem_path, asked, outputs, fixes, runtime, what_ifs, top, points, rank_by
        )
    except KeyboardInterrupt:
        # Before the search began there is nothing to show.
        solved = None
    if as_json:
        from nest_opt.cli.json_output import print_json

        print_json(_json(solved, outputs, explain, top))
    elif solved is None:
        click.echo("interrupted: no plan yet")
    else:
        from nest_opt.cli.console import print_report

        print_report(*_report(solved, outputs, explain, top))
    done = solved and _result(solved).plan and (not certificate or _is_certified(solved))
    return 0 if done else EXIT_NO


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
    outputs: Outputs,
    fixes: tuple[str, ...],
    runtime: str | None,
    what_ifs: tuple[str, ...],
    top: int | None,
    points: int | None,
    rank_by: "RankBy | None",
) -> "Solved | GraphSolveResult":
    from nest_opt.api import GraphSolveResult
    from nest_opt.cli.certificate_output import written
    from nest_opt.cli.fix import check_pitch, parse_fixes
    from nest_opt.cli.output_files import write_text
    from nest_opt.cli.progress import SearchProgress
    from nest_opt.cli.solve_run import Wanted, solve_file, solve_request
    from nest_opt.cli.what_if import parse_questions
    from nest_opt.problem.files import to_json_text

    fixed = parse_fixes(fixes)
    certify = outputs.certificate is not None
    wanted = Wanted(parse_questions(what_ifs), top, points, certify, rank_by)
    if asked.smallest:
        check_pitch(fixed)
    outputs.check(problem_path or asked.model_path)
    narrow = Narrowing(fixed, runtime)
    with SearchProgress() as progress:
        solved = (
            solve_file(problem_path, narrow, wanted, progress)
            if problem_path
            else solve_request(asked, narrow, wanted, progress)
        )
    plan = _result(solved).plan
    if outputs.plan and plan:
        write_text(outputs.plan, to_json_text(plan))
    if not isinstance(solved, GraphSolveResult) and solved.certified:
        written(solved.certified, outputs.certificate)
    return solved


def _is_certified(solved: "Solved | GraphSolveResult") -> bool:
    from nest_opt.api import GraphSolveResult

    if isinstance(solved, GraphSolveResult) or solved.certified is None:
        return False
    return solved.certified.certificate is not None


def _result(solved: "Solved | GraphSolveResult") -> "SolveResult | GraphSolveResult":
    from nest_opt.api import GraphSolveResult

    return solved if isinstance(solved, GraphSolveResult) else solved.result


def _json(
    solved: "Solved | GraphSolveResult | None", outputs: Outputs, explain: bool, top: int | None
) -> Mapping[str, Any]:
    from nest_opt.api import GraphSolveResult
    from nest_opt.cli.json_bound import bound_json
    from nest_opt.cli.json_derived import derived_json, smallest_json
    from nest_opt.cli.json_graph import graph_solve_json
    from nest_opt.cli.json_output import explanation_json, interrupted_json, solve_json
    from nest_opt.cli.json_plans import front_json, ranking_json
    from nest_opt.cli.json_what_if import what_if_json
    from nest_opt.cli.retiming import retiming_json

    if solved is None:
        return interrupted_json()
    if isinstance(solved, GraphSolveResult):
        return graph_solve_json(solved, explain)
    result, derived = solved.result, solved.derived
    data = solve_json(result) | retiming_json(result.plan, result.evaluation, result.links)
    if explain:
        data["explanation"] = result.plan and explanation_json(result.plan, result.evaluation)
    if top is not None:
        data.update(ranking_json(result))
    if solved.front:
        data.update(front_json(solved.front))
    if solved.answers:
        data["what_if"] = what_if_json(result.by_levels, solved.answers)
    if outputs.certificate:
        found = solved.certified
        data["certified"] = found and bound_json(result.problem, found, outputs.certificate)
    if derived:
        data["derived_from"] = derived_json(derived)
        if solved.smallest:
            data["smallest"] = smallest_json(derived.template, solved.smallest)
    return data


def _report(
    solved: "Solved | GraphSolveResult", outputs: Outputs, explain: bool, top: int | None
) -> "Iterator[RenderableType]":
    from nest_opt.api import GraphSolveResult
    from nest_opt.cli.bound_report import certified_text
    from nest_opt.cli.graph_report import graph_solve_report
    from nest_opt.cli.problem_summary import derived_facts
    from nest_opt.cli.smallest_report import fewest_text, smallest_facts
    from nest_opt.cli.solve_report import solve_report

    if isinstance(solved, GraphSolveResult):
        return graph_solve_report(solved, outputs.plan, explain=explain)
    derived, smallest = solved.derived, solved.smallest
    about: dict[str, str] = {}
    fewest = None
    if derived and smallest:
        fewest = fewest_text(derived.template, smallest)
        if solved.result.plan:
            about.update(smallest_facts(derived.template, smallest))
    if derived:
        about.update(derived_facts(derived))
    if outputs.certificate:
        about["certified"] = certified_text(solved.certified, outputs.certificate)
    return solve_report(
        solved.result,
        outputs.plan,
        explain=explain,
        answers=solved.answers,
        ranked=top is not None,
        front=solved.front,
        about=about,
        fewest=fewest,
    )
