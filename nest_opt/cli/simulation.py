"""What `verify --simulate` adds: the plan run under its schedule, beside the formula."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from nest_opt.api import VerifyResult
from nest_opt.cli.json_output import Object, time_json
from nest_opt.cli.json_timeline import timeline_json
from nest_opt.cli.output_files import check_output, write_text
from nest_opt.cli.stage_table import facts
from nest_opt.cli.timeline_svg import timeline_svg
from nest_opt.cli.units import count_text, exact_seconds_text, time_text
from nest_opt.cli.value import formula
from nest_opt.errors import NestOptError
from nest_opt.plan.evaluate import Costs, Evaluation
from nest_opt.simulate import Event, Hops, Simulation, SyncStart, peak_in_flight
from nest_opt.simulate.plan import simulate_plan

_TIMELINES: dict[str, Callable[[Simulation], str]] = {
    ".json": timeline_json,
    ".svg": timeline_svg,
}
_HOPS: dict[Hops, str] = {
    "blocking": "blocking: a stage is busy while it receives",
    "delay": "delay: data is under way while all stages compute",
}
# A plan's stage has one sync, after its last operation: `device` is `stage` there.
_SYNCS: dict[SyncStart, str] = {
    "stage": "stage: a stage's begins after its last gradients of the weights",
    "gradients": "gradients: a stage's begins with its last gradients of the weights",
}
# The timeline is drawn for as many columns, and microbatches that one character can name.
_COLUMNS = 64
_MOST_ROUNDS = 10
_MOST_STAGES = 16


@dataclass(frozen=True)
class SimulatedPlan:
    """A plan's evaluation, its simulation, and the files that have its timeline."""

    evaluation: Evaluation
    simulation: Simulation
    written: tuple[Path, ...] = ()

    @property
    def difference(self) -> float | None:
        """(value - simulated) / simulated; None where nothing takes time."""
        simulated = self.simulation.iteration_ps
        return (self.evaluation.value_ps - simulated) / simulated if simulated else None


@dataclass(frozen=True)
class SimulationRequest:
    """How `verify --simulate` runs a plan, and the files that it writes the timeline to."""

    hops: Hops = "blocking"
    sync: SyncStart = "stage"
    timelines: tuple[Path, ...] = ()


def check_timelines(paths: tuple[Path, ...], plan_path: Path) -> None:
    """Refuse files that a timeline cannot be written to, before any work is done for it.

    Raises
    ------
    NestOptError
        If one ends in neither .json nor .svg, or cannot be written.
    """
    for path in paths:
        if path.suffix not in _TIMELINES:
            raise NestOptError(
                f"--timeline: found {path}, a name that ends in {' or '.join(_TIMELINES)} is "
                "needed: choose one of the two"
            )
        check_output(path, plan_path)


def simulated(result: VerifyResult, request: SimulationRequest) -> SimulatedPlan | None:
    """Simulate a plan and write its timelines; None if it could not be evaluated."""
    if result.evaluation is None:
        return None
    costs, placement = Costs(result.plan.problem), result.plan.placement()
    run = simulate_plan(costs, placement, result.evaluation, hops=request.hops, sync=request.sync)
    # All texts before the first file: one that is refused leaves none behind.
    texts = [(path, _TIMELINES[path.suffix](run)) for path in request.timelines]
    for path, text in texts:
        write_text(path, text)
    return SimulatedPlan(result.evaluation, run, request.timelines)


def simulation_json(found: SimulatedPlan | None) -> Object | None:
    """Return the field `simulation`."""
    if found is None:
        return None
    run = found.simulation
    return {
        "schedule": run.schedule.name,
        "chunks": run.schedule.chunks,
        "hops": run.hops,
        "sync": run.sync,
        **time_json("iteration", run.iteration_ps),
        **time_json("compute", run.compute_ps),
        **time_json("span", run.span_ps),
        "difference": found.difference,
        "bubble_rate": run.bubble_share,
        "peak_in_flight": max(peak_in_flight(run.schedule)),
        "stages": [
            {
                "stage": stage,
                "busy_ps": str(run.busy_ps[stage]),
                "bubble_ps": str(run.bubble_ps[stage]),
                "bubble_rate": run.bubble_rate[stage],
                "sync_end_ps": str(run.sync_end_ps[stage]),
                "peak_in_flight": peak,
            }
            for stage, peak in enumerate(peak_in_flight(run.schedule))
        ],
    }


