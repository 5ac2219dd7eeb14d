"""Baselines beside the optimum: what each planner finds, and what makes the difference."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from nest_opt.errors import InstanceError
from nest_opt.improvement.dimensions import Move, moves, values_of
from nest_opt.improvement.terms import term_changes
from nest_opt.plan.evaluate import Costs, Evaluation
from nest_opt.plan.gap import relative_gap, value_of
from nest_opt.plan.plan import Plan
from nest_opt.planners import Outcome, Planner, ablations, planners
from nest_opt.planners.trials import refuse_other
from nest_opt.problem import Problem
from nest_opt.verbs.pipeline.result import SolveResult
from nest_opt.verbs.pipeline.solve import solve_pipeline
from nest_opt.verbs.pipeline.verify import verify_pipeline
from nest_opt.verbs.result import Progress

# The name of the search's own row.
SOLVE = "solve"


@dataclass(frozen=True)
class PlanDiff:
    """What differs between two plans of one problem, and what that costs.

    Attributes
    ----------
    before, after
        Names of the two.
    moves
        What of their degrees, stages and device maps differs.
    terms_ps
        By how much each term of the batch time is larger in the second; they
        add up to the difference of the values.
    change_ps
        That difference.
    """

    before: str
    after: str
    moves: tuple[Move, ...]
    terms_ps: dict[str, int]
    change_ps: int

    @property
    def mostly(self) -> str | None:
        """The term that makes most of the difference; None if the values are equal."""
        if self.change_ps == 0:
            return None
        sign = 1 if self.change_ps > 0 else -1
        return max(self.terms_ps, key=lambda name: sign * self.terms_ps[name])


@dataclass(frozen=True)
class Comparison:
    """What `compare` returns.

    Attributes
    ----------
    status
        `complete`, or `interrupted`: some planners had no turn, or the bound
        is that of a search cut short.
    optimum
        What `solve` found.
    outcomes
        What each planner found, in the order asked for.
    """

    problem: Problem
    status: Literal["complete", "interrupted"]
    optimum: SolveResult
    outcomes: tuple[Outcome, ...]

    @property
    def rows(self) -> tuple[Outcome, ...]:
        """The search's own answer as that of a planner, then the planners'."""
        optimum = self.optimum
        reason = None if optimum.plan else optimum.status
        own = Outcome(
            SOLVE,
            optimum.plan,
            optimum.evaluation,
            reason,
            optimum.cells - optimum.cells_pruned,
            optimum.wall_s,
        )
        return (own, *self.outcomes)

    def gap(self, outcome: Outcome) -> float | None:
        """Return (value - bound) / value, None without a plan.

        It is negative if a planner of one's own leaves the family and is better.
        """
        return relative_gap(value_of(outcome.evaluation), self.optimum.bound_ps)

    def diff(self, before: str, after: str) -> PlanDiff | None:
        """Return what differs between the plans of two rows, None if one has none.

        Raises
        ------
        InstanceError
            If there is no such row.
        """
        known = {outcome.planner: outcome for outcome in self.rows}
        for name in (before, after):
            if name not in known:
                raise InstanceError(
                    f"diff: found {name!r}, one of these is needed: {', '.join(known)}: "
                    "correct it, or add it to the planners"
                )
        one, other = known[before], known[after]
        if not (one.plan and one.evaluation and other.plan and other.evaluation):
            return None
        return diff(before, (one.plan, one.evaluation), after, (other.plan, other.evaluation))


def compare(
    problem: Problem,
    names: Sequence[str | Planner] | None = None,
    *,
    seed: int = 0,
    budget: int | None = None,
    progress: Progress | None = None,
    watch: Callable[[str], None] | None = None,
) -> Comparison:
    """Run planners on a problem, and hold their plans against the optimum.

    Parameters
    ----------
    problem
        A pipeline under the default cost model.
    names
        Of baselines and ablations, or planners of one's own; all baselines if None.
    seed, budget
        Of the planners that draw.
    progress
        Called as by `solve`, whose search comes first.
    watch
        Called with the name of each planner before its turn.

    Raises
    ------
    InstanceError
        If there is no such planner, or the problem is one that planners or
        search refuse.
    """
    chosen = _chosen(planners(seed, budget), ablations(), names)
    refuse_other(problem)
    if budget is not None and budget < 1:
        raise InstanceError(f"budget: found {budget}, 1 at least is needed: raise it")
    optimum = solve_pipeline(problem, progress)
    outcomes: list[Outcome] = []
    status: Literal["complete", "interrupted"] = "complete"
    if optimum.cut_short:
        status = "interrupted"
    try:
        for planner in chosen if status == "complete" else ():
            if watch:
                watch(planner.name)
            outcomes.append(_checked(planner.plan(problem)))
    except KeyboardInterrupt:
        status = "interrupted"
    return Comparison(problem, status, optimum, tuple(outcomes))


def _chosen(
    baselines: dict[str, Planner],
    others: dict[str, Planner],
    names: Sequence[str | Planner] | None,
) -> list[Planner]:
    """Return the planners of some names, and those that are given, in their order."""
    if names is None:
        return list(baselines.values())
    known, chosen = {**baselines, **others}, []
    for each in names:
        if isinstance(each, str) and each not in known:
            raise InstanceError(
                f"planners: found {each!r}, the planners are {', '.join(known)}: correct it"
            )
        chosen.append(known[each] if isinstance(each, str) else each)
    for planner in chosen:
        if planner.name == SOLVE or [other.name for other in chosen].count(planner.name) > 1:
            raise InstanceError(
                f"planners: found {planner.name!r} twice, once is allowed: remove one, or give it "
                "another name"
            )
    return chosen


def _checked(outcome: Outcome) -> Outcome:
    """Return an outcome with the plan evaluated and checked anew; without it if it is illegal."""
    if outcome.plan is None:
        return outcome
    verified = verify_pipeline(outcome.plan)
    if verified.violations:
        reason = f"its plan is illegal: {verified.violations[0]}"
        return replace(outcome, plan=None, evaluation=None, reason=reason)
    return replace(outcome, evaluation=verified.evaluation)


def diff(
    before: str, one: tuple[Plan, Evaluation], after: str, other: tuple[Plan, Evaluation]
) -> PlanDiff:
    """Return what differs between two plans of one problem, given with their evaluations."""
    (plan, evaluation), (second, second_evaluation) = one, other
    costs = Costs(plan.problem)
    return PlanDiff(
        before,
        after,
        moves(costs, values_of(costs, plan.placement()), second.placement()),
        term_changes(evaluation, second_evaluation),
        second_evaluation.value_ps - evaluation.value_ps,
    )
