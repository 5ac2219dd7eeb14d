"""Searches of parts of a search space: some dimensions held, the others open."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from nest_opt.dp.search import Ranked
from nest_opt.dp.source import CellSource, Group
from nest_opt.dp.sources import cell_source
from nest_opt.dp.staged_search import search_all
from nest_opt.errors import InstanceError, PlanError
from nest_opt.improvement.dimensions import (
    BOUNDARIES,
    BY_NAME,
    RECOMPUTE,
    Held,
    known_values,
)
from nest_opt.plan.check import check
from nest_opt.plan.evaluate import Costs, evaluate
from nest_opt.plan.placement import Cell
from nest_opt.problem import Problem
from nest_opt.problem.constraints import ForbiddenBoundary
from nest_opt.problem.profile import Recompute
from nest_opt.problem.search import SearchSpace
from nest_opt.verbs.pipeline.confirm import ranked_plan
from nest_opt.verbs.pipeline.result import RankedPlan

Ends: TypeAlias = tuple[int, ...]
Modes: TypeAlias = tuple[Recompute, ...]
# Dimensions of which not every combination need have profiles.
_COLUMNS = ("microbatch", "tp", "cp", "ep", "sp")


@dataclass(frozen=True)
class Space:
    """A part of a problem's search space, all stages of one configuration.

    Attributes
    ----------
    searched
        Dimensions of `problem.search` with the values that are left of them.
    ends, modes
        Ends of stages (of chunks under an interleaved schedule), and with them
        the modes stage by stage, where these are held.
    """

    searched: tuple[tuple[str, tuple[Any, ...]], ...] = ()
    ends: Ends | None = None
    modes: Modes | None = None

    def of(self, problem: Problem) -> Problem:
        """Return the problem with nothing else in its search space."""
        asked = {name: getattr(problem.search, name) for name in problem.search.model_fields_set}
        search = SearchSpace(**{**asked, **dict(self.searched), "per_stage": ()})
        constraints = problem.constraints
        if self.ends is not None:
            inner = set(range(1, len(problem.model.ids))) - set(self.ends)
            constraints += tuple(
                ForbiddenBoundary(type="forbidden-boundary", after=problem.model.ids[cut - 1])
                for cut in sorted(inner)
            )
        return problem.model_copy(update={"search": search, "constraints": constraints})


def space(held: Held, choices: Mapping[str, tuple[Any, ...]] | None = None) -> Space:
    """Return the space in which dimensions are held at values, or have a choice of some."""
    searched = {
        name: values(value)
        for name, value in held.items()
        if (values := BY_NAME[name].searched) is not None
    }
    ends, modes = held.get(BOUNDARIES), held.get(RECOMPUTE)
    if ends is None:
        modes = None
    elif modes is not None and len(set(modes)) == 1:
        # One mode is that of every stage, however many there are now.
        modes = modes[:1] * held["pp"]
    return Space(_sorted({**searched, **(choices or {})}), ends, modes)


@dataclass
class Searches:
    """Searches of parts of one problem's search space, each done once.

    Attributes
    ----------
    problem
        The whole problem: plans carry it.
    done
        How many searches there were.
    """

    problem: Problem
    done: int = 0
    _found: dict[Space, RankedPlan | None] = field(default_factory=dict)

    def best(self, part: Space) -> RankedPlan | None:
        """Return the best plan of a part, None if it has no legal one.

        Raises
        ------
        KeyboardInterrupt
            After Ctrl-C.
        """
        if part not in self._found:
            self._found[part] = self._search(part)
        return self._found[part]

    def _search(self, part: Space) -> RankedPlan | None:
        problem = part.of(self.problem)
        costs = Costs(problem)
        try:
            found = self._least(costs, part)
        except InstanceError:
            # Some combination of what is left has no costs, or divides no batch.
            return least(self.best(piece) for piece in _pieces(problem, part))
        if found is None:
            return None
        ranked = ranked_plan(costs, *found)
        plan = ranked.plan.model_copy(update={"problem": self.problem})
        return RankedPlan(plan, ranked.evaluation)

    def _least(self, costs: Costs, part: Space) -> Ranked | None:
        source = cell_source(costs)
        self.done += 1
        if part.ends is not None and part.modes is not None:
            return _of_stages(costs, source, part.ends, part.modes)
        found = search_all(costs, source)
        if found.status == "interrupted":
            raise KeyboardInterrupt
        return found.ranking[0] if found.ranking else None


def least(plans: Iterable[RankedPlan | None]) -> RankedPlan | None:
    """Return the plan of the least value, on the fewest devices, that comes first."""
    return min(
        (plan for plan in plans if plan is not None),
        key=lambda plan: (plan.evaluation.value_ps, plan.plan.placement().device_map.devices_used),
        default=None,
    )


def _pieces(problem: Problem, part: Space) -> Iterator[Space]:
    """Yield a part's halves by the values of a dimension; nothing if it has one of each."""
    try:
        choices = {name: known_values(problem, name) for name in _COLUMNS}
    except InstanceError:
        return
    for name, values in choices.items():
        if len(values) > 1:
            for value in values:
                kept = {**dict(part.searched), name: (value,)}
                yield Space(_sorted(kept), part.ends, part.modes)
            return


def _sorted(searched: Mapping[str, tuple[Any, ...]]) -> tuple[tuple[str, tuple[Any, ...]], ...]:
    return tuple(sorted(searched.items()))


def _of_stages(costs: Costs, source: CellSource, ends: Ends, modes: Modes) -> Ranked | None:
    """Return the best placement of stages that are given, and its value."""
    best: Ranked | None = None
    for group in _groups(source):
        if best is not None and group.bound_ps >= best.value_ps:
            continue
        for cell in source.cells(group):
            value_ps = _legal_value_ps(costs, cell, ends, modes)
            if value_ps is not None and (best is None or value_ps < best.value_ps):
                best = Ranked(cell.placement(ends, modes), value_ps)
    return best


def _groups(source: CellSource) -> list[Group]:
    """Return all groups of cells that may fit, each of one ZeRO level, least bound first."""
    groups = [
        group
        for bundle in source.bundles()
        for rank in range(bundle.open())
        for group in source.refined(bundle.group(rank), 0)
    ]
    return sorted(groups, key=lambda group: (group.bound_ps, group.place))


def _legal_value_ps(costs: Costs, cell: Cell, ends: Ends, modes: Modes) -> int | None:
    """Return the value of a cell's plan with given stages, None if it is not legal."""
    placement = cell.placement(ends, modes)
    try:
        evaluation = evaluate(costs, placement)
    except PlanError:
        # A layer has no such mode.
        return None
    return None if check(costs, placement, evaluation) else evaluation.value_ps
