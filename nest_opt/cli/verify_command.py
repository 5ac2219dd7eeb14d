"""`nest-opt verify`: evaluate, check and explain a plan."""

from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nest_opt.cli.exact_command import time_limit_option
from nest_opt.cli.group import EXIT_NO, json_option

if TYPE_CHECKING:
    from nest_opt.api import ExactResult, VerifyResult
    from nest_opt.graph_api import GraphVerifyResult


@click.command("verify")
@click.argument("plan_path", metavar="PLAN", type=click.Path(path_type=Path))
@click.option(
    "--exact",
    "with_exact",
    is_flag=True,
    help="Also give the plan's gap to the optimum of its family.",
)
@time_limit_option
@json_option
def verify_command(
    plan_path: Path, with_exact: bool, time_limit_s: Fraction | None, as_json: bool
) -> int:
    """Evaluate and check a plan file, and explain its cost and memory term by term."""
    from nest_opt import api
    from nest_opt.graph_api import GraphVerifyResult
    from nest_opt.plan.files import read_plan

    if time_limit_s is not None and not with_exact:
        raise click.UsageError(
            "--time-limit: found without --exact, both are needed: add --exact, or leave it out"
        )
    result = api.verify(read_plan(plan_path))
    limit_s = None if time_limit_s is None else float(time_limit_s)
    if isinstance(result, GraphVerifyResult):
        _verify_graph(result, with_exact, limit_s, as_json)
    else:
        _verify(result, with_exact, limit_s, as_json)
    return EXIT_NO if result.violations else 0


def _verify(
    result: "VerifyResult", with_exact: bool, time_limit_s: float | None, as_json: bool
) -> None:
    from nest_opt import api
    from nest_opt.cli.progress import SearchProgress

    # The optimum is of legal plans: a gap of another one would mean nothing.
    optimum = None
    if with_exact and not result.violations:
        with SearchProgress() as progress:
            optimum = api.exact_pipeline(
                result.plan.problem, time_limit_s=time_limit_s, progress=progress
            )
    if as_json:
        _print_json(result, optimum, with_exact)
    else:
        from nest_opt.cli.console import print_report
        from nest_opt.cli.exact_report import optimum_report
        from nest_opt.cli.verify_report import verify_report

        print_report(*verify_report(result))
        if with_exact:
            print_report(*optimum_report(result, optimum))


def _print_json(result: "VerifyResult", optimum: "ExactResult | None", with_exact: bool) -> None:
    from nest_opt.cli.json_exact import optimum_json
    from nest_opt.cli.json_output import print_json, verify_json

    data = verify_json(result)
    if with_exact:
        data["exact"] = optimum_json(result, optimum)
    print_json(data)


def _verify_graph(
    result: "GraphVerifyResult", with_exact: bool, time_limit_s: float | None, as_json: bool
) -> None:
    from nest_opt.cli.console import print_report
    from nest_opt.cli.graph_report import graph_optimum_report, graph_verify_report
    from nest_opt.cli.json_graph import graph_optimum_json, graph_verify_json
    from nest_opt.cli.json_output import print_json
    from nest_opt.cli.progress import SearchProgress
    from nest_opt.graph_api import exact_graph

    optimum = None
    if with_exact and not result.violations:
        with SearchProgress() as progress:
            optimum = exact_graph(result.plan.problem, time_limit_s=time_limit_s, progress=progress)
    if as_json:
        data = graph_verify_json(result)
        if with_exact:
            data["exact"] = graph_optimum_json(result, optimum)
        print_json(data)
    else:
        print_report(*graph_verify_report(result))
        if with_exact:
            print_report(*graph_optimum_report(result, optimum))
