"""What `compare` prints: a row for each planner, their plans side by side, and why they differ."""

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from nest_opt.cli.console import printable
from nest_opt.cli.plan_table import plan_table
from nest_opt.cli.problem_summary import problem_text
from nest_opt.cli.stage_table import facts
from nest_opt.cli.term_table import term_cells, term_table
from nest_opt.cli.units import (
    bytes_text,
    change_text,
    gap_text,
    number_text,
    seconds_text,
)
from nest_opt.cli.value import sequences_per_s
from nest_opt.comparison import Comparison, PlanDiff
from nest_opt.improvement.dimensions import DIMENSIONS, values_of
from nest_opt.improvement.terms import TERMS, batch_terms
from nest_opt.plan.evaluate import Costs
from nest_opt.planners import Outcome


def comparison_report(
    found: Comparison, between: PlanDiff | None = None, pair: str | None = None
) -> Iterator[RenderableType]:
    """Yield the parts of the report.

    Parameters
    ----------
    found
        The comparison.
    between
        The difference of two plans.
    pair
        The names that were asked for it.
    """
    yield Text(problem_text(found.problem), style="bold")
    with_plan = [row for row in found.rows if row.plan]
    if with_plan:
        yield _values(found, with_plan)
        yield _side_by_side(found, with_plan)
        yield _terms(with_plan)
    yield facts(_remarks(found))
    if between is not None:
        yield Text()
        yield from _difference(between, {row.planner: row for row in with_plan})
    elif pair is not None:
        yield facts({"diff": f"{printable(pair)}: one of the two has no plan"})


def _values(found: Comparison, rows: Sequence[Outcome]) -> RenderableType:
    table = plan_table()
    table.add_column("planner", no_wrap=True)
    for name in ("per batch", "sequences/s", "gap", "devices", "least\nfree", "tried", "search"):
        table.add_column(name, justify="right", no_wrap=name != "least\nfree")
    for row in rows:
        if row.plan is None or row.evaluation is None or row.free_bytes is None:
            continue
        rate, gap = sequences_per_s(row.plan, row.evaluation), found.gap(row)
        table.add_row(
            row.planner,
            seconds_text(row.evaluation.value_ps),
            "" if rate is None else number_text(rate),
            "" if gap is None else gap_text(gap),
            f"{row.plan.placement().device_map.devices_used:,}",
            bytes_text(row.free_bytes),
            f"{row.tried:,}",
            # Of one width, whatever the machine.
            f"{row.wall_s:7.2f} s",
        )
    return table


def _side_by_side(found: Comparison, rows: Sequence[Outcome]) -> RenderableType:
    """Return what each plan decides, a planner a column; what is nowhere decided is left out."""
    costs = Costs(found.problem)
    table = plan_table()
    table.add_column("plans", no_wrap=True)
    values = []
    for row in rows:
        table.add_column(row.planner, overflow="fold")
        if row.plan:
            values.append(values_of(costs, row.plan.placement()))
    for dimension in DIMENSIONS:
        cells = [
            "" if each[dimension.name] is None else dimension.text(each[dimension.name])
            for each in values
        ]
        if any(cells):
            table.add_row(dimension.name, *cells)
    return table


def _terms(rows: Sequence[Outcome]) -> RenderableType:
    """Return a table of the batch times by causes."""
    table = term_table()
    for row in rows:
        if row.evaluation:
            table.add_row(row.planner, *term_cells(row.evaluation))
    return table


def _remarks(found: Comparison) -> dict[str, str]:
    """Return rows on what makes the differences to the best plan, and on planners without one."""
    remarks = {}
    for row in found.outcomes:
        if row.reason is not None:
            remarks[row.planner] = f"no plan: {printable(row.reason)}"
            continue
        between = found.diff("solve", row.planner)
        if between is not None:
            remarks[row.planner] = _mostly_text(between)
    if found.optimum.plan is None:
        remarks["solve"] = f"{found.optimum.status}: `nest-opt solve` says why"
    if found.status == "interrupted":
        remarks["end"] = "interrupted: some planners had no turn, or the bound is not the best"
    return remarks


def _mostly_text(between: PlanDiff) -> str:
    """Return by how much a plan is slower than the best, and the term that makes most of it."""
    if between.mostly is None:
        return "as good as the best plan"
    term = between.terms_ps[between.mostly]
    mostly = f"mostly {between.mostly} ({_change(term)})"
    return f"{_change(between.change_ps)} over the best plan, {mostly}"


def _change(change_ps: int) -> str:
    """Return seconds with their sign."""
    return f"{'+' if change_ps >= 0 else '-'}{number_text(abs(change_ps) / 10**12)} s"


def _difference(between: PlanDiff, rows: dict[str, Outcome]) -> Iterator[RenderableType]:
    """Yield what differs between two plans, and the terms of their batch times."""
    yield Text(f"diff: {between.before} -> {between.after}", style="bold")
    moves = ", ".join(str(move) for move in between.moves)
    yield facts({"decisions": printable(moves) or "the same"})
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    for _ in range(3):
        table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold")
    before, after = rows[between.before].evaluation, rows[between.after].evaluation
    if before is None or after is None:
        return
    old, new = batch_terms(before), batch_terms(after)
    table.add_row("", between.before, between.after, "change", "")
    for name in TERMS:
        if old[name] or new[name]:
            note = "most of it" if name == between.mostly else ""
            table.add_row(
                f"  {name}", *_seconds(old[name], new[name]), _change(between.terms_ps[name]), note
            )
    share = between.change_ps / before.value_ps if before.value_ps else None
    table.add_row(
        "per batch",
        *_seconds(before.value_ps, after.value_ps),
        _change(between.change_ps),
        change_text(share),
    )
    yield table


def _seconds(*times_ps: int) -> Iterator[str]:
    yield from (f"{number_text(time / 10**12)} s" for time in times_ps)
