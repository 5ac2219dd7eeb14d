"""Tables with one plan a row: the best plans, and the memory-time front."""

from collections.abc import Iterable, Iterator, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from nest_opt.api import RankedPlan, SolveResult
from nest_opt.cli.fitting import PlansTable
from nest_opt.cli.stage_table import by_stage
from nest_opt.cli.units import (
    bytes_text,
    change_text,
    count_text,
    exact_bytes_text,
    seconds_text,
)
from nest_opt.memory_front import FrontResult
from nest_opt.plan.plan import Plan
from nest_opt.problem.zero import zero_of

# Columns whose cells or heads have several words.
_SEVERAL_WORDS = ("zero", "schedule", "inner,\npitch", "least\nfree", "free on the\nfullest stage")
DEGREES = ("b", "tp", "cp", "ep", "sp", "dp", "pp")


def degree_names(plans: Iterable[Plan | None]) -> tuple[str, ...]:
    """Return the columns of a table of plans' degrees.

    `zero` is one where any shards anything, `schedule` where any is not 1F1B.
    """
    shown = [plan for plan in plans if plan]
    return (
        *DEGREES,
        *(("zero",) if any(zero_of(plan.zero) for plan in shown) else ()),
        *(("schedule",) if any(plan.schedule != "1f1b" for plan in shown) else ()),
    )


def degree_cells(plan: Plan, names: Sequence[str]) -> list[str]:
    """Return the cells under the columns of `degree_names`."""
    stages = plan.configurations
    return [
        str(plan.microbatch),
        by_stage([str(k.tp) for k in stages]),
        *map(str, (plan.cp, plan.ep)),
        by_stage(["on" if k.sp else "off" for k in stages]),
        *map(str, (plan.dp, len(stages))),
        *([str(zero_of(plan.zero))] if "zero" in names else []),
        *([_schedule_text(plan)] if "schedule" in names else []),
    ]


def _schedule_text(plan: Plan) -> str:
    """Return a plan's schedule, with its chunks as a factor."""
    schedule = plan.placement().schedule
    return f"{schedule.name} x{schedule.chunks}" if schedule.is_interleaved else schedule.name


def _map_text(plan: Plan) -> str:
    """Return what is inside in the rank order, pp or dp, and the pitch."""
    return f"{plan.order.removesuffix('-inner')} {plan.pitch}"


def _device_cells(plan: Plan) -> tuple[str, str]:
    return _map_text(plan), f"{plan.placement().device_map.devices_used:,}"


def plan_table(*columns: str) -> Table:
    """Return an empty table of these columns."""
    # One more column fits in 80 characters only if all are closer together.
    gap = 0 if "zero" in columns else 1
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, gap), collapse_padding=True)
    for name in columns:
        add_plan_column(table, name)
    return table


def add_plan_column(table: Table, name: str) -> None:
    """Add a column of a table of plans; those of several words fold before others are cut."""
    table.add_column(name, justify="right", no_wrap=name not in _SEVERAL_WORDS, overflow="fold")


def excess(each: RankedPlan, first: RankedPlan) -> float | None:
    """Return by how much a plan's value exceeds another's, as a share of that."""
    base = first.evaluation.value_ps
    return (each.evaluation.value_ps - base) / base if base else None


def ranking_report(result: SolveResult) -> Iterator[RenderableType]:
    """Yield a table of the best plans, and what is known of all others."""
    names = degree_names(each.plan for each in result.plans)
    yield PlansTable(
        lambda kept: plan_table(
            "#", "per batch", "change", *kept, "inner,\npitch", "devices", "least\nfree"
        ),
        names,
        [
            (
                (
                    str(rank),
                    seconds_text(each.evaluation.value_ps),
                    change_text(excess(each, result.plans[0])),
                ),
                degree_cells(each.plan, names),
                (*_device_cells(each.plan), bytes_text(each.free_bytes)),
            )
            for rank, each in enumerate(result.plans, start=1)
        ],
    )
    yield Text(_rest_text(result))
    yield Text()


def _rest_text(result: SolveResult) -> str:
    found = count_text(len(result.plans), "plan")
    if result.rest_bound_ps is None:
        return f"{found}: no other degrees or device maps have any"
    least = seconds_text(result.rest_bound_ps)
    return f"{found}: with other degrees or device maps none takes less than {least}"


def front_report(found: FrontResult) -> Iterator[RenderableType]:
    """Yield a table of the memory-time front, and what is known below it."""
    names = degree_names(each.plan for each in found.points)
    yield PlansTable(
        lambda kept: plan_table("memory", "per batch", "change", *kept, "inner,\npitch", "devices"),
        names,
        [
            (
                (
                    bytes_text(each.peak_bytes),
                    seconds_text(each.evaluation.value_ps),
                    change_text(excess(each, found.points[0])),
                ),
                degree_cells(each.plan, names),
                _device_cells(each.plan),
            )
            for each in found.points
        ],
    )
    yield Text(_below_text(found))
    yield Text()


def _below_text(found: FrontResult) -> str:
    """Return what is known of limits below the last point's memory."""
    peak = exact_bytes_text(found.points[-1].peak_bytes)
    about = f"front of {count_text(len(found.points), 'plan')}"
    after = "1 search" if found.searches == 1 else f"{found.searches:,} searches"
    if found.status == "complete":
        return f"{about}: nothing fits in less than {peak} on each device ({after})"
    if found.status == "capped":
        return (
            f"{about}, as many as were asked for: with less than {peak} on each device there are "
            f"slower plans, which --front-points shows more of ({after})"
        )
    return f"{about}, interrupted: of less than {peak} on each device nothing is known ({after})"
