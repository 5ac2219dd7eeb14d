"""How far each objective is from the simulated time on plans of the paper's models.

    python benchmarks/closed_forms.py --write
    python benchmarks/closed_forms.py           (prints the tables)

Three sorts of plans of the instances in instances/paper of 64, 256 and 1,024 devices, under
every schedule that runs them: the best one, as `solve` finds it under fill-drain; drawn
degrees with layers shared out evenly, as a person writes them; and drawn degrees with drawn
cuts. All have their default costs. Each is valued by the three objectives and run event by
event. With --write the tables go into docs/schedules.md, and the figure and its data into
docs/figures.
"""

import random
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from itertools import product
from pathlib import Path

import click
from plotting import new_figure, save_figure, save_rows
from schedules import value_ps

from nest_opt import Problem, solve
from nest_opt.cost.schedule import rounds_per_batch, runs
from nest_opt.plan.evaluate import Costs, evaluate
from nest_opt.plan.placement import Placement
from nest_opt.problem.files import read_problem
from nest_opt.problem.job import OBJECTIVES
from nest_opt.problem.schedule import SCHEDULES, Schedule, ScheduleName
from nest_opt.simulate import Schedule as EventSchedule
from nest_opt.simulate import Simulation, StageTimes, simulate
from nest_opt.simulate.plan import event_schedule, stage_times

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "instances" / "paper"
PAGE = ROOT / "docs" / "schedules.md"
FIGURE = ROOT / "docs" / "figures" / "closed_forms.svg"
BEGIN, END = "<!-- closed forms -->\n", "<!-- end of closed forms -->\n"

DEVICES = (64, 256, 1024)
SORTS = ("best", "even", "drawn")
# Interleaved plans have as many chunks a stage.
CHUNKS = 2
MOST_STAGES = 32
# Of plans that are drawn, of the best ones, and of those of them that are run with other overlap:
# with more rounds all formulas come closer, and a run takes seconds.
MOST_DRAWN, MOST_BEST, MOST_OVERLAPPED = 2**14, 2**16, 2**15
_TRIES = 200
# Of the figure's axis, in percent.
TICKS = (-100, -30, -10, -3, -1, 0, 1, 3, 10, 30, 100)


@dataclass(frozen=True)
class Miss:
    """(objective - simulated) / simulated of a plan."""

    sort: str
    schedule: ScheduleName
    objective: str
    share: float


@dataclass(frozen=True)
class Change:
    """By how much another overlap of hops or syncs changes a plan's simulated time."""

    schedule: ScheduleName
    overlap: str
    share: float


def best_placement(problem: Problem, name: ScheduleName) -> Placement | None:
    """Return the best plan of two stages or more under a schedule; None if that has none."""
    update = {"schedule": (name,), "chunks": (CHUNKS,)}
    search = problem.search.model_copy(update=update)
    plan = solve(problem.model_copy(update={"search": search})).plan
    return plan.placement() if plan and len(plan.stages) > 1 else None


