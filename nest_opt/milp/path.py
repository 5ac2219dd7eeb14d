"""Family: where the stages of an aligned cell start when they choose their sizes. Equation (57)."""

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

import pyomo.environ as pyo

from nest_opt.milp.cells import PathCell
from nest_opt.milp.coefficients import CellCoefficients, label_of
from nest_opt.milp.near import kinds_of, levels_of, ranks_of, run_places, shapes_of, sync_nears
from nest_opt.milp.options import chosen
from nest_opt.milp.ranks import Near
from nest_opt.milp.units import Units
from nest_opt.plan.evaluate import block_groups, hop_ends
from nest_opt.plan.placement import ListedMap
from nest_opt.problem import Configuration
from nest_opt.problem.profile import Group

# Devices of a replica before a stage, and the stage's configuration.
Start = tuple[int, Configuration]
# A stage, the devices before it, its configuration and that of the next stage, by name.
Step = tuple[int, int, str, str]


def path_cell(k: CellCoefficients) -> PathCell:
    """Return the cell, whose stages start one after the other."""
    assert isinstance(k.cell, PathCell)
    return k.cell


def add_path(model: Any, k: CellCoefficients, _: Units) -> None:
    """Add (57): sum over o, k of at[i, o, k] = 1, and next[i, o, k, k'] leads from at to at.

    at[i, o, k] is binary and 1 if stage i has configuration k and o devices
    of its replica are before it: sum over k' of next[i, o, k, k'] =
    at[i, o, k], and sum over o + a_k = o' and k of next[i, o, k, k'] =
    at[i + 1, o', k']. Each level is at least that of the devices.
    """
    starts = _starts(k)
    names = {(i, o, label_of(own)): own for i, found in enumerate(starts) for o, own in found}
    model.at = pyo.Var(list(names), domain=pyo.Binary)
    steps: list[Step] = [
        (i, o, label_of(here), label_of(there))
        for i, (found, after) in enumerate(pairwise(starts))
        for o, here in found
        for there in _meets(k, here)
        if (o + _step(k, here), there) in after
    ]
    model.next = pyo.Var(steps, bounds=(0, 1))
    rows = pyo.ConstraintList()
    model.path = rows
    for stage, found in enumerate(starts):
        for own in path_cell(k).choices:
            places = [model.at[stage, o, label_of(own)] for o, other in found if other == own]
            rows.add(sum(places) == chosen(model, k, stage, own))
        for o, own in found:
            at = model.at[stage, o, label_of(own)]
            if stage + 1 < k.stages:
                out = [model.next[s] for s in steps if s[:3] == (stage, o, label_of(own))]
                rows.add(sum(out) == at)
            if stage:
                into = [
                    model.next[s]
                    for s in steps
                    if s[0] == stage - 1
                    and s[3] == label_of(own)
                    and s[1] + _step(k, names[s[:3]]) == o
                ]
                rows.add(sum(into) == at)
    _add_levels(model, k, starts, steps)


def _meets(k: CellCoefficients, own: Configuration) -> list[Configuration]:
    """Return the configurations that a neighbour may have."""
    return [
        other
        for other in path_cell(k).choices
        if max(own.tp, other.tp) % min(own.tp, other.tp) == 0
    ]


def _step(k: CellCoefficients, own: Configuration) -> int:
    """Return by how much a stage moves the next one; with `dp-inner`, the pitch does that."""
    return own.block_size if path_cell(k).order == "pp-inner" else 0


def _starts(k: CellCoefficients) -> list[list[Start]]:
    """Return, for each stage, the starts from which the last stage can end where it may."""
    cell = path_cell(k)
    if cell.order == "dp-inner":
        fitting = [own for own in cell.choices if own.block_size <= cell.sizes[0]]
        return [[(0, own) for own in fitting] for _ in range(k.stages)]
    sizes = {own.block_size for own in cell.choices}
    before: list[set[int]] = [{0}]
    for _ in range(k.stages - 1):
        before.append({o + size for o in before[-1] for size in sizes})
    after: list[set[int]] = [set(cell.sizes)]
    for _ in range(k.stages):
        after.append({o - size for o in after[-1] for size in sizes})
    return [
        [
            (o, own)
            for o in sorted(before[stage])
            for own in cell.choices
            if o + own.block_size in after[k.stages - 1 - stage]
        ]
        for stage in range(k.stages)
    ]


def block(k: CellCoefficients, replica: int, stage: int, start: Start) -> range:
    """Return the devices of a block."""
    first = path_cell(k).start(replica, stage, *start)
    return range(first, first + start[1].block_size)


