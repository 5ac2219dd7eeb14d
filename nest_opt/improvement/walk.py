"""`improve`: what to change first of a configuration, what then, and how far the optimum is."""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, Literal

from nest_opt.dp.rules import relaxed_constraints
from nest_opt.errors import InstanceError
from nest_opt.improvement.changes import (
    Change,
    Configuration,
    both,
    change,
    described,
    open_dimensions,
    single_changes,
)
from nest_opt.improvement.dimensions import held_after
from nest_opt.improvement.given import Given, given_degrees, given_plan
from nest_opt.improvement.spaces import Searches
from nest_opt.plan.evaluate import Costs
from nest_opt.plan.graph_plan import GraphPlan
from nest_opt.plan.plan import Plan
from nest_opt.problem import Problem
from nest_opt.verbs.pipeline.result import RankedPlan, SolveResult
from nest_opt.verbs.pipeline.solve import solve_pipeline
from nest_opt.verbs.result import Progress

Status = Literal["complete", "infeasible", "interrupted"]


@dataclass(frozen=True)
class Improvement:
    """What `improve` returns.

    Attributes
    ----------
    problem
        The problem, whose search space the changes are in.
    status
        `complete`; `infeasible` if the whole search space has no plan;
        `interrupted` by a KeyboardInterrupt, with what was found until then.
    given
        The configuration and its value, or why it is no plan.
    changes
        The best plan of each single change, that of the least value first; those
        without a plan last.
    path
        Changes one after the other, each the best single one of where the last
        one led, until none saves time. Where the configuration fits nowhere and
        no single change makes it fit, the first are two at once.
    optimum
        The best plan of the whole search space; None if interrupted before it.
    rest
        What differs between the end of the path and the optimum; None if they
        are equally good.
    searches, wall_s
        How many searches there were besides the optimum's, and all seconds.
    """

    problem: Problem
    status: Status
    given: Given
    changes: tuple[Change, ...]
    path: tuple[Change, ...]
    optimum: SolveResult | None
    rest: Change | None
    searches: int
    wall_s: float

    @property
    def before_ps(self) -> int | None:
        """The batch time of the configuration, None where it is no plan."""
        return self.given.configuration.value_ps

    @property
    def gap_ps(self) -> int | None:
        """By how much the configuration's batch time exceeds the optimum's."""
        best = self.optimum.evaluation if self.optimum else None
        if self.before_ps is None or best is None:
            return None
        return self.before_ps - best.value_ps

    def closed(self, after: Change) -> float | None:
        """Return the share of that gap which is closed after a change."""
        if not self.gap_ps or self.before_ps is None or after.value_ps is None:
            return None
        return (self.before_ps - after.value_ps) / self.gap_ps


