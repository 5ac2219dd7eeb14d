"""What is said of `--what-if`: a table with one row for each question."""

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from rich.box import SIMPLE_HEAD
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from nest_opt.api import SolveResult
from nest_opt.cli.console import printable
from nest_opt.cli.explain import failure, shortage_text
from nest_opt.cli.fitting import PlansTable
from nest_opt.cli.plan_table import add_plan_column, degree_cells, degree_names
from nest_opt.cli.stage_table import facts
from nest_opt.cli.units import bytes_text, change_text, seconds_text
from nest_opt.cli.what_if import WhatIf
from nest_opt.plan.evaluate import Evaluation, StageEvaluation

_Cells: TypeAlias = tuple[Sequence[str], Sequence[str], Sequence[str]]
_NO_PLAN: _Cells = (("none", ""), (), ("",))
_BEST = "(best plan)"


def what_if_report(best: SolveResult, answers: Sequence[WhatIf]) -> Iterator[RenderableType]:
    """Yield a table of the best plan and of every answer, and why some have no plan."""
    if not answers:
        return
    results = [best, *(answer.result for answer in answers if answer.result)]
    names = degree_names(result.plan for result in results)
    rows = [(_BEST, _cells(best, None, names))]
    for answer in answers:
        result = answer.result
        cells = _NO_PLAN if result is None else _cells(result, best.evaluation, names)
        rows.append((printable(answer.question.text), cells))
    yield PlansTable(
        _table,
        names,
        [((text, *before), degrees, after) for text, (before, degrees, after) in rows],
    )
    reasons = {
        printable(answer.question.text): reason
        for answer in answers
        if (reason := no_plan_text(answer))
    }
    if reasons:
        yield facts(reasons)
        yield Text()


def no_plan_text(answer: WhatIf) -> str | None:
    """Return why an answer has no plan, None if it has one."""
    if answer.result is None:
        return printable(str(answer.error))
    if answer.result.status == "infeasible":
        result = answer.result
        return f"infeasible: {shortage_text(failure(result))}"
    return None if answer.result.plan else "interrupted: no plan yet"


def change(result: SolveResult, best: Evaluation | None) -> float | None:
    """Return by how much a plan's value exceeds the best plan's, as a share of that."""
    if result.evaluation is None or best is None or best.value_ps == 0:
        return None
    return (result.evaluation.value_ps - best.value_ps) / best.value_ps


def fullest_stage(evaluation: Evaluation) -> tuple[int, StageEvaluation]:
    """Return number and evaluation of the stage that leaves the least memory free."""
    number = max(
        range(len(evaluation.stages)), key=lambda stage: evaluation.stages[stage].memory_bytes
    )
    return number, evaluation.stages[number]


def _table(names: Sequence[str]) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1), collapse_padding=True)
    table.add_column("what if", overflow="fold", min_width=len(_BEST))
    for name in ("per batch", "change", *names, "free on the\nfullest stage"):
        add_plan_column(table, name)
    return table


def _cells(result: SolveResult, best: Evaluation | None, names: Sequence[str]) -> _Cells:
    """Return the cells of a row before the degrees, theirs, and that after them."""
    plan, evaluation = result.plan, result.evaluation
    if plan is None or evaluation is None:
        return _NO_PLAN
    _, stage = fullest_stage(evaluation)
    return (
        (seconds_text(evaluation.value_ps), change_text(change(result, best))),
        degree_cells(plan, names),
        (bytes_text(stage.usable_bytes - stage.memory_bytes),),
    )
