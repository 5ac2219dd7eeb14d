"""`nest-opt verify`: evaluate, check and explain a plan."""

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nest_opt.cli.exact_command import time_limit_option
from nest_opt.cli.group import EXIT_NO, json_option
from nest_opt.cli.registering import register_option

if TYPE_CHECKING:
    from nest_opt.api import ExactResult, GraphVerifyResult, VerifyResult
    from nest_opt.cli.plan_bounds import PlanBound
    from nest_opt.cli.simulation import SimulationRequest
    from nest_opt.problem import Problem
    from nest_opt.simulate import Hops, SyncStart

# The free family is searched besides, not at any price.
FREE_TIME_LIMIT_S = 60.0
FREE_DEVICES = 64


def free_is_skipped(problem: "Problem") -> str | None:
    """Return why the free family is not searched, None if it is."""
    from nest_opt.milp.families import MOST_FREE_DEVICES

    devices = problem.cluster.device_count
    if devices > MOST_FREE_DEVICES:
        return f"not searched: {devices:,} devices are more than {MOST_FREE_DEVICES}"
    if devices > FREE_DEVICES:
        return (
            f"not searched: {devices} devices are more than {FREE_DEVICES}; `nest-opt exact "
            "--family free` tries anyway"
        )
    if problem.job.cost_model == "artifact":
        return "not searched: its programs know cost model default alone"
    if any(constraint.type == "user" for constraint in problem.constraints):
        return "not searched: a constraint of the user's own has no rows for it"
    if problem.search.layer_order == "any":
        return "not searched: its programs know layer_order listed alone"
    if any(schedule.is_interleaved for schedule in problem.search.schedules):
        return "not searched: its programs know one chunk a stage alone"
    return None


@click.command("verify")
@click.argument("plan_path", metavar="PLAN", type=click.Path(path_type=Path))
@click.option(
    "--exact",
    "with_exact",
    is_flag=True,
    help="Also give the plan's gap to the optimum of the aligned and of the free family, or of a "
    "placement graph's split.",
)
@time_limit_option
@click.option(
    "--simulate",
    "with_simulation",
    is_flag=True,
    help="Also run the plan as a pipeline of its schedule, event by event.",
)
@click.option(
    "--hops",
    type=click.Choice(["blocking", "delay"]),
    help="Of --simulate: a stage is busy while it receives (blocking, the default and what the "
    "objective means), or data is under way while all compute (delay).",
)
@click.option(
    "--sync",
    type=click.Choice(["stage", "gradients"]),
    help="Of --simulate: a stage's gradients are synchronised after its last backward (stage, the "
    "default and what the objective means), or with it (gradients).",
)
@click.option(
    "--timeline",
    "timelines",
    metavar="FILE",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Of --simulate: write when each operation ran to FILE, as data (.json) or as a picture "
    "(.svg). Repeatable.",
)
@click.option(
    "--certificate",
    "certificates",
    metavar="CERTIFICATE",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Check this certificate about the plan's problem, and use its bound. Repeatable.",
)
@click.option(
    "--no-bounds",
    is_flag=True,
    help="Compute no bounds: give those of certificates and of --exact alone.",
)
@register_option
@json_option
def verify_command(
    plan_path: Path,
    with_exact: bool,
    time_limit_s: Fraction | None,
    with_simulation: bool,
    hops: "Hops | None",
    sync: "SyncStart | None",
    timelines: tuple[Path, ...],
    certificates: tuple[Path, ...],
    no_bounds: bool,
    as_json: bool,
) -> int:
    """Evaluate and check a plan file, and explain its cost and memory term by term.

    Of a legal plan, give the gap to the best bound of each family that is to be
    had at once, and who vouches for it.
    """
    from nest_opt import api
    from nest_opt.api import GraphVerifyResult
    from nest_opt.plan.files import read_plan

    if time_limit_s is not None and not with_exact:
        raise click.UsageError(
            "--time-limit: found without --exact, both are needed: add --exact, or leave it out"
        )
    given = {"--hops": hops, "--sync": sync, "--timeline": timelines}
    if not with_simulation and any(given.values()):
        name = next(name for name, value in given.items() if value)
        raise click.UsageError(
            f"{name}: found without --simulate, both are needed: add --simulate, or leave it out"
        )
    simulation = _simulation(hops, sync, timelines, plan_path) if with_simulation else None
    result = api.verify(read_plan(plan_path))
    limit_s = None if time_limit_s is None else float(time_limit_s)
    shown = _Shown(with_exact, limit_s, simulation, certificates, not no_bounds)
    if isinstance(result, GraphVerifyResult):
        if with_simulation:
            raise click.UsageError(
                "--simulate: found a placement graph's plan, a pipeline's is needed: leave it out"
            )
        if certificates:
            raise click.UsageError(
                "--certificate: found a placement graph's plan, which has no certificates: leave "
                "it out"
            )
        _verify_graph(result, shown, as_json)
    else:
        _verify(result, shown, as_json)
    return EXIT_NO if result.violations else 0


def _simulation(
    hops: "Hops | None", sync: "SyncStart | None", timelines: tuple[Path, ...], plan_path: Path
) -> "SimulationRequest":
    from nest_opt.cli.simulation import SimulationRequest, check_timelines

    check_timelines(timelines, plan_path)
    return SimulationRequest(hops or "blocking", sync or "stage", timelines)


