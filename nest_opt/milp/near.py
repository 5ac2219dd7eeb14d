"""Family: the network level of every hop, group and sync that the program chooses. Equation (46).

Without devices it is a relaxation: levels are what each could be by itself.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import pyomo.environ as pyo

from nest_opt.cost.table import CLASSES, ParameterClass
from nest_opt.milp.cells import FreeCell
from nest_opt.milp.coefficients import CellCoefficients, LevelTerms
from nest_opt.milp.options import chosen
from nest_opt.milp.ranks import LeastLevels, Near, Ranks, least_levels, least_pair_levels, ranks
from nest_opt.milp.units import Units
from nest_opt.problem import Configuration
from nest_opt.problem.profile import GROUPS, Group

# A sync's place: class, stage, shape, and number among the shape's of that class.
SyncPlace = tuple[ParameterClass, int, int, int]


def free_cell(k: CellCoefficients) -> FreeCell:
    """Return the cell, which is one of the free family."""
    assert isinstance(k.cell, FreeCell)
    return k.cell


def ranks_of(k: CellCoefficients) -> Ranks:
    """Return how the cell's ranks are told apart: all of them, where pairs decide levels."""
    cell = free_cell(k)
    if k.pairs is not None:
        return Ranks("cp")
    return ranks(cell.choices, cell.replicas, cell.zero)


def shapes_of(k: CellCoefficients) -> tuple[tuple[Configuration, ...], ...]:
    """Return the cell's configurations by the slots that they have."""
    return ranks_of(k).shapes(free_cell(k).choices)


def levels_of(k: CellCoefficients) -> range:
    """Return the levels above 0 that devices can be on: the groups below do not hold all."""
    return range(1, 1 + sum(size < k.devices for size in k.group_sizes))


def add_nested(
    model: Any, k: CellCoefficients, above: Any, places: Sequence[tuple[Any, ...]]
) -> None:
    """Add that what is above a level is above each that it reaches: (46), (93).

    Where two levels of pairs reach neither the other, what is above both is above their worst.
    """
    levels = levels_of(k)
    steps = list(pairwise(levels) if k.pairs is None else k.pairs.steps())
    model.add_component(
        f"{above.name}_nested",
        pyo.Constraint(
            [(*place, step) for place in places for step in range(len(steps))],
            rule=lambda _, *at: (
                above[(*at[:-1], steps[at[-1]][1])] <= above[(*at[:-1], steps[at[-1]][0])]
            ),
        ),
    )
    joins = list(k.pairs.joins()) if k.pairs is not None else []
    if joins:
        rows = pyo.ConstraintList()
        model.add_component(f"{above.name}_joined", rows)
        for place in places:
            for one, other, both in joins:
                rows.add(above[(*place, both)] >= above[(*place, one)] + above[(*place, other)] - 1)


def least_of(k: CellCoefficients, own: Configuration) -> LeastLevels:
    """Return the least levels that each replica and rank of a stage can have by itself."""
    cell = free_cell(k)
    if k.pairs is not None:
        return least_pair_levels(k.pairs, own, cell.replicas, cell.zero, together=False)
    capacities = tuple(min(size, k.devices) for size in k.group_sizes)
    return least_levels(capacities, own, cell.replicas, cell.zero)


def is_reached(k: CellCoefficients, found: int, level: int) -> bool:
    """Whether a level is no better than another."""
    return found >= level if k.pairs is None else k.pairs.reaches(found, level)


def kinds_of(k: CellCoefficients) -> tuple[Group, ...]:
    """Return the kinds of groups that have more than one rank."""
    choices = free_cell(k).choices
    return tuple(kind for kind in GROUPS if any(own.degree(kind) > 1 for own in choices))


def blocks_of(k: CellCoefficients) -> Iterator[tuple[int, int]]:
    """Yield every (replica, stage)."""
    return ((r, i) for r in range(free_cell(k).replicas) for i in range(k.stages))


def hops_of(k: CellCoefficients) -> Iterator[tuple[int, int]]:
    """Yield every (replica, stage) that has a next stage."""
    return ((r, i) for r, i in blocks_of(k) if i + 1 < k.stages)


def sync_nears(k: CellCoefficients, shape: int, name: ParameterClass) -> tuple[Near, ...]:
    """Return the distinct sets of copies of a class in a shape."""
    pairs = ranks_of(k).sync(shapes_of(k)[shape][0])
    return tuple(dict.fromkeys(pair[CLASSES.index(name)] for pair in pairs))


