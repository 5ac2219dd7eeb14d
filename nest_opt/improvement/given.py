"""The configuration that a user comes with: valued as it is, or why it is no plan."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from nest_opt.errors import InstanceError
from nest_opt.improvement.changes import Configuration
from nest_opt.improvement.dimensions import (
    BY_NAME,
    DIMENSIONS,
    NOT_CHANGED,
    RECOMPUTE,
    Held,
    known_values,
    values_of,
)
from nest_opt.improvement.spaces import Searches, space
from nest_opt.plan.check import check_form
from nest_opt.plan.evaluate import Costs, Evaluation
from nest_opt.plan.family import aligned_maps, outside_aligned, same_blocks
from nest_opt.plan.placement import DeviceMap, Placement
from nest_opt.plan.plan import Plan
from nest_opt.plan.violation import Violation
from nest_opt.problem import Configuration as Degrees
from nest_opt.problem import Problem
from nest_opt.problem.search import SearchSpace
from nest_opt.verbs.pipeline.result import RankedPlan, SolveResult
from nest_opt.verbs.pipeline.solve import solve_pipeline
from nest_opt.verbs.pipeline.verify import verify_pipeline

# Of a longer list of values, an error names the first ones and the last.
_SHOWN = 12


@dataclass(frozen=True)
class Given:
    """What the user's configuration is worth.

    Attributes
    ----------
    configuration
        What is held and, if it is legal, the plan.
    violations
        What a plan file breaks, or what degrees break whatever the rest.
    evaluation
        That of a plan file, legal or not, if its form allows one.
    search
        The search that found nothing that fits, with what is short; None for a
        plan file and for degrees that are refused before it.
    refusal
        Why these degrees could not be searched, in other cases.
    """

    configuration: Configuration
    violations: tuple[Violation, ...] = ()
    evaluation: Evaluation | None = None
    search: SolveResult | None = None
    refusal: str | None = None


def given_plan(plan: Plan) -> Given:
    """Value a plan as it is.

    Raises
    ------
    InstanceError
        If the plan is not one of its problem's search space, or has stages of
        different configurations.
    PlanError
        If the plan does not fit its problem.
    """
    costs, placement = Costs(plan.problem), plan.placement()
    _refuse_stages_that_differ(placement)
    verified = verify_pipeline(plan)
    placement = _named_as_in_family(costs, placement)
    held = {name: v for name, v in values_of(costs, placement).items() if v is not None}
    _refuse_unknown(plan.problem, {**held, "order": plan.problem.search.order[0]})
    evaluation = verified.evaluation
    if evaluation is None or verified.violations:
        return Given(Configuration(held, None), verified.violations, evaluation)
    outside = outside_aligned(costs, placement)
    if outside is not None:
        raise InstanceError(
            f"plan: found {outside}, which the search space does not have: widen "
            "problem.search, or let `nest-opt verify` alone evaluate the plan"
        )
    return Given(Configuration(held, RankedPlan(plan, evaluation)), (), evaluation)


def given_degrees(searches: Searches, stated: Mapping[str, Any]) -> Given:
    """Value the best plan that has the values stated.

    Raises
    ------
    InstanceError
        If the search space does not have a dimension, or a value.
    """
    problem = searches.problem
    held = {name: (value,) if name == RECOMPUTE else value for name, value in stated.items()}
    _refuse_unknown(problem, held)
    broken = _broken_form(problem, held)
    if broken:
        return Given(Configuration(held, None), broken)
    part = space(held)
    plan = searches.best(part)
    if plan is not None:
        return Given(Configuration(held, plan))
    try:
        why = solve_pipeline(part.of(problem))
    except InstanceError as error:
        return Given(Configuration(held, None), refusal=str(error))
    if why.status == "interrupted":
        raise KeyboardInterrupt
    return Given(Configuration(held, None), search=why)


def _refuse_stages_that_differ(placement: Placement) -> None:
    if not placement.is_uniform:
        found = "; ".join(sorted({str(k) for k in placement.configurations}))
        raise InstanceError(
            f"plan: found stages of {found}, one configuration for all of them is needed to "
            "change one thing at a time: give such a plan"
        )


def _refuse_unknown(problem: Problem, held: Held) -> None:
    """Refuse dimensions that there are not, and values that the search space does not have."""
    legal = [each.name for each in DIMENSIONS if each.searched]
    for name, value in held.items():
        if name not in BY_NAME:
            why = " (all stages are alike)" if name in NOT_CHANGED else ""
            raise InstanceError(
                f"configuration: found {name!r}, one of {', '.join(legal)} is needed{why}: "
                "correct the name, or leave it out"
            )
        searched = BY_NAME[name].searched
        known = known_values(problem, name) if searched else ()
        for each in searched(value) if searched else ():
            if each not in known:
                shown = known if len(known) <= _SHOWN else (*known[: _SHOWN - 1], "...", known[-1])
                has = ", ".join(map(_word, shown)) or "none of its own"
                raise InstanceError(
                    f"configuration: found {name} {_word(each)}, which the search space does not "
                    f"have (it has {has}): choose one of these, or widen problem.search.{name} "
                    f"(--fix {name}=...)"
                )


def _word(value: Any) -> str:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)


def _named_as_in_family(costs: Costs, placement: Placement) -> Placement:
    """Return a placement with the order and pitch that the family calls its device map by."""
    problem = costs.problem
    orders = sorted(problem.search.order, key=lambda order: order != placement.order)
    for order in orders:
        search = SearchSpace(order=(order,), pitch=problem.search.pitch)
        for member in _maps(costs, placement, search):
            if same_blocks(placement.device_map, member):
                return replace(placement, order=member.order, pitch=member.pitch, devices=None)
    return placement


def _maps(costs: Costs, placement: Placement, search: SearchSpace) -> list[DeviceMap]:
    return aligned_maps(
        costs.network.group_sizes,
        costs.problem.cluster.device_count,
        placement.configurations[0].block_size,
        placement.replicas,
        placement.stages,
        search,
    )


def _broken_form(problem: Problem, held: Held) -> tuple[Violation, ...]:
    """Return what degrees break whatever the others: the devices, and the batch if all are held."""

    def least(name: str) -> Any:
        return held[name] if name in held else min(known_values(problem, name))

    k = Degrees(least("tp"), least("cp"), least("ep"), least("sp"))
    stages, replicas = least("pp"), least("dp")
    layers = len(problem.model.ids)
    placement = Placement(
        least("microbatch"),
        (k,) * stages,
        replicas,
        "pp-inner",
        k.block_size * stages,
        (*range(1, stages), layers),
        ("none",) * stages,
    )
    streams = {"microbatch", "ep", "dp"} <= held.keys()
    told = {"devices", "batch"} if streams else {"devices"}
    return tuple(each for each in check_form(Costs(problem), placement) if each.rule in told)
