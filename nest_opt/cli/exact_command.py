"""`nest-opt exact`: find the best plan by integer programs."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nest_opt.cli.group import EXIT_NO, json_option
from nest_opt.cli.narrowing import Narrowing, runtime_option
from nest_opt.cli.number_types import factor
from nest_opt.cli.problem_source import check_source, problem_options, read_source
from nest_opt.cli.registering import register_option
from nest_opt.cli.request_options import Asked

if TYPE_CHECKING:
    from rich.console import RenderableType

    from nest_opt.api import ExactResult, GraphExactResult
    from nest_opt.models.request import DerivedProblem

FAMILIES = ("aligned", "free")

time_limit_option = click.option(
    "--time-limit",
    "time_limit_s",
    metavar="S",
    type=factor,
    help="Stop the exact search after so many seconds, with incumbent and bound.",
)


family_option = click.option(
    "--family",
    type=click.Choice(FAMILIES),
    default="aligned",
    help="The family of plans: aligned device maps, as of `solve`, or any devices.",
)


@click.command("exact")
@problem_options
@family_option
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
@runtime_option
@click.option(
    "--independent",
    is_flag=True,
    help="Run the programs of a placement graph even where the dynamic program has the proof.",
)
@click.option(
    "-o", "--output", metavar="PLAN", type=click.Path(path_type=Path), help="Write the plan here."
)
@register_option
@json_option
def exact_command(
    problem_path: Path | None,
    asked: Asked,
    family: str,
    time_limit_s: Fraction | None,
    gap: Fraction,
    fixes: tuple[str, ...],
    runtime: str | None,
    independent: bool,
    output: Path | None,
    as_json: bool,
) -> int:
    """Find the best plan by integer programs, and hold `solve` against it.

    The problem is a file, or derived from --model, --cluster, --devices and
    --global-batch. The plan that `solve` finds is the first incumbent. Of a
    placement graph the family is the problem's split. Ctrl-C ends the search
    and prints incumbent and bound.
    """
    check_source(problem_path, asked)
    if runtime and family == "free":
        raise click.UsageError(
            f"--runtime: found {runtime} with --family free, whose plans may be on any devices; "
            "runtimes launch plans of the aligned family: leave one of the two out"
        )
    limit_s = None if time_limit_s is None else float(time_limit_s)
    result: ExactResult | GraphExactResult | None = None
    derived: DerivedProblem | None = None
    # Interrupted before the search began, there is nothing to show.
    with suppress(KeyboardInterrupt):
        result, derived = _search(
            problem_path, asked, family, limit_s, float(gap), fixes, runtime, independent, output
        )
    if as_json:
        from nest_opt.cli.json_output import print_json

        print_json(_json(result, derived, family))
    elif result is None:
        click.echo("interrupted: no plan yet")
    else:
        from nest_opt.cli.console import print_report

        print_report(*_report(result, derived, output))
    return 0 if result and result.plan else EXIT_NO


def _search(
    problem_path: Path | None,
    asked: Asked,
    family: str,
    time_limit_s: float | None,
    gap: float,
    fixes: tuple[str, ...],
    runtime: str | None,
    independent: bool,
    output: Path | None,
) -> "tuple[ExactResult | GraphExactResult, DerivedProblem | None]":
    from nest_opt import api
    from nest_opt.cli.fix import parse_fixes
    from nest_opt.cli.output_files import check_output, write_text
    from nest_opt.cli.progress import SearchProgress
    from nest_opt.problem import files

    wanted = parse_fixes(fixes)
    if output:
        check_output(output, problem_path or asked.model_path)
    source = read_source(problem_path, asked)
    problem = Narrowing(wanted, runtime)(source.problem)
    with SearchProgress() as progress:
        result = api.exact(
            problem,
            time_limit_s=time_limit_s,
            gap=gap,
            progress=progress,
            watch=progress.program,
            family="free" if family == "free" else "aligned",
            independent=independent,
        )
    if output and result.plan:
        write_text(output, files.to_json_text(result.plan))
    return result, source.derived


def _json(
    result: "ExactResult | GraphExactResult | None",
    derived: "DerivedProblem | None",
    family: str,
) -> Mapping[str, Any]:
    from nest_opt.api import GraphExactResult
    from nest_opt.cli.json_derived import derived_json
    from nest_opt.cli.json_exact import exact_json
    from nest_opt.cli.json_graph import graph_exact_json
    from nest_opt.cli.json_output import interrupted_json

    if result is None:
        return {**interrupted_json(), "family": family, "bound_vouched_by": None}
    if isinstance(result, GraphExactResult):
        return graph_exact_json(result)
    data = exact_json(result)
    if derived:
        data["derived_from"] = derived_json(derived)
    return data


def _report(
    result: "ExactResult | GraphExactResult",
    derived: "DerivedProblem | None",
    output: Path | None,
) -> "Iterator[RenderableType]":
    from nest_opt.api import GraphExactResult
    from nest_opt.cli.exact_report import exact_report
    from nest_opt.cli.graph_report import graph_exact_report
    from nest_opt.cli.problem_summary import derived_facts

    if isinstance(result, GraphExactResult):
        return graph_exact_report(result, output)
    return exact_report(result, output, derived_facts(derived) if derived else {})
