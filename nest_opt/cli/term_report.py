"""A plan's value, and cost and memory of every stage, term by term."""

from collections.abc import Iterator

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from nest_opt.cli.console import printable
from nest_opt.cli.explain import group_levels
from nest_opt.cli.stage_table import devices_text, layers_text
from nest_opt.cli.units import (
    bytes_text,
    count_text,
    exact_seconds_text,
    percent_text,
    time_text,
)
from nest_opt.cli.value import Term, fills_ps, formula, value_terms
from nest_opt.cost.schedule import drains
from nest_opt.plan.evaluate import Evaluation, StageEvaluation
from nest_opt.plan.plan import Plan

# Equal widths line up the stages' tables, one below the other.
_NAME_WIDTH = 25
_VALUE_WIDTH = 9


def term_by_term(plan: Plan, evaluation: Evaluation) -> Iterator[RenderableType]:
    """Yield the terms of the objective, then those of each stage."""
    yield _objective(plan, evaluation)
    for number, stage in enumerate(evaluation.stages):
        yield Text()
        yield _stage_title(plan, number, stage)
        yield _stage_terms(plan, evaluation, number)


def _term_table() -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold")
    return table


def _objective(plan: Plan, evaluation: Evaluation) -> RenderableType:
    """Return the objective's formula with the value of each term."""
    table = _term_table()
    table.add_row(
        Text("value".ljust(_NAME_WIDTH), style="bold"),
        Text(exact_seconds_text(evaluation.value_ps), style="bold"),
        f"{formula(evaluation.objective, evaluation.schedule)}, {_symbols(evaluation)}",
    )
    for term in value_terms(evaluation):
        table.add_row(f"  {term.name}", exact_seconds_text(term.value_ps), _of_stage(term))
    return table


def _symbols(evaluation: Evaluation) -> str:
    """Return what the letters of the formula are."""
    rounds, stages, schedule = evaluation.rounds, len(evaluation.stages), evaluation.schedule
    if schedule.is_interleaved:
        return f"with m = {rounds:,}, S = {stages:,} and v = {schedule.chunks:,}"
    text = f"with m = {rounds:,} and S = {stages:,}"
    return f"{text}, f = max(0, F - 2 W)" if schedule.name == "zb-h1" else text


def _of_stage(term: Term) -> str:
    """Return which stage a maximum comes from."""
    if not term.sizes_ps:
        return ""
    largest = max(term.sizes_ps)
    return f"{term.of} of stage {term.sizes_ps.index(largest)} is {time_text(largest)}"


def _stage_title(plan: Plan, number: int, stage: StageEvaluation) -> Text:
    names, sizes = plan.stages[number].layers, plan.stages[number].chunks
    return Text(
        f"stage {number}: {layers_text(names, sizes, plan.problem.model.index)} "
        f"({count_text(len(names), 'layer')}), "
        f"recompute {stage.recompute}",
        style="bold",
    )


def _stage_terms(plan: Plan, evaluation: Evaluation, number: int) -> Table:
    table = _term_table()
    stage = evaluation.stages[number]
    levels = group_levels(plan, stage)
    block = plan.placement().device_map.block(0, number)
    _add(table, "devices of replica 0", devices_text(block), count_text(len(block), "device"))
    _add(table, "F, time per microbatch", time_text(stage.time_ps), "")
    for name, value in stage.time_terms_ps.items():
        level = levels.get(name.removesuffix(" collectives"))
        _add(table, f"  {name}", time_text(value), _over(level))
    if evaluation.schedule.name == "zb-h1":
        weight, fill = stage.weight_gradient_ps, fills_ps(evaluation)[number]
        _add(table, "W, weight gradients", time_text(weight), "of the backward")
        _add(table, "f, fill", time_text(fill), "F less twice W, at least 0")
    _add(table, "Y, sync per batch", time_text(stage.sync_ps), "")
    for name, value in stage.sync_terms_ps.items():
        _add(table, f"  {name}", time_text(value), _over(levels.get(name)))
    if evaluation.objective == "fill-drain":
        note = f"Y less {time_text(stage.backward_before_ps)} of backward before it"
        if not drains(evaluation.schedule):
            note = "all of Y: the stages end at about the same time"
        _add(table, "X, exposed sync", time_text(stage.exposed_sync_ps), note)
    used, usable = stage.memory_bytes, stage.usable_bytes
    share = f"{percent_text(used, usable)} of {bytes_text(usable)} usable"
    _add(table, "memory on each device", bytes_text(used), share)
    for name, size in stage.memory_terms_bytes.items():
        flight = f"{stage.in_flight} in flight" + (
            ", each as the chunk with the largest" if evaluation.schedule.is_interleaved else ""
        )
        _add(table, f"  {name}", bytes_text(size), flight if name == "stash" else "")
    return table


def _add(table: Table, name: str, value: str, note: str) -> None:
    style = "" if name.startswith("  ") else "italic"
    table.add_row(
        Text(f"  {name}".ljust(_NAME_WIDTH), style=style),
        Text(value.rjust(_VALUE_WIDTH), style=style),
        note,
    )


def _over(level: str | None) -> str:
    return "" if level is None else f"over {printable(level)}"