def improve(
    subject: Problem | Plan | GraphPlan,
    configuration: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> Improvement:
    """Find what to change first of a configuration, what then, and how far the optimum is.

    Parameters
    ----------
    subject
        A plan; or a problem, of which `configuration` states a configuration.
    configuration
        Values of dimensions by the names of `problem.search`, as in
        `{"tp": 8, "pp": 16, "recompute": "full"}`. What it does not state
        takes the best values there are, before and after each change.
    progress
        Called with (changes done, changes, least batch time in ps or None), anew
        for each step; at first as by `solve`.

    Raises
    ------
    InstanceError
        If the configuration is not in the search space; as by `solve`; or if
        the problem is a placement graph, has the artifact's cost model, or a
        constraint that the search has no rule for.
    PlanError
        If a plan does not fit its problem.
    """
    begin = time.perf_counter()
    if isinstance(subject, GraphPlan):
        raise _refused("a placement graph's plan", "a pipeline's")
    problem = subject.problem if isinstance(subject, Plan) else subject
    _check(problem)
    searches = Searches(problem)
    given = _given(subject, searches, configuration)
    walk = _Walk(problem, searches, given, progress)
    try:
        walk.run()
    except KeyboardInterrupt:
        walk.status = "interrupted"
    return Improvement(
        problem=problem,
        status=walk.status,
        given=given,
        changes=tuple(walk.changes),
        path=tuple(walk.path),
        optimum=walk.optimum,
        rest=walk.rest(),
        searches=walk.searches.done,
        wall_s=time.perf_counter() - begin,
    )


def _check(problem: Problem) -> None:
    """Refuse problems whose plans are not changed one dimension at a time."""
    if problem.is_placement_graph:
        raise _refused("a placement graph", "a pipeline")
    if problem.job.cost_model == "artifact":
        raise _refused("job.cost_model artifact", "default")
    if problem.search.layer_order == "any":
        # Boundaries are held as ends in the listed order.
        raise _refused("search.layer_order any", "listed")
    left_out = relaxed_constraints(problem)
    if left_out:
        raise InstanceError(
            f"improve: found constraint {left_out[0]}, which has no rule in the search: give it "
            "one (docs/adding_a_constraint.md), or remove it"
        )


def _refused(found: str, needed: str) -> InstanceError:
    return InstanceError(
        f"improve: found {found}, {needed} is needed: use `nest-opt solve` or `verify` for this one"
    )


def _given(
    subject: Problem | Plan, searches: Searches, configuration: Mapping[str, Any] | None
) -> Given:
    if isinstance(subject, Plan):
        if configuration is not None:
            raise InstanceError(
                "improve: found a configuration beside a plan, one of the two is allowed: leave "
                "it out, or give the plan's problem"
            )
        return given_plan(subject)
    if not configuration:
        raise InstanceError(
            "improve: found a problem without a configuration, one is needed: state it, as in "
            "tp=8,pp=4,dp=2, or give a plan"
        )
    return given_degrees(searches, configuration)


@dataclass
class _Walk:
    """The search for single changes, from the given configuration on."""

    problem: Problem
    searches: Searches
    given: Given
    progress: Progress | None
    status: Status = "complete"
    optimum: SolveResult | None = None
    changes: list[Change] = field(default_factory=list)
    path: list[Change] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.costs = Costs(self.problem)
        self.place = self.given.configuration

    def run(self) -> None:
        """Find the optimum, then the changes of each step."""
        self.optimum = solve_pipeline(self.problem, self.progress)
        if self.optimum.status == "interrupted":
            raise KeyboardInterrupt
        if self.optimum.plan is None:
            self.status = "infeasible"
            return
        first = single_changes(self.problem, self.place.held)
        self._find(first, self.changes)
        best = self.changes[0] if self.changes else None
        if self.place.plan is None and (best is None or not best.helps):
            best = self._two_at_once()
        while best is not None and best.helps:
            self._take(best)
            if self.place.value_ps == self._least_ps:
                return
            found: list[Change] = []
            self._find(single_changes(self.problem, self.place.held), found)
            best = found[0] if found else None

    @property
    def _least_ps(self) -> int | None:
        evaluation = self.optimum.evaluation if self.optimum else None
        return evaluation.value_ps if evaluation else None

    def _two_at_once(self) -> Change | None:
        found: list[Change] = []
        names = open_dimensions(self.problem, self.place.held)
        self._find(combinations(names, 2), found, of=both)
        return found[0] if found else None

    def _find(
        self,
        released: Iterable[tuple[str, ...]],
        found: list[Change],
        of: Callable[[Costs, Searches, Configuration, tuple[str, ...]], Change] = change,
    ) -> None:
        """Find changes of where the walk is, best first, those found so far if interrupted."""
        every = list(released)
        values = [self.place.value_ps] if self.place.value_ps is not None else []
        try:
            for number, names in enumerate(every):
                if self.progress:
                    self.progress(number, len(every), min(values, default=None))
                found.append(of(self.costs, self.searches, self.place, names))
                values += [found[-1].value_ps] if found[-1].value_ps is not None else []
        finally:
            found.sort(key=_rank)

    def _take(self, best: Change) -> None:
        assert best.plan is not None
        self.path.append(best)
        placement = best.plan.plan.placement()
        held = held_after(self.costs, self.place.held, placement)
        self.place = Configuration(held, best.plan)

    def rest(self) -> Change | None:
        """Return what differs between where the walk is and the optimum, if that is better."""
        found = self.optimum
        if found is None or found.plan is None or found.evaluation is None:
            return None
        if found.status == "interrupted" or self.place.value_ps == found.evaluation.value_ps:
            return None
        plan = RankedPlan(found.plan, found.evaluation)
        return described(self.costs, self.place, (), plan)


def _rank(found: Change) -> tuple[object, ...]:
    """Return a change's place: least value, then least that is released."""
    value = found.value_ps
    return (value is None, value or 0, len(found.released), len(found.moves))
