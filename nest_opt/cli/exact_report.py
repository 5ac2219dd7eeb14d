"""What `exact` prints, and `verify --exact` besides."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from rich.console import RenderableType
from rich.text import Text

from nest_opt.api import ExactResult, VerifyResult, outside_family
from nest_opt.cli.explain import failure
from nest_opt.cli.solve_report import conflict_facts, headline, infeasible_report
from nest_opt.cli.stage_table import degree_facts, facts, speed_facts, stage_table
from nest_opt.cli.tally import tally_text
from nest_opt.cli.units import gap_text, seconds_text
from nest_opt.plan.evaluate import Evaluation
from nest_opt.plan.gap import relative_gap
from nest_opt.plan.plan import Plan

_VOUCHERS = {
    "solver": "the solver, HiGHS",
    "closed form": "closed-form bounds of the cells; no program was run",
    "dynamic program": "the dynamic program alone: the integer programs did not come to an end",
}
_WHY_NO_PLAN = {
    "interrupted": "interrupted: no plan yet",
    "no-solution": "no-solution: the time limit came before any plan",
}


def exact_report(
    result: ExactResult,
    output: Path | None = None,
    about: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[RenderableType]:
    """Yield the parts of the report on an exact search; `about` are rows on the problem."""
    if result.status == "infeasible":
        yield from _no_plan(result)
    elif result.plan is None or result.evaluation is None:
        yield Text(_WHY_NO_PLAN[result.status], style="bold")
    else:
        yield from _found(result, result.plan, result.evaluation)
    last = {**about, "proof by": _voucher_text(result), "solve": _start_text(result)}
    last["search"] = _search_text(result)
    if result.plan is not None and result.plan.objective is None:
        # Found under costs that a plan cannot claim.
        last["costs"] = (
            "those of pairs: each transfer alone on its route; `solve` and `verify` value plans by "
            "the graph's levels"
        )
    if output and result.plan:
        last["written"] = str(output)
    yield facts(last)


def _no_plan(result: ExactResult) -> Iterator[RenderableType]:
    same = replace(result.start, conflict=result.conflict)
    why = failure(same)
    if result.family == "aligned" or why.stage is not None:
        yield from infeasible_report(same, why)
        return
    # That memory would not help is known of the aligned family alone.
    yield Text.assemble(("infeasible: ", "bold red"), ("the free family has no plan", "bold"))
    yield from conflict_facts(result.problem, result.conflict)


def optimum_report(
    verified: VerifyResult, results: Sequence[ExactResult], skipped: str | None = None
) -> Iterator[RenderableType]:
    """Yield what is known of a plan's distance from the best plan of each family.

    `skipped` says why the free family was not searched.
    """
    if not results or verified.evaluation is None:
        yield Text()
        yield facts({"optimum": "not searched: the plan is not legal, so it has no gap"})
        return
    for result in results:
        yield Text()
        yield from _family_report(verified, verified.evaluation.value_ps, result)
    if skipped and len(results) == 1:
        yield Text()
        yield facts({"free": skipped})


def _family_report(
    verified: VerifyResult, value_ps: int, result: ExactResult
) -> Iterator[RenderableType]:
    found = outside_family(verified, result)
    rows = {
        "gap": _plan_gap_text(value_ps, result),
        "family": f"{result.family}, "
        + ("and the plan is a member" if found is None else f"and the plan is outside it: {found}"),
    }
    rows["optimum"] = _optimum_text(result)
    rows["solve"] = _start_text(result)
    rows["bound"] = "none" if result.bound_ps is None else seconds_text(result.bound_ps)
    rows["proof by"] = _voucher_text(result)
    rows["search"] = _search_text(result)
    yield facts(rows)


def _found(result: ExactResult, plan: Plan, evaluation: Evaluation) -> Iterator[RenderableType]:
    yield headline(result.status, plan, evaluation)
    yield facts(
        {"bound": _bound_text(result), **speed_facts(plan, evaluation), **degree_facts(plan)}
    )
    yield stage_table(plan, evaluation)


def _bound_text(result: ExactResult) -> str:
    if result.bound_ps is None or result.gap is None:
        return "none"
    text = f"{seconds_text(result.bound_ps)}, gap {gap_text(result.gap)}"
    than = "" if result.gap == 0 else " than the bound"
    return f"{text}: no plan of the {result.family} family is faster{than}"


def _plan_gap_text(value_ps: int, result: ExactResult) -> str:
    gap, family = relative_gap(value_ps, result.bound_ps), result.family
    if gap is None:
        return f"none: the {family} family has no plan"
    if gap < 0:
        return f"{gap_text(gap)}: faster than every plan of the {family} family"
    if gap == 0:
        return f"0%: no plan of the {family} family is faster"
    return f"at most {gap_text(gap)} of its time could be saved within the {family} family"


def _optimum_text(result: ExactResult) -> str:
    if result.evaluation is None:
        return f"{result.status}, no plan"
    return f"{result.status}, {seconds_text(result.evaluation.value_ps)}"


def _voucher_text(result: ExactResult) -> str:
    text = _VOUCHERS[result.bound_vouched_by]
    if result.exact_units:
        return text
    return f"{text}, up to a relative tolerance of 1e-6"


def _start_text(result: ExactResult) -> str:
    start = result.start
    if start.evaluation is None:
        return f"{start.status}, no plan"
    return f"{start.status}, {seconds_text(start.evaluation.value_ps)}"


def _search_text(result: ExactResult) -> str:
    return tally_text(result, result.wall_s)