def _level(k: CellCoefficients, devices: Iterable[int]) -> int:
    """Return the level of some devices: (1)."""
    held = list(devices)
    low, high = min(held), max(held)
    return next(level for level, size in enumerate(k.group_sizes) if low // size == high // size)


def _add_levels(
    model: Any,
    k: CellCoefficients,
    starts: list[list[Start]],
    steps: list[Step],
) -> None:
    """Add that each level is at least that of the devices."""
    cell = path_cell(k)
    for stage, found in enumerate(starts):
        at = [model.at[stage, o, label_of(own)] for o, own in found]
        taken = [step for step in steps if step[0] == stage]
        passed = [model.next[step] for step in taken]
        for replica in range(cell.replicas):
            for kind in kinds_of(k):
                levels = [_inside_level(k, replica, stage, start, kind) for start in found]
                _add(model, k, model.inside_above, (kind, replica, stage), at, levels)
            levels = [_hop_level(k, replica, step) for step in taken]
            _add(model, k, model.hop_above, (replica, stage), passed, levels)
    for place in run_places(k):
        name, stage, shape, number = place
        near = sync_nears(k, shape, name)[number]
        own_starts = [start for start in starts[stage] if start[1] in shapes_of(k)[shape]]
        at = [model.at[stage, o, label_of(own)] for o, own in own_starts]
        levels = [_near_level(k, near, stage, start) for start in own_starts]
        _add(model, k, model.sync_above, place, at, levels)

    if k.has_exchange:
        # A last stage of the first one's tp has its size as well.
        at = [model.at[k.stages - 1, o, label_of(own)] for o, own in starts[-1]]
        levels = [_ends_level(k, start) for start in starts[-1]]
        for level in levels_of(k):
            far = [variable for variable, own in zip(at, levels, strict=True) if own >= level]
            if far:
                model.path.add(model.exchange_above[level] >= sum(far))


def _ends_level(k: CellCoefficients, last: Start) -> int:
    """Return the level of the worst equal ranks of first and last stage."""
    return max(
        _level(k, pair)
        for replica in range(path_cell(k).replicas)
        for pair in zip(
            block(k, replica, 0, (0, last[1])),
            block(k, replica, k.stages - 1, last),
            strict=True,
        )
    )


def _inside_level(k: CellCoefficients, replica: int, stage: int, start: Start, kind: Group) -> int:
    groups = block_groups(block(k, replica, stage, start), start[1], kind)
    return max(_level(k, group) for group in groups)


def _hop_level(k: CellCoefficients, replica: int, step: Step) -> int:
    configurations = {label_of(own): own for own in path_cell(k).choices}
    stage, before, here, there = step[0], step[1], configurations[step[2]], configurations[step[3]]
    ends = (
        (tuple(block(k, replica, stage, (before, here))),),
        (tuple(block(k, replica, stage + 1, (before + _step(k, here), there))),),
    )
    return max(_level(k, pair) for pair in hop_ends(ListedMap(ends), (here, there), 0, 0, 1))


def _near_level(k: CellCoefficients, near: Near, stage: int, start: Start) -> int:
    """Return the level of the copies of the worst rank."""
    ranks, own = ranks_of(k), start[1]

    def devices(number: int) -> Iterator[int]:
        for replica in range(path_cell(k).replicas):
            for slot in near.slots:
                t, c, e = ranks.coordinates(slot, number)
                yield block(k, replica, stage, start)[t + own.tp * (c + own.cp * e)]

    numbers = range(ranks.width(own))
    if near.together:
        return _level(k, (device for number in numbers for device in devices(number)))
    return max(_level(k, devices(number)) for number in numbers)


def _add(
    model: Any, k: CellCoefficients, above: Any, place: Any, taken: list[Any], levels: list[int]
) -> None:
    """Add above[place, l] >= the sum of what is taken at level l or above."""
    for level in levels_of(k):
        far = [variable for variable, at in zip(taken, levels, strict=True) if at >= level]
        if far:
            model.path.add(above[(*place, level)] >= sum(far))


def ranks_inside(
    model: Any, k: CellCoefficients, level: int, group: int
) -> Iterator[tuple[int, int, Any]]:
    """Yield (replica, most, ranks) for parts of the ranks in a group of a level."""
    size = k.group_sizes[level]
    members = range(group * size, (group + 1) * size)
    configurations = {label_of(own): own for own in path_cell(k).choices}
    for (stage, before, label), at in model.at.items():
        for replica in range(path_cell(k).replicas):
            devices = block(k, replica, stage, (before, configurations[label]))
            held = sum(device in members for device in devices)
            if held:
                yield replica, held, held * at