@dataclass(frozen=True)
class _Shown:
    """What is shown besides the evaluation."""

    exact: bool
    time_limit_s: float | None
    simulation: "SimulationRequest | None"
    certificates: tuple[Path, ...]
    compute_bounds: bool

    @property
    def bounds(self) -> bool:
        """Whether there is to be a word on bounds."""
        return self.exact or self.compute_bounds or bool(self.certificates)


def _verify(result: "VerifyResult", shown: _Shown, as_json: bool) -> None:
    from nest_opt.cli.plan_bounds import checked_bounds, plan_bounds

    proved = checked_bounds(result, shown.certificates)
    # Optimum and bounds are of legal plans: a gap of another one would mean nothing.
    optima: list[ExactResult] = []
    bounds: list[PlanBound] | None = None
    skipped = free_is_skipped(result.plan.problem)
    if not result.violations:
        if shown.exact:
            optima = _optima(result, shown.time_limit_s)
        bounds = plan_bounds(result, proved, optima, skipped, shown.compute_bounds)
    if as_json:
        _print_json(result, optima, bounds, shown)
        return
    from nest_opt.cli.console import print_report
    from nest_opt.cli.exact_report import optimum_report
    from nest_opt.cli.plan_bounds_report import plan_bounds_report
    from nest_opt.cli.verify_report import verify_report
    from nest_opt.problem.networks import GraphKind

    print_report(*verify_report(result))
    if shown.bounds:
        on_graph = isinstance(result.plan.problem.cluster.network, GraphKind)
        print_report(*plan_bounds_report(result.evaluation, bounds, on_graph))
    if shown.simulation:
        from nest_opt.cli.simulation import simulated, simulation_report

        print_report(*simulation_report(simulated(result, shown.simulation)))
    if shown.exact:
        print_report(*optimum_report(result, optima, skipped))


def _optima(result: "VerifyResult", time_limit_s: float | None) -> "list[ExactResult]":
    """Return the best plan of the aligned family and, if it is to be had, of the free one."""
    from nest_opt import api
    from nest_opt.cli.progress import SearchProgress

    problem = result.plan.problem
    with SearchProgress() as progress:
        aligned = api.exact_pipeline(
            problem, time_limit_s=time_limit_s, progress=progress, watch=progress.program
        )
    if aligned.status == "interrupted" or free_is_skipped(problem):
        return [aligned]
    limit_s = FREE_TIME_LIMIT_S if time_limit_s is None else time_limit_s
    with SearchProgress() as progress:
        free = api.exact_pipeline(
            problem,
            time_limit_s=limit_s,
            progress=progress,
            watch=progress.program,
            family="free",
            start=aligned.start,
        )
    return [aligned, free]


def _print_json(
    result: "VerifyResult",
    optima: "list[ExactResult]",
    bounds: "list[PlanBound] | None",
    shown: _Shown,
) -> None:
    from nest_opt.cli.json_exact import optimum_json
    from nest_opt.cli.json_output import print_json, verify_json
    from nest_opt.cli.plan_bounds_report import plan_bounds_json
    from nest_opt.cli.retiming import retiming_json

    data = verify_json(result) | retiming_json(result.plan, result.evaluation)
    if shown.bounds:
        data["bounds"] = plan_bounds_json(result.evaluation, bounds)
    if shown.exact:
        found = {optimum.family: optimum for optimum in optima}
        data["exact"] = optimum_json(result, found.get("aligned"))
        data["exact_free"] = optimum_json(result, found.get("free"))
    if shown.simulation:
        from nest_opt.cli.simulation import simulated, simulation_json

        data["simulation"] = simulation_json(simulated(result, shown.simulation))
    print_json(data)


def _verify_graph(result: "GraphVerifyResult", shown: _Shown, as_json: bool) -> None:
    from nest_opt.api import exact_graph
    from nest_opt.cli.console import print_report
    from nest_opt.cli.graph_report import graph_optimum_report, graph_verify_report
    from nest_opt.cli.json_graph import graph_optimum_json, graph_verify_json
    from nest_opt.cli.json_output import print_json
    from nest_opt.cli.plan_bounds import graph_plan_bounds
    from nest_opt.cli.plan_bounds_report import plan_bounds_json, plan_bounds_report
    from nest_opt.cli.progress import SearchProgress

    optimum = bounds = None
    if not result.violations:
        if shown.exact:
            with SearchProgress() as progress:
                optimum = exact_graph(
                    result.plan.problem, time_limit_s=shown.time_limit_s, progress=progress
                )
        bounds = graph_plan_bounds(result, optimum, shown.compute_bounds)
    if as_json:
        data = graph_verify_json(result)
        if shown.bounds:
            data["bounds"] = plan_bounds_json(result.evaluation, bounds)
        if shown.exact:
            data["exact"] = graph_optimum_json(result, optimum)
        print_json(data)
        return
    print_report(*graph_verify_report(result))
    if shown.bounds:
        print_report(*plan_bounds_report(result.evaluation, bounds))
    if shown.exact:
        print_report(*graph_optimum_report(result, optimum))
