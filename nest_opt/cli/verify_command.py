"""`nest-opt verify`: evaluate, check and explain a plan."""

from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nest_opt.cli.exact_command import time_limit_option
from nest_opt.cli.group import EXIT_NO, json_option

if TYPE_CHECKING:
    from nest_opt.api import ExactResult, VerifyResult


@click.command("verify")
@click.argument("plan_path", metavar="PLAN", type=click.Path(path_type=Path))
@click.option(
    "--exact",
    "with_exact",
    is_flag=True,
    help="Also give the plan's gap to the optimum of the aligned family.",
)
@time_limit_option
@click.option(
    "--simulate",
    "with_simulation",
    is_flag=True,
    help="Also run the plan as a 1F1B pipeline, event by event.",
)
@json_option
def verify_command(
    plan_path: Path,
    with_exact: bool,
    time_limit_s: Fraction | None,
    with_simulation: bool,
    as_json: bool,
) -> int:
    """Evaluate and check a plan file, and explain its cost and memory term by term."""
    from nest_opt import api
    from nest_opt.plan.files import read_plan

    if time_limit_s is not None and not with_exact:
        raise click.UsageError(
            "--time-limit: found without --exact, both are needed: add --exact, or leave it out"
        )
    result = api.verify(read_plan(plan_path))
    # The optimum is of legal plans: a gap of another one would mean nothing.
    optimum = None
    if with_exact and not result.violations:
        optimum = _optimum(result, None if time_limit_s is None else float(time_limit_s))
    if as_json:
        _print_json(result, optimum, with_exact, with_simulation)
    else:
        from nest_opt.cli.console import print_report
        from nest_opt.cli.exact_report import optimum_report
        from nest_opt.cli.verify_report import verify_report

        print_report(*verify_report(result))
        if with_simulation:
            from nest_opt.cli.simulation import simulated, simulation_report

            print_report(*simulation_report(simulated(result)))
        if with_exact:
            print_report(*optimum_report(result, optimum))
    return EXIT_NO if result.violations else 0


def _optimum(result: "VerifyResult", time_limit_s: float | None) -> "ExactResult":
    from nest_opt import api
    from nest_opt.cli.progress import SearchProgress

    with SearchProgress() as progress:
        return api.exact(result.plan.problem, time_limit_s=time_limit_s, progress=progress)


def _print_json(
    result: "VerifyResult",
    optimum: "ExactResult | None",
    with_exact: bool,
    with_simulation: bool,
) -> None:
    from nest_opt.cli.json_exact import optimum_json
    from nest_opt.cli.json_output import print_json, verify_json

    data = verify_json(result)
    if with_exact:
        data["exact"] = optimum_json(result, optimum)
    if with_simulation:
        from nest_opt.cli.simulation import simulated, simulation_json

        data["simulation"] = simulation_json(simulated(result))
    print_json(data)
