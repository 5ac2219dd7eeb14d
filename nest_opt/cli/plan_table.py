"""Tables with one plan a row: the best plans, and the memory-time front."""

from collections.abc import Iterator, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from nest_opt.api import RankedPlan, SolveResult
from nest_opt.cli.units import bytes_text, change_text, count_text, seconds_text
from nest_opt.plan.plan import Plan

DEGREES = ("b", "tp", "cp", "ep", "sp", "dp", "pp")


def degree_cells(plan: Plan) -> list[str]:
    """Return the cells under `DEGREES`."""
    return [
        *map(str, (plan.microbatch, plan.tp, plan.cp, plan.ep)),
        "on" if plan.sp else "off",
        *map(str, (plan.dp, len(plan.stages))),
    ]


def plan_table(*columns: str) -> Table:
    """Return an empty table of these columns."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1), collapse_padding=True)
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def excess(each: RankedPlan, first: RankedPlan) -> float | None:
    """Return by how much a plan's value exceeds another's, as a share of that."""
    base = first.evaluation.value_ps
    return (each.evaluation.value_ps - base) / base if base else None


def ranking_report(result: SolveResult, top: int) -> Iterator[RenderableType]:
    """Yield a table of the best plans, and what is known of all others."""
    if top == 1 or not result.plans:
        return
    table = plan_table(
        "rank", "per batch", "change", *DEGREES, "order and\npitch", "devices", "least\nfree"
    )
    for rank, each in enumerate(result.plans, start=1):
        plan = each.plan
        table.add_row(
            str(rank),
            seconds_text(each.evaluation.value_ps),
            change_text(excess(each, result.plans[0])),
            *degree_cells(plan),
            f"{plan.order} {plan.pitch}",
            f"{plan.placement().device_map.devices_used:,}",
            bytes_text(each.free_bytes),
        )
    yield table
    yield Text(_rest_text(result))
    yield Text()


def _rest_text(result: SolveResult) -> str:
    found = count_text(len(result.plans), "plan")
    if result.rest_bound_ps is None:
        return f"{found}: no other degrees or device maps have any"
    least = seconds_text(result.rest_bound_ps)
    return f"{found}: with other degrees or device maps none takes less than {least}"