def simulation_report(found: SimulatedPlan | None) -> Iterator[RenderableType]:
    """Yield the parts of the report on a simulation."""
    yield Text()
    if found is None:
        yield Text("not simulated: the plan is not evaluated", style="bold red")
        return
    run, evaluation = found.simulation, found.evaluation
    schedule = run.schedule
    yield facts(
        {
            "simulated": f"{exact_seconds_text(run.iteration_ps)} ({_title(evaluation)} of "
            f"{count_text(schedule.devices, 'stage')} and {count_text(schedule.rounds, 'round')}, "
            "event by event)",
            "formula": f"{exact_seconds_text(evaluation.value_ps)} "
            f"({evaluation.objective}: {formula(evaluation.objective, evaluation.schedule)})",
            "difference": _difference_text(found),
            "hops": _HOPS[run.hops],
            "sync": _SYNCS[run.sync],
            "bubble": f"{run.bubble_share:.1%} of all stages' time until the last has computed, "
            f"{exact_seconds_text(run.compute_ps)}",
            "in flight": _peak_text(run),
            **({"written": ", ".join(map(str, found.written))} if found.written else {}),
        }
    )
    yield _stage_table(run)
    if schedule.rounds <= _MOST_ROUNDS and schedule.devices <= _MOST_STAGES and run.compute_ps:
        yield from _timeline(run)


def _title(evaluation: Evaluation) -> str:
    """Return a schedule's name in prose."""
    schedule = evaluation.schedule
    if schedule.is_interleaved:
        return f"interleaved 1F1B with {schedule.chunks} chunks"
    return {"1f1b": "1F1B", "gpipe": "GPipe", "zb-h1": "ZB-H1"}[schedule.name]


def _difference_text(found: SimulatedPlan) -> str:
    difference = found.difference
    if not difference:
        return "none"
    more = "longer" if difference > 0 else "shorter"
    return f"the formula is {abs(difference):.2%} {more} than the simulation"


def _peak_text(run: Simulation) -> str:
    """Return the most that any stage holds, and which is the first that does."""
    peaks = peak_in_flight(run.schedule)
    most = max(peaks)
    kind = "microbatch" if run.schedule.chunks == 1 else "chunk of a microbatch"
    plural = "microbatches" if run.schedule.chunks == 1 else "chunks of microbatches"
    return f"at most {most} {kind if most == 1 else plural}, on stage {peaks.index(most)}"


def _stage_table(run: Simulation) -> Table:
    table = Table(box=SIMPLE_HEAD)
    for name in ("stage", "busy", "bubble", "bubble rate", "sync ends", "peak in flight"):
        table.add_column(name, justify="right", no_wrap=True)
    for stage, peak in enumerate(peak_in_flight(run.schedule)):
        table.add_row(
            str(stage),
            time_text(run.busy_ps[stage]),
            time_text(run.bubble_ps[stage]),
            f"{run.bubble_rate[stage]:.1%}",
            time_text(run.sync_end_ps[stage]),
            str(peak),
        )
    return table


def _timeline(run: Simulation) -> Iterator[RenderableType]:
    """Yield a line per stage: digits are forwards, letters backwards, dots are idle.

    Where the weights' gradients are apart, they are capital letters.
    """
    for stage, timeline in enumerate(run.timelines):
        line = ["."] * _COLUMNS
        for event in timeline:
            for column in range(_column(event.start_ps, run), _column(event.end_ps, run)):
                line[column] = _mark(event)
        yield Text(f"stage {stage:>2}  {''.join(line)}", no_wrap=True)
    letters = "letters: backward (a is 0)"
    if run.schedule.name == "zb-h1":
        letters = "letters: gradients of its input (a is 0), capitals: of the weights"
    yield Text(f"digits: forward of a microbatch; {letters}; dots: idle")


def _column(time_ps: int, run: Simulation) -> int:
    """Return the column that a time falls in, rounded half up."""
    return (2 * time_ps * _COLUMNS + run.compute_ps) // (2 * run.compute_ps)


def _mark(event: Event) -> str:
    if event.kind == "F":
        return str(event.microbatch)
    return ("ABCDEFGHIJ" if event.kind == "W" else "abcdefghij")[event.microbatch]