def run_places(k: CellCoefficients) -> list[SyncPlace]:
    """Return the place of everything over the copies of a run that takes time: (15), (60)."""
    terms = level_terms(k)

    def takes_time(name: ParameterClass, own: Configuration) -> bool:
        is_synced = k.weights.sync and (name, own) in terms.sync_ps[name][0].fixed_ps
        rounds = terms.round_ps.get(name, ({},))[-1]
        return is_synced or any(
            any(row) for option, row in rounds.items() if option.configuration == own
        )

    return _places(k, takes_time)


def between_places(k: CellCoefficients) -> list[SyncPlace]:
    """Return the place of every sync between runs that takes time: (63)."""
    terms = level_terms(k)

    def takes_time(name: ParameterClass, own: Configuration) -> bool:
        return name in terms.between_ps and (name, own) in terms.between_ps[name][0].fixed_ps

    return _places(k, takes_time) if k.weights.sync else []


def _places(
    k: CellCoefficients, takes_time: Callable[[ParameterClass, Configuration], bool]
) -> list[SyncPlace]:
    return [
        (name, stage, shape, number)
        for name in CLASSES
        for shape, members in enumerate(shapes_of(k))
        if any(takes_time(name, own) for own in members)
        for stage in range(k.stages)
        for number in range(len(sync_nears(k, shape, name)))
    ]


def run_replicas(k: CellCoefficients, name: ParameterClass) -> list[range]:
    """Return the replicas of each run of a class: (62)."""
    cell = free_cell(k)
    length = cell.replicas // cell.zero.runs(name)
    return [range(first, first + length) for first in range(0, cell.replicas, length)]


def equal_replicas(k: CellCoefficients, name: ParameterClass) -> list[range]:
    """Return, for each place in a run of a class, the replicas that have it in all runs: (62)."""
    cell = free_cell(k)
    length = cell.replicas // cell.zero.runs(name)
    return [range(place, cell.replicas, length) for place in range(length)]


def level_terms(k: CellCoefficients) -> LevelTerms:
    """Return the terms at every level, of a cell that chooses levels."""
    assert k.by_level is not None
    return k.by_level


def add_levels(model: Any, k: CellCoefficients, _: Units) -> None:
    """Add (46): hop_above[r, i, l] = 1 if a hop of replica r from stage i is at level l or above.

    inside_above[kind, r, i, l] says so of the worst group of a kind in a
    block, sync_above[c, i, ..., l] of the worst copies of a class in a run, and
    between_above[c, i, ..., l] of the worst equals of all runs. None falls
    with l backwards: above l + 1 is above l; each is at least what its ranks
    need by themselves.
    """
    levels = levels_of(k)
    inside = [(kind, *block) for kind in kinds_of(k) for block in blocks_of(k)]
    copies = {"sync_above": run_places(k), "between_above": between_places(k)}
    every: dict[str, Sequence[tuple[Any, ...]]] = {
        "hop_above": list(hops_of(k)),
        "inside_above": inside,
        **copies,
    }
    for name, places in every.items():
        if name == "between_above" and not places:
            continue
        above = pyo.Var([(*place, level) for place in places for level in levels],
                        domain=pyo.Binary)  # fmt: skip
        model.add_component(name, above)
        add_nested(model, k, above, places)
    _add_least(model, k, inside, copies)


def _add_least(
    model: Any,
    k: CellCoefficients,
    inside: list[tuple[Group, int, int]],
    copies: Mapping[str, list[SyncPlace]],
) -> None:
    """Add that no level is lower than its ranks need, whatever devices they have."""
    cell = free_cell(k)
    least = {own: least_of(k, own) for own in cell.choices}
    rows = pyo.ConstraintList()
    model.least_level = rows
    for level in levels_of(k):
        for place in inside:
            kind, _, stage = place
            far = [
                own
                for own in cell.choices
                if is_reached(k, least[own].inside[GROUPS.index(kind)], level)
            ]
            if far:
                rows.add(model.inside_above[(*place, level)] >= chosen(model, k, stage, *far))
        for first, (above, places) in zip((0, len(CLASSES)), copies.items(), strict=True):
            for sync in places:
                name, stage, shape, _ = sync
                far = [
                    own
                    for own in shapes_of(k)[shape]
                    if is_reached(k, least[own].sync[first + CLASSES.index(name)], level)
                ]
                if far:
                    variable = model.component(above)[(*sync, level)]
                    rows.add(variable >= chosen(model, k, stage, *far))
        for replica, stage in hops_of(k):
            if all(is_reached(k, own.hop, level) for own in least.values()):
                rows.add(model.hop_above[replica, stage, level] == 1)