def drawn_placement(
    rng: random.Random, problem: Problem, name: ScheduleName, *, even: bool
) -> Placement | None:
    """Return a plan of drawn degrees on as many devices as they fill, whether or not it fits.

    Cuts are drawn, or are such that stages have equal numbers of layers to one.
    None where many draws find none that the schedule runs.
    """
    layers, devices = len(problem.model.ids), problem.cluster.device_count
    schedule = Schedule(name, CHUNKS if name == "interleaved" else 1)
    for _ in range(_TRIES):
        microbatch, k = rng.choice(problem.candidates)
        stages = rng.randint(2, min(MOST_STAGES, layers // schedule.chunks))
        replicas = _largest_degree(problem, microbatch, k.ep, devices // (k.block_size * stages))
        ends = _ends(rng, layers, stages * schedule.chunks, schedule, even)
        if replicas is None or ends is None:
            continue
        rounds = rounds_per_batch(problem.job, microbatch, k.ep, replicas)
        if rounds is None or not runs(schedule, stages, rounds):
            continue
        if _operations(schedule, stages, rounds) <= MOST_DRAWN:
            pitch = stages * k.block_size
            modes = (rng.choice(("none", "full")),) * stages
            return Placement(
                microbatch, (k,) * stages, replicas, "pp-inner", pitch, ends, modes, None,
                schedule=schedule,
            )  # fmt: skip
    return None


def _largest_degree(problem: Problem, microbatch: int, ep: int, most: int) -> int | None:
    """Return the largest data-parallel degree that the batch is a multiple of."""
    degrees = (
        d for d in range(most, 0, -1) if problem.job.global_batch % (microbatch * ep * d) == 0
    )
    return next(degrees, None)


def _ends(
    rng: random.Random, layers: int, parts: int, schedule: Schedule, even: bool
) -> tuple[int, ...] | None:
    """Return where chunks end; those between the first and the last of equal length if several."""
    if schedule.is_interleaved:
        # The model's first and last layer are no blocks.
        size, rest = divmod(layers - 2, parts)
        if even and (rest or size == 0):
            return None
        if not even:
            size = rng.randint(1, (layers - 2) // (parts - 2))
        first = size + 1 if even else rng.randint(1, layers - 1 - size * (parts - 2))
        return (*(first + size * chunk for chunk in range(parts - 1)), layers)
    if even:
        return tuple(layers * (part + 1) // parts for part in range(parts))
    return (*sorted(rng.sample(range(1, layers), parts - 1)), layers)


def _operations(schedule: Schedule, stages: int, rounds: int) -> int:
    return (3 if schedule.name == "zb-h1" else 2) * schedule.chunks * stages * rounds


def results(path: Path, draws: int) -> Iterator[Miss | Change]:
    """Yield what the objectives miss on the plans of an instance, and what overlap changes."""
    problem = read_problem(path)
    costs = Costs(problem)
    rng = random.Random(path.stem)
    for name in SCHEDULES:
        best = best_placement(problem, name)
        if best is not None:
            yield from _of_plan(costs, best, "best", name)
        for sort in SORTS[1:]:
            for _ in range(draws):
                found = drawn_placement(rng, problem, name, even=sort == "even")
                if found is not None:
                    yield from _of_plan(costs, found, sort, name)


def _of_plan(
    costs: Costs, placement: Placement, sort: str, name: ScheduleName
) -> Iterator[Miss | Change]:
    evaluation = evaluate(costs, placement)
    operations = _operations(placement.schedule, placement.stages, evaluation.rounds)
    if operations > MOST_BEST:
        return
    orders = event_schedule(placement.schedule, placement.stages, evaluation.rounds)
    times = stage_times(costs, placement, evaluation)
    run = simulate(orders, times)
    for objective in OBJECTIVES:
        yield Miss(sort, name, objective, value_ps(evaluation, objective) / run.iteration_ps - 1)
    if sort == "best" and operations <= MOST_OVERLAPPED:
        for overlap, other in _overlapped(orders, times):
            yield Change(name, overlap, other.iteration_ps / run.iteration_ps - 1)


def _overlapped(
    orders: EventSchedule, times: Sequence[StageTimes]
) -> Iterator[tuple[str, Simulation]]:
    yield "hops delay", simulate(orders, times, hops="delay")
    yield "sync with the last backward", simulate(orders, times, sync="gradients")


@dataclass(frozen=True)
class Spread:
    """How some shares are spread."""

    cases: int
    exact: float
    above: float
    least: float
    low: float
    median: float
    high: float
    most: float
    size: float

    @classmethod
    def of(cls, shares: Sequence[float]) -> "Spread":
        """Return the spread: low and high are percentiles 10 and 90, size percentile 90 of |x|."""
        ordered, sizes = sorted(shares), sorted(map(abs, shares))
        tenth, last = [round(part * (len(shares) - 1)) for part in (0.1, 0.9)]
        return cls(
            len(shares),
            sum(share == 0 for share in shares) / len(shares),
            sum(share > 0 for share in shares) / len(shares),
            ordered[0],
            ordered[tenth],
            statistics.median(shares),
            ordered[last],
            ordered[-1],
            sizes[last],
        )


FIELDS = [field.name for field in fields(Spread)]


def table(heads: Sequence[str], rows: Mapping[tuple[str, ...], Sequence[float]]) -> str:
    """Return a table of spreads in Markdown."""
    columns = (*heads, "cases", "exact", "above", "least", "median", "most", "\\|90 %\\|")
    lines = [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
    for labels, shares in rows.items():
        s = Spread.of(shares)
        cells = (
            *labels,
            str(s.cases),
            f"{s.exact:.0%}",
            f"{s.above:.0%}",
            *(f"{share:+.1%}" for share in (s.least, s.median, s.most)),
            f"{s.size:.1%}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def draw(rows: Mapping[tuple[str, ...], Sequence[float]]) -> None:
    """Draw the spreads: a thin line from the least to the most, a thick one for eight in ten."""
    figure, axes = new_figure(7.5, 7.0)
    colours = dict(zip(SORTS, ("#0072b2", "#009e73", "#d55e00"), strict=True))
    names = list(dict.fromkeys((schedule, objective) for _, schedule, objective in rows))
    for place, sort in enumerate(SORTS):
        for row, name in enumerate(names):
            if (sort, *name) not in rows:
                continue
            spread, y = Spread.of(rows[sort, *name]), row + 0.25 * (place - 1)
            percent = [
                100 * share
                for share in (spread.least, spread.low, spread.median, spread.high, spread.most)
            ]
            colour = colours[sort]
            axes.plot([percent[0], percent[4]], [y, y], color=colour, linewidth=0.8)
            axes.plot([percent[1], percent[3]], [y, y], color=colour, linewidth=4, alpha=0.5)
            axes.plot(
                percent[2],
                y,
                "o",
                color=colour,
                markersize=4,
                label=None if row else f"{sort} plans",
            )
    axes.set_xscale("symlog", linthresh=1)
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_yticks(range(len(names)), [", ".join(name) for name in names])
    axes.invert_yaxis()
    axes.set_xlabel("(objective - simulated) / simulated, % (linear within 1 %)")
    axes.set_xticks(TICKS, [f"{tick:+d}" if tick else "0" for tick in TICKS])
    axes.minorticks_off()
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=len(SORTS), frameon=False)
    save_figure(figure, FIGURE)
    save_rows(
        FIGURE.with_suffix(".csv"),
        ("plans", "schedule", "objective", *FIELDS),
        (
            (*labels, *(f"{value:.6g}" for value in astuple(Spread.of(shares))))
            for labels, shares in rows.items()
        ),
    )


@click.command()
@click.option("--write", is_flag=True, help="Write the page's tables and the figure.")
@click.option("--draws", type=click.IntRange(1), default=1, help="Drawn plans of each sort.")
@click.option("--only", default="*", metavar="GLOB", help="Instances by name, without the size.")
def main(write: bool, draws: int, only: str) -> None:
    """Simulate all plans and print or write the tables."""
    misses: dict[tuple[str, ...], list[float]] = {
        labels: [] for labels in product(SORTS, SCHEDULES, OBJECTIVES)
    }
    changes: dict[tuple[str, ...], list[float]] = defaultdict(list)
    paths = sorted(path for size in DEVICES for path in FOLDER.glob(f"{only}-{size}.json"))
    with click.progressbar(paths, label="instances", file=sys.stderr) as shown:
        for path in shown:
            for found in results(path, draws):
                if isinstance(found, Miss):
                    misses[found.sort, found.schedule, found.objective].append(found.share)
                else:
                    changes[found.schedule, found.overlap].append(found.share)
    misses = {labels: shares for labels, shares in misses.items() if shares}
    text = (
        f"\n{table(('plans', 'schedule', 'objective'), misses)}\nWhat more or less overlap changes "
        f"in the time of the best plans, (other - simulated) / simulated:\n\n"
        f"{table(('schedule', 'overlap'), dict(sorted(changes.items())))}\n"
    )
    if not write:
        click.echo(text)
        return
    head, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    _, tail = rest.split(END)
    PAGE.write_text(head + BEGIN + text + END + tail, encoding="utf-8")
    draw(misses)


if __name__ == "__main__":
    main()
