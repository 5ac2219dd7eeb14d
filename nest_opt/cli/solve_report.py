"""What `solve` prints."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from nest_opt.api import LinkRanking, SolveResult
from nest_opt.cli.explain import Failure, conflict_text, failure, shortage_text
from nest_opt.cli.plan_table import front_report, ranking_report
from nest_opt.cli.retiming import link_ranking_facts, retiming_facts
from nest_opt.cli.stage_table import (
    LABEL_WIDTH,
    degree_facts,
    facts,
    layers_text,
    shape_text,
    speed_facts,
    stage_table,
)
from nest_opt.cli.term_report import term_by_term
from nest_opt.cli.units import (
    bytes_text,
    count_text,
    exact_bytes_text,
    gap_text,
    number_text,
    percent_text,
    seconds_text,
)
from nest_opt.cli.value import sequences_per_s
from nest_opt.cli.what_if import WhatIf
from nest_opt.cli.what_if_report import what_if_report
from nest_opt.conflicts import Conflict
from nest_opt.cost.units import to_s
from nest_opt.memory_front import FrontResult
from nest_opt.plan.evaluate import Evaluation, StageEvaluation
from nest_opt.plan.plan import Plan
from nest_opt.problem import Problem

_JUSTIFY: tuple[Literal["left", "right"], ...] = ("left", "right", "right", "right")
_STYLES = {"optimal": "bold green", "infeasible": "bold red"}


def solve_report(
    result: SolveResult,
    output: Path | None = None,
    *,
    explain: bool = False,
    answers: Sequence[WhatIf] = (),
    ranked: bool = False,
    front: FrontResult | None = None,
    about: Mapping[str, str] = MappingProxyType({}),
    fewest: str | None = None,
) -> Iterator[RenderableType]:
    """Yield the parts of the report on a search.

    Parameters
    ----------
    explain
        Whether to give every term of the plan's cost and memory.
    answers
        To `--what-if`.
    ranked
        Whether to list the best plans.
    front
        The memory-time front, to be listed if there is one.
    about
        Rows on where the problem comes from.
    fewest
        What is known of the number of devices, beyond the diagnosis.
    """
    if result.status == "infeasible":
        yield from infeasible_report(result, failure(result), fewest)
    elif result.status == "relaxed":
        yield from _broken(result)
    elif result.plan is None or result.evaluation is None:
        yield Text("interrupted: no plan yet", style="bold")
    else:
        yield from _found(result, result.plan, result.evaluation)
        if explain:
            yield from term_by_term(result.plan, result.evaluation)
            yield Text()
    if ranked and result.plans:
        yield from ranking_report(result)
    if front and front.points:
        yield from front_report(front)
    yield from what_if_report(result.by_levels, answers)
    last = {**about, "search": _search_text(result)}
    if output and result.plan:
        last["written"] = str(output)
    yield facts(last)


def headline(status: str, plan: Plan, evaluation: Evaluation) -> Text:
    """Return status, value, objective and throughput."""
    rate = sequences_per_s(plan, evaluation)
    speed = "a batch takes no time" if rate is None else f"{number_text(rate)} sequences/s"
    text = Text(f"{status}: ", style=_STYLES.get(status, "bold"))
    value = f"{seconds_text(evaluation.value_ps)} per batch (objective {evaluation.objective})"
    return text.append(f"{value}, {speed}", style="bold")


def _found(result: SolveResult, plan: Plan, evaluation: Evaluation) -> Iterator[RenderableType]:
    attained = evaluation
    if result.links:
        attained = replace(evaluation, value_ps=result.links.plans[0].links_ps)
        yield _links_headline(result, plan, result.links)
    else:
        yield headline(result.status, plan, evaluation)
    rows = {
        "bound": _bound_text(result),
        **(link_ranking_facts(result.links) if result.links else {}),
        **speed_facts(plan, attained),
        **degree_facts(plan),
        **retiming_facts(plan, evaluation),
    }
    if result.relaxed:
        rows["left out"] = (
            f"constraints {', '.join(sorted(set(result.relaxed)))} have no rule in the search; "
            "the plan keeps them"
        )
    yield facts(rows)
    yield stage_table(plan, evaluation)


def _links_headline(result: SolveResult, plan: Plan, links: LinkRanking) -> Text:
    """Return status, and value and throughput on the links."""
    text = Text(f"{result.status.replace('-', ' ')}: ", style="bold")
    value_ps = links.plans[0].links_ps
    objective = links.plans[0].evaluation.objective
    speed = "a batch takes no time"
    if value_ps:
        speed = f"{number_text(plan.problem.job.global_batch / to_s(value_ps))} sequences/s"
    value = f"{seconds_text(value_ps)} per batch on its links (objective {objective})"
    return text.append(f"{value}, {speed}", style="bold")


def _broken(result: SolveResult) -> Iterator[RenderableType]:
    """Yield what the best plan without the constraints left out breaks, and its bound."""
    names = ", ".join(sorted(set(result.relaxed)))
    yield Text(f"relaxed: the best plan without {names} breaks it", style="bold")
    bound = "none" if result.bound_ps is None else seconds_text(result.bound_ps)
    yield facts(
        {
            "bound": f"{bound}: no plan of the aligned family is faster",
            "broken": "\n".join(map(str, result.broken)),
            "to solve": "give the constraint a rule for the search (docs/adding_a_constraint.md)",
        }
    )


def _bound_text(result: SolveResult) -> str:
    if result.bound_ps is None or result.gap is None:
        return "none"
    text = f"{seconds_text(result.bound_ps)}, gap {gap_text(result.gap)}"
    if result.links:
        return f"{text}, both by levels: none is proved for the links"
    if result.gap == 0:
        return f"{text}: no plan of the aligned family is faster"
    return f"{text}: no plan of the aligned family is faster than the bound"


def _search_text(result: SolveResult) -> str:
    return (
        f"{count_text(result.cells, 'cell')}, {result.cells_pruned:,} pruned, "
        f"{number_text(result.wall_s, 3)} s"
    )


def infeasible_report(
    result: SolveResult, why: Failure, fewest: str | None = None
) -> Iterator[RenderableType]:
    """Yield why there is no plan, and what would help."""
    if why.stage is None or why.case is None:
        yield _no_placement(result.problem, why, fewest)
        yield from conflict_facts(result.problem, why.conflict)
        return
    stage, case = why.stage, why.case
    yield Text.assemble(("infeasible: ", "bold red"), (shortage_text(why), "bold"))
    names = layers_text(why.layers, index=result.problem.model.index)
    shape = shape_text(case.microbatch, why.configurations, case.replicas, case.zero)
    yield facts(
        {
            "closest": f"{shape}: {_closeness_text(why)}",
            "stage": f"{why.stage_number}: {names} ({count_text(len(why.layers), 'layer')}), "
            f"recompute {stage.recompute}",
        }
    )
    yield _memory_terms(stage)
    yield facts({"to fit": "\n".join(_remedies(result, why, fewest))})
    yield from conflict_facts(result.problem, why.conflict)


def conflict_facts(problem: Problem, conflict: Conflict | None) -> Iterator[RenderableType]:
    """Yield which requirements together leave no plan, unless that is told already."""
    told = conflict_text(problem, conflict)
    if told is not None:
        yield facts({"conflict": told})


def _closeness_text(why: Failure) -> str:
    if why.complete:
        return "no plan of the aligned family needs less"
    return "the closest found before the search was interrupted"


def _memory_terms(stage: StageEvaluation) -> Table:
    """Return a table of a stage's memory terms, in bytes and as shares of the usable ones."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold")
    for justify in _JUSTIFY:
        table.add_column(justify=justify, no_wrap=True)
    rows = {**stage.memory_terms_bytes, "sum": stage.memory_bytes, "usable": stage.usable_bytes}
    for place, (name, size) in enumerate(rows.items()):
        table.add_row(
            ("" if place else "memory").ljust(LABEL_WIDTH),
            f"{name} ({stage.in_flight} in flight)" if name == "stash" else name,
            bytes_text(size),
            f"{size:,} bytes",
            percent_text(size, stage.usable_bytes),
        )
    return table


