"""What one change of a configuration reaches: one dimension, or two degrees that are traded."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, combinations
from typing import Any

from nest_opt.improvement.dimensions import (
    BY_NAME,
    DIMENSIONS,
    Held,
    Move,
    known_values,
    moves,
    values_of,
)
from nest_opt.improvement.spaces import Searches, Space, least, space
from nest_opt.improvement.terms import term_changes
from nest_opt.plan.evaluate import Costs
from nest_opt.problem import Problem
from nest_opt.verbs.pipeline.result import RankedPlan

# Those that layers have profiles by.
_PROFILED = ("microbatch", "tp", "cp", "ep", "sp")


@dataclass(frozen=True)
class Configuration:
    """A point on the way: what is held, and the plan that is valued.

    Attributes
    ----------
    held
        The value of every dimension that was stated, by name; the others take
        the best values there are.
    plan
        The plan, None where it fits nowhere.
    """

    held: Held
    plan: RankedPlan | None

    @property
    def value_ps(self) -> int | None:
        """The plan's batch time in picoseconds."""
        return None if self.plan is None else self.plan.evaluation.value_ps


@dataclass(frozen=True)
class Change:
    """The best plan that one change reaches.

    Attributes
    ----------
    released
        The dimension that was free, or the two.
    moves
        What differs of that and of all that was held.
    follows
        What differs of dimensions that were not stated.
    plan
        The best plan, None where there is none.
    before_ps
        The batch time before, None where the configuration fits nowhere.
    term_changes_ps
        By how much each term of the batch time grows; None without a plan
        before and after.
    """

    released: tuple[str, ...]
    moves: tuple[Move, ...] = ()
    follows: tuple[Move, ...] = ()
    plan: RankedPlan | None = None
    before_ps: int | None = None
    term_changes_ps: Mapping[str, int] | None = None

    @property
    def value_ps(self) -> int | None:
        """The batch time after it, None without a plan."""
        return None if self.plan is None else self.plan.evaluation.value_ps

    @property
    def gain_ps(self) -> int | None:
        """What it saves of the batch time, below 0 of a trade that costs some.

        None without a plan before and after.
        """
        if self.value_ps is None or self.before_ps is None:
            return None
        return self.before_ps - self.value_ps

    @property
    def gain(self) -> float | None:
        """What it saves as a share of the batch time before it."""
        if self.gain_ps is None or self.before_ps is None:
            return None
        return self.gain_ps / self.before_ps if self.before_ps else 0.0

    @property
    def helps(self) -> bool:
        """Whether it saves time, or makes fit what did not."""
        return self.plan is not None and (self.gain_ps is None or self.gain_ps > 0)


def open_dimensions(problem: Problem, held: Held) -> list[str]:
    """Return the dimensions held of which the search space has more than one value."""
    return [
        each.name
        for each in DIMENSIONS
        if each.name in held
        and (each.searched is None or len(known_values(problem, each.name)) > 1)
    ]


def single_changes(problem: Problem, held: Held) -> list[tuple[str, ...]]:
    """Return what may be released: each such dimension, and two degrees that can be traded."""
    names = open_dimensions(problem, held)
    degrees = [name for name in names if BY_NAME[name].scales]
    return [*((name,) for name in names), *combinations(degrees, 2)]


def change(
    costs: Costs, searches: Searches, before: Configuration, released: tuple[str, ...]
) -> Change:
    """Find the best plan that releasing a dimension, or trading two, reaches.

    Raises
    ------
    KeyboardInterrupt
        After Ctrl-C.
    """
    one = len(released) == 1
    parts = (
        _released(costs.problem, before.held, released)
        if one
        else _traded(costs.problem, before.held, released)
    )
    return described(costs, before, released, least(map(searches.best, parts)))


def both(
    costs: Costs, searches: Searches, before: Configuration, released: tuple[str, ...]
) -> Change:
    """Find the best plan that two changes at once reach, whatever the devices used."""
    parts = _released(costs.problem, before.held, released)
    return described(costs, before, released, least(map(searches.best, parts)))


def described(
    costs: Costs, before: Configuration, released: tuple[str, ...], plan: RankedPlan | None
) -> Change:
    """Return what differs between a configuration and a plan."""
    if plan is None:
        return Change(released, before_ps=before.value_ps)
    placement = plan.plan.placement()
    old = {} if before.plan is None else values_of(costs, before.plan.plan.placement())
    unstated = {name: value for name, value in old.items() if name not in before.held}
    return Change(
        released,
        moves(costs, before.held, placement),
        moves(costs, unstated, placement),
        plan,
        before.value_ps,
        None if before.plan is None else term_changes(before.plan.evaluation, plan.evaluation),
    )


def _released(problem: Problem, held: Held, released: tuple[str, ...]) -> Iterator[Space]:
    """Yield the parts of a search space in which dimensions are free."""
    kept = _without(held, released)
    yield space(kept)
    for name in released:
        along = [other for other in BY_NAME[name].may_take_along if other in kept]
        if not along:
            continue
        alone = tuple(
            value
            for value in known_values(problem, name)
            if not _has_profiles(problem, {**kept, name: value})
        )
        if alone:
            yield space(_less(kept, along), {name: alone})


def _traded(problem: Problem, held: Held, released: tuple[str, ...]) -> Iterator[Space]:
    """Yield the parts in which two degrees differ and have the same product."""
    first, second = released
    product = held[first] * held[second]
    kept = _without(held, released)
    for value in known_values(problem, first):
        other, rest = divmod(product, value)
        if rest or value == held[first] or other not in known_values(problem, second):
            continue
        values = {first: value, second: other}
        along = chain.from_iterable(BY_NAME[name].may_take_along for name in released)
        fits = _has_profiles(problem, {**kept, **values})
        yield space({**(kept if fits else _less(kept, list(along))), **values})


def _without(held: Held, released: tuple[str, ...]) -> dict[str, Any]:
    """Return what stays held when dimensions are released, with what they take along."""
    along = chain.from_iterable(BY_NAME[name].takes_along for name in released)
    return _less(held, [*released, *along])


def _less(held: Held, names: list[str]) -> dict[str, Any]:
    return {name: value for name, value in held.items() if name not in names}


def _has_profiles(problem: Problem, values: Held) -> bool:
    """Whether layers have profiles with these values in the search space."""
    asked = [(place, values[name]) for place, name in enumerate(_PROFILED) if name in values]
    return any(
        all((microbatch, *k)[place] == value for place, value in asked)
        for microbatch, k in problem.candidates
    )
