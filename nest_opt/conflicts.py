"""Which requirements rule out every plan: a minimal set of those that a problem could do without.

Found by deletion filtering (Chinneck and Dravnieks 1991): of the requirements of a
problem without a plan, each in turn is left out for good if the others still
leave no plan. What is kept has no plan, and any fewer of it have one.

Requirements are memory, the batch (microbatch * ep * dp divides it; without this
the last round is padded), and each constraint. Search space and devices are no
requirements: they say what the problem is about.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import TypeAlias

from nest_opt.dp.chain import UNLIMITED
from nest_opt.dp.default_source import DefaultSource
from nest_opt.dp.needs import fits
from nest_opt.dp.rules import RULES
from nest_opt.dp.source import CellSource
from nest_opt.dp.sources import cell_source
from nest_opt.dp.staged_infeasible import staged_fits
from nest_opt.dp.staged_search import search_all
from nest_opt.errors import ConsistencyError
from nest_opt.milp.result import FamilyName
from nest_opt.plan.evaluate import Costs
from nest_opt.plan.progress import Progress
from nest_opt.problem import Problem, rule_of
from nest_opt.problem.base import MAX_BYTES


@dataclass(frozen=True)
class Requirement:
    """Something that plans must keep.

    Attributes
    ----------
    rule
        `memory`, `batch`, or the type of a constraint (`user:NAME` for a user's).
    place
        The constraint's place in the problem's list, None for the other two.
    """

    rule: str
    place: int | None = None

    def __str__(self) -> str:
        return self.rule if self.place is None else f"constraints[{self.place}] ({self.rule})"


MEMORY, BATCH = Requirement("memory"), Requirement("batch")

Requirements: TypeAlias = frozenset[Requirement]
# Whether some plan keeps these; None if it could not be told.
HasPlan: TypeAlias = Callable[[Requirements], bool | None]


@dataclass(frozen=True)
class Conflict:
    """Why no plan exists.

    Attributes
    ----------
    members
        Requirements that no plan keeps together; any fewer of them some plan
        keeps. Empty if search space and devices alone leave no plan.
    curing
        Members without which the whole problem has a plan: all of them unless
        it has another conflict too.
    left_out
        Constraints that the search has no rule for, and that were not looked at.
    """

    members: tuple[Requirement, ...]
    curing: tuple[Requirement, ...]
    left_out: tuple[Requirement, ...] = ()


def find_conflict(
    costs: Costs,
    source: CellSource,
    progress: Progress | None = None,
) -> Conflict | None:
    """Return why the dynamic program found no plan, None if Ctrl-C came first.

    Parameters
    ----------
    costs, source
        The problem's coefficients and cells; with the constraints that have a
        rule, it has no plan.
    progress
        Called with (requirements done, requirements, None); where a search has
        to tell, as by that.

    Raises
    ------
    ConsistencyError
        If a plan would fit: a defect.
    """
    problem = costs.problem
    requirements = _requirements(problem)
    ruled = [each for each in requirements if _has_rule(each)]
    try:
        found = _filtered(ruled, partial(_fits, source, costs, progress), progress)
    except KeyboardInterrupt:
        return None
    # The search always knows.
    assert found is not None
    left_out = tuple(each for each in requirements if not _has_rule(each))
    return Conflict(found.members, found.curing, left_out)


def find_exact_conflict(
    costs: Costs,
    source: CellSource,
    time_limit_s: float | None,
    family: FamilyName = "aligned",
    progress: Progress | None = None,
) -> Conflict | None:
    """Return why the integer programs found no plan, None if time ran out or Ctrl-C came first.

    The dynamic program answers where it has a rule for every constraint that
    is kept, the programs elsewhere. That it finds no plan is an answer of the
    aligned family alone. `progress` is that of the programs.

    Raises
    ------
    ConsistencyError
        If there is a plan: a defect.
    """
    from nest_opt.milp.exact import exact
    from nest_opt.milp.limits import SearchLimits

    problem = costs.problem
    begin, limits = time.perf_counter(), SearchLimits(time_limit_s)

    def has_plan(kept: Requirements) -> bool | None:
        if all(map(_has_rule, kept)):
            fits = _fits(source, costs, progress, kept)
            if fits or family == "aligned":
                return fits
        # Any plan will do.
        relaxed, left_s = _with(problem, kept, costs), limits.remaining_s(begin)
        found = exact(relaxed, time_limit_s=left_s, gap=0.999, family=family, progress=progress)
        if found.placement is not None:
            return True
        return False if found.status == "infeasible" else None

    try:
        return _filtered(_requirements(problem), has_plan, progress)
    except KeyboardInterrupt:
        return None


def _requirements(problem: Problem) -> list[Requirement]:
    """Return a problem's requirements in the order in which to try to do without them."""
    constraints = [
        Requirement(rule_of(constraint), place)
        for place, constraint in enumerate(problem.constraints)
    ]
    # Memory first, so that it is named only if more of it would help.
    return [MEMORY, *constraints, *([] if problem.job.pad else [BATCH])]


def _has_rule(requirement: Requirement) -> bool:
    return requirement.place is None or requirement.rule in RULES


def _filtered(
    requirements: Sequence[Requirement],
    has_plan: HasPlan,
    progress: Progress | None,
) -> Conflict | None:
    """Return the conflict that deletion filtering leaves, None if an answer was missing."""
    every = frozenset(requirements)
    ask = cache(has_plan)
    if ask(every):
        raise ConsistencyError(
            "the search finds no plan, but one fits in memory and keeps every constraint: "
            "please report this problem file"
        )
    kept = every
    for number, requirement in enumerate(requirements):
        if progress:
            progress(number, len(requirements), None)
        answer = ask(kept - {requirement})
        if answer is None:
            return None
        if not answer:
            kept -= {requirement}
    members = [each for each in requirements if each in kept]
    curing = [each for each in members if ask(every - {each})]
    return Conflict(tuple(members), tuple(curing))


def _fits(
    source: CellSource,
    costs: Costs,
    progress: Progress | None,
    kept: Requirements,
) -> bool:
    """Whether the search's rules leave a plan that keeps some requirements."""
    problem = costs.problem
    usable = problem.cluster.device_kind.usable_bytes
    limit = usable if MEMORY in kept else UNLIMITED
    if fits(source.relaxed(_relaxed(problem, kept)), limit):
        return True
    if not problem.search.per_stage:
        return False
    return _staged_fits(Costs(_with(problem, kept, costs)), progress)


def _staged_fits(costs: Costs, progress: Progress | None) -> bool:
    """Whether there is a plan, of stages that differ in tp or sp too."""
    source = cell_source(costs)
    if isinstance(source, DefaultSource):
        known = staged_fits(costs, source)
        if known is not None:
            return known
    found = search_all(costs, source, progress)
    if found.placement is None and found.status == "interrupted":
        raise KeyboardInterrupt
    return found.placement is not None


def _relaxed(problem: Problem, kept: Requirements) -> Problem:
    """Return the problem with some requirements only, memory aside."""
    places = {each.place for each in kept}
    constraints = [c for place, c in enumerate(problem.constraints) if place in places]
    job = problem.job.model_copy(update={"pad": problem.job.pad or BATCH not in kept})
    return problem.model_copy(update={"constraints": tuple(constraints), "job": job})


def _with(problem: Problem, kept: Requirements, costs: Costs) -> Problem:
    """Return the problem with some requirements only."""
    relaxed = _relaxed(problem, kept)
    if MEMORY in kept:
        return relaxed
    cluster = problem.cluster
    kind = cluster.device_kind.model_copy(update={"memory_bytes": _ample_bytes(costs)})
    kinds = {**cluster.device_kinds, cluster.devices[0].kind: kind}
    return relaxed.model_copy(
        update={"cluster": cluster.model_copy(update={"device_kinds": kinds})}
    )


def _ample_bytes(costs: Costs) -> int:
    """Return the memory of a device on which all layers fit, as many times as there are stages.

    No more than needed: a program must not have coefficients too far apart.
    """
    table, kind = costs.table, costs.problem.cluster.device_kind
    most = max(
        sum(
            # A layer at work has some of its states in whole beside its shards.
            (2 if any(table.zero) else 1) * pair.states_bytes[row]
            + table.layer_count * pair.stash_bytes[mode][row]
            + pair.work_bytes[mode][row]
            for row in table.layer_rows
        )
        for pair in table.pairs.values()
        for mode in pair.stash_bytes
    )
    numerator, denominator = kind.usable_share.as_integer_ratio()
    needed = -(-(most + kind.reserve_bytes + 1) * denominator // numerator)
    return min(MAX_BYTES, max(needed, kind.memory_bytes))