def _no_placement(problem: Problem, why: Failure, fewest: str | None) -> Text:
    text = Text("infeasible: ", style="bold red")
    text.append(shortage_text(why), style="bold")
    if why.reason == "unknown":
        return text
    if fewest is not None:
        return text.append(f"; {fewest}")
    if why.devices is not None:
        more = f"; on {count_text(why.devices, 'device')} in a larger network there is one"
        return text.append(more)
    text.append("; allow more degrees, or take a constraint away")
    if problem.search.schedule == ("interleaved",):
        text.append(
            " (an interleaved schedule takes 2 stages or more, a multiple of them in rounds, and "
            "no more chunks than layers)"
        )
    return text


def _remedies(result: SolveResult, why: Failure, fewest: str | None) -> Iterator[str]:
    cluster = result.problem.cluster
    if why.memory_bytes is not None:
        yield (
            f"devices with {exact_bytes_text(why.memory_bytes)} of memory or more instead of "
            f"{bytes_text(cluster.device_kind.memory_bytes)}"
        )
    if fewest is not None:
        yield fewest
    elif why.devices is not None:
        yield (
            f"or {count_text(why.devices, 'device')} or more like these, in a larger network, "
            f"instead of {cluster.device_count:,}"
        )
    else:
        yield "(no number of devices is known to help by itself)"
