"""Family: the devices of every rank, counted per innermost group. Equations (45), (47), (76)."""

from collections.abc import Iterator
from math import lcm
from typing import Any

import pyomo.environ as pyo

from nest_opt.milp.coefficients import CellCoefficients, label_of
from nest_opt.milp.near import (
    SyncPlace,
    between_places,
    blocks_of,
    equal_replicas,
    free_cell,
    hops_of,
    kinds_of,
    levels_of,
    ranks_of,
    run_places,
    run_replicas,
    shapes_of,
    sync_nears,
)
from nest_opt.milp.options import chosen
from nest_opt.milp.ranks import Near, Slot
from nest_opt.milp.units import Units
from nest_opt.problem import Configuration
from nest_opt.problem.profile import Group

# Shape and slot of a stage of a replica.
Place = tuple[int, int, int, Slot]


def add_room(model: Any, k: CellCoefficients, _: Units) -> None:
    """Add (44): d * sum over i of a_i <= K, and neighbours of which one tp divides the other."""
    cell = free_cell(k)
    if len(cell.choices) == 1:
        return
    used = sum(
        cell.replicas * own.block_size * chosen(model, k, stage, own)
        for stage in range(k.stages)
        for own in cell.choices
    )
    model.room = pyo.Constraint(expr=used <= k.devices)
    rows = pyo.ConstraintList()
    model.neighbours = rows
    for stage in range(k.stages - 1):
        for own in cell.choices:
            meets = [
                other for other in cell.choices if not max(own.tp, other.tp) % min(own.tp, other.tp)
            ]
            if len(meets) < len(cell.choices):
                here, there = (chosen(model, k, s, own) for s in (stage, stage + 1))
                rows.add(here <= chosen(model, k, stage + 1, *meets))
                rows.add(there <= chosen(model, k, stage, *meets))


def add_devices(model: Any, k: CellCoefficients, _: Units) -> None:
    """Add (45): sum over g of n[r, i, k, s, g] = width_k if stage i has configuration k, else 0.

    n is the number of ranks of slot s of replica r's stage i in innermost
    group g; all together they are at most the devices of the group.
    """
    ranks, cell = ranks_of(k), free_cell(k)
    slots = [
        (replica, stage, label_of(own), *slot)
        for replica, stage in blocks_of(k)
        for own in cell.choices
        for slot in ranks.slots(own)
    ]
    named = {label_of(own): own for own in cell.choices}
    groups = range(len(group_devices(k, 0)))

    def most(_: Any, *place: Any) -> tuple[int, int]:
        return 0, min(ranks.width(named[place[2]]), group_devices(k, 0)[place[-1]])

    model.n = pyo.Var(
        [(*slot, group) for slot in slots for group in groups],
        domain=pyo.NonNegativeIntegers,
        bounds=most,
    )

    def all_ranks_rule(model: Any, *slot: Any) -> Any:
        own = named[slot[2]]
        return sum(model.n[(*slot, group)] for group in groups) == ranks.width(own) * chosen(
            model, k, slot[1], own
        )

    def capacity_rule(model: Any, group: int) -> Any:
        return sum(model.n[(*slot, group)] for slot in slots) <= group_devices(k, 0)[group]

    model.all_ranks = pyo.Constraint(slots, rule=all_ranks_rule)
    model.capacity = pyo.Constraint(groups, rule=capacity_rule)


def add_symmetry(model: Any, k: CellCoefficients, _: Units) -> None:
    """Add (48): replicas in the order of their first ranks' groups, groups by devices in use.

    Replicas may change names, and so may groups with equal rooms inside one
    group of the next level. With several runs, these may change names, and so
    may the places in all of them at once: the first run is sorted, and the
    first replicas of all runs are.
    """
    cell, ranks = free_cell(k), ranks_of(k)
    run = cell.replicas // cell.zero.instances
    ordered = [(r, r + 1) for r in range(run - 1)]
    ordered += [(r, r + run) for r in range(0, cell.replicas - run, run)]
    groups = range(len(group_devices(k, 0)))
    slots = {own: ranks.slots(own)[0] for own in cell.choices}
    width = lcm(*(ranks.width(own) for own in cell.choices))

    def position(replica: int) -> Any:
        return sum(
            group * (width // ranks.width(own)) * model.n[replica, 0, label_of(own), *slot, group]
            for own, slot in slots.items()
            for group in groups
        )

    def replica_rule(_: Any, number: int) -> Any:
        before, after = ordered[number]
        return position(before) <= position(after)

    def used(level: int, group: int) -> Any:
        inner = inner_groups(k, level, group)
        return sum(model.n[place] for place in model.n if place[-1] in inner)

    def group_rule(_: Any, level: int, group: int) -> Any:
        return used(level, group) >= used(level, group + 1)

    alike = [
        (level, group)
        for level in (range(levels_of(k).stop - 1) if k.pairs is None else ())
        for group in range(len(group_devices(k, level)) - 1)
        if group_devices(k, level)[group] == group_devices(k, level)[group + 1]
        and group // _fan_out(k, level) == (group + 1) // _fan_out(k, level)
    ]
    if len(groups) > 1:
        model.replica_order = pyo.Constraint(range(len(ordered)), rule=replica_rule)
    model.group_order = pyo.Constraint(alike, rule=group_rule)


def add_near(model: Any, k: CellCoefficients, _: Units) -> None:
    """Add (47): a hop, group or sync below level l has equal shares in all groups of level l - 1.

    share(s, g) <= share(t, g) + above for slots s and t whose equal ranks
    meet; and of ranks that are to be in one group together, some group holds
    all: whole[s, g] <= share(s, g), sum over g of whole[s, g] >= 1 - above.
    """
    model.near = pyo.ConstraintList()
    _add_whole(model, k)
    for level in levels_of(k):
        for replica, stage in blocks_of(k):
            for kind in kinds_of(k):
                above = model.inside_above[kind, replica, stage, level]
                for shape, members in enumerate(shapes_of(k)):
                    for near in _inside(k, members, kind):
                        places = [(replica, stage, shape, slot) for slot in near.slots]
                        _add(model, k, places, near.together, level, above)
        for replica, stage in hops_of(k):
            _add_hop(model, k, replica, stage, level)
        _add_copies(model, k, level)
        if k.has_exchange:
            _add_ends(model, k, level)


def _add_copies(model: Any, k: CellCoefficients, level: int) -> None:
    """Add (76): what is near if copies of a class are below a level, in runs and between them.

    Equals are one in each run: they are never together with others of their slot.
    """
    for place in run_places(k):
        near = sync_nears(k, place[2], place[0])[place[3]]
        above = model.sync_above[(*place, level)]
        for run in run_replicas(k, place[0]):
            members = [_at(place, replica, slot) for replica in run for slot in near.slots]
            _add(model, k, members, near.together, level, above)
    for place in between_places(k):
        near = sync_nears(k, place[2], place[0])[place[3]]
        above = model.between_above[(*place, level)]
        for replicas in equal_replicas(k, place[0]):
            for slot in near.slots:
                members = [_at(place, replica, slot) for replica in replicas]
                _add(model, k, members, False, level, above)


def _at(place: SyncPlace, replica: int, slot: Slot) -> Place:
    """Return a slot of a replica's stage."""
    _, stage, shape, _ = place
    return replica, stage, shape, slot


def _add_ends(model: Any, k: CellCoefficients, level: int) -> None:
    """Add that first and last stage are near each other if the exchange is below a level.

    Both have one tp, so that they have slots in common: equal ranks meet.
    """
    for replica in range(free_cell(k).replicas):
        for shape, members in enumerate(shapes_of(k)):
            for slot in ranks_of(k).slots(members[0]):
                first, last = ((replica, end, shape, slot) for end in (0, k.stages - 1))
                _add_alike(model, k, first, last, level, model.exchange_above[level])


def rooms_below(k: CellCoefficients, level: int) -> tuple[int, ...]:
    """Return the devices of every part that what is near below a level stays inside."""
    if k.pairs is not None:
        return tuple(map(len, k.pairs.parts(level)))
    return group_devices(k, level - 1)


def group_devices(k: CellCoefficients, level: int) -> tuple[int, ...]:
    """Return the devices of every group of a level that has some.

    Where pairs decide levels, level 0 alone has groups: devices that are alike.
    """
    if k.pairs is not None:
        return tuple(map(len, k.pairs.sites))
    size = k.group_sizes[level]
    return tuple(min(size, k.devices - first) for first in range(0, k.devices, size))


def inner_groups(k: CellCoefficients, level: int, group: int) -> range:
    """Return the innermost groups in a group of a level."""
    if k.pairs is not None:
        return range(group, group + 1)
    inside = k.group_sizes[level] // k.group_sizes[0]
    return range(group * inside, min((group + 1) * inside, len(group_devices(k, 0))))


def share(model: Any, k: CellCoefficients, place: Place, level: int, group: int, scale: int) -> Any:
    """Return the share of a slot's ranks in a group, times `scale`."""
    replica, stage, shape, slot = place
    ranks = ranks_of(k)
    return sum(
        scale // ranks.width(own) * model.n[replica, stage, label_of(own), *slot, inner]
        for own in shapes_of(k)[shape]
        for inner in inner_groups(k, level, group)
    )


def _inside(
    k: CellCoefficients, members: tuple[Configuration, ...], kind: Group
) -> tuple[Near, ...]:
    return ranks_of(k).inside(members[0], kind)


def _scale(k: CellCoefficients) -> int:
    ranks = ranks_of(k)
    return lcm(*(ranks.width(own) for own in free_cell(k).choices))


def _fan_out(k: CellCoefficients, level: int) -> int:
    """Return the groups of a level in one of the next."""
    return k.group_sizes[level + 1] // k.group_sizes[level]


def _has_whole(k: CellCoefficients, shape: int) -> bool:
    """Whether slots of a shape may have more than one rank, so that they can be torn."""
    ranks = ranks_of(k)
    return any(ranks.width(own) > 1 for own in shapes_of(k)[shape])


def _add_whole(model: Any, k: CellCoefficients) -> None:
    """Add whole[r, i, shape, slot, l, g] = 1 only if group g of level l - 1 holds the slot."""
    ranks, scale = ranks_of(k), _scale(k)
    wholes = [
        (replica, stage, shape, *slot, level, group)
        for replica, stage in blocks_of(k)
        for shape, members in enumerate(shapes_of(k))
        if _has_whole(k, shape)
        for slot in ranks.slots(members[0])
        for level in levels_of(k)
        for group in range(len(group_devices(k, level - 1)))
    ]
    model.whole = pyo.Var(wholes, domain=pyo.Binary)

    def whole_rule(model: Any, *at: Any) -> Any:
        replica, stage, shape, one, other, level, group = at
        place = replica, stage, shape, (one, other)
        return scale * model.whole[at] <= share(model, k, place, level - 1, group, scale)

    model.holds_whole = pyo.Constraint(wholes, rule=whole_rule)


def _torn(model: Any, k: CellCoefficients, place: Place, level: int) -> Any:
    """Return an expression of at least 1 - (the slot is inside one group of level l - 1)."""
    replica, stage, shape, slot = place
    there = chosen(model, k, stage, *shapes_of(k)[shape])
    return there - sum(
        model.whole[replica, stage, shape, *slot, level, group]
        for group in range(len(group_devices(k, level - 1)))
    )


def _add(
    model: Any, k: CellCoefficients, places: list[Place], together: bool, level: int, above: Any
) -> None:
    """Add that slots are near each other below a level."""
    if k.pairs is not None and len(places) > 2:
        _add_set(model, k, places, level, above)
        return
    for place in places[1:]:
        _add_alike(model, k, places[0], place, level, above)
    if together and _has_whole(k, places[0][2]):
        model.near.add(above >= _torn(model, k, places[0], level))


def _add_alike(
    model: Any, k: CellCoefficients, one: Place, other: Place, level: int, slack: Any
) -> None:
    """Add that two slots have equal shares in each group of level l - 1, unless there is slack.

    Shares add up to 1 in both, so that one direction is enough. Where pairs
    decide levels, that is (92).
    """
    if k.pairs is not None:
        _add_pair(model, k, one, other, level, slack)
        return
    scale = _scale(k)
    for group in range(len(group_devices(k, level - 1))):
        here, there = (share(model, k, place, level - 1, group, scale) for place in (one, other))
        model.near.add(here - there <= scale * slack)


def _add_pair(
    model: Any, k: CellCoefficients, one: Place, other: Place, level: int, slack: Any
) -> None:
    """Add (92): n[one, g] - sum of n[other, h] over the sites h near g <= slack.

    A site is near another if two of their devices do not reach the level.
    """
    assert k.pairs is not None
    here, there = (
        [share(model, k, place, 0, site, 1) for site in range(len(k.pairs.sites))]
        for place in (one, other)
    )
    for site, near in enumerate(_near_sites(k, level)):
        model.near.add(here[site] - pyo.quicksum(there[number] for number in near) <= slack)


def _add_set(model: Any, k: CellCoefficients, places: list[Place], level: int, above: Any) -> None:
    """Add (92) of more than two ranks: all others are near a rank's site, or the set is above.

    (c - 1) n[one, g] - sum of n[other, h] over all others and the sites h near g <= (c - 1) above,
    for c ranks; sites of one device need no row for each rank.
    """
    assert k.pairs is not None
    others, sites = len(places) - 1, range(len(k.pairs.sites))
    shares = [[share(model, k, place, 0, site, 1) for site in sites] for place in places]
    for site, near in enumerate(_near_sites(k, level)):
        at_site = [of[site] for of in shares]
        near_by = [pyo.quicksum(of[h] for h in near) for of in shares]
        if len(k.pairs.sites[site]) == 1:
            model.near.add(others * sum(at_site) - sum(near_by) <= others * above)
            continue
        for number, one in enumerate(at_site):
            rest = sum(near_by[:number]) + sum(near_by[number + 1 :])
            model.near.add(others * one - rest <= others * above)


def _near_sites(k: CellCoefficients, level: int) -> list[list[int]]:
    """Return, for each site, those with a device that is below a level with one of the site."""
    assert k.pairs is not None
    sites = k.pairs.sites
    return [
        [
            number
            for number, others in enumerate(sites)
            if others[-1] != devices[0]
            and not k.pairs.reaches(k.pairs.pair_level(devices[0], others[-1]), level)
        ]
        for devices in sites
    ]


def _add_hop(model: Any, k: CellCoefficients, replica: int, stage: int, level: int) -> None:
    """Add what is near if the hop of a replica from a stage to the next is below a level."""
    above = model.hop_above[replica, stage, level]
    differ = _differ(model, k, stage)
    for (one, here), (other, there) in _pairs(k):
        slack = above
        if len(shapes_of(k)) > 1:
            # Only between the shapes that the two stages have.
            slack = slack + 1 - chosen(model, k, stage + 1, *there)
        met = set(ranks_of(k).hop(here[0], there[0], whole=False))
        for pair in ranks_of(k).hop(here[0], there[0], whole=differ is not None):
            ends = (replica, stage, one, pair[0]), (replica, stage + 1, other, pair[1])
            _add_alike(model, k, *ends, level, slack if pair in met else slack + 1 - differ)
            if differ is not None and ranks_of(k).counted == "tp" and _has_whole(k, one):
                for end in ends:
                    model.near.add(above + 1 - differ >= _torn(model, k, end, level))


def _pairs(k: CellCoefficients) -> Iterator[Any]:
    """Yield every two (number, shape)."""
    shapes = list(enumerate(shapes_of(k)))
    return ((one, other) for one in shapes for other in shapes)


def _differ(model: Any, k: CellCoefficients, stage: int) -> Any:
    """Return a variable of at least 1 if a stage and the next differ in sp; None if none can."""
    sliced = [own for own in free_cell(k).choices if own.sp]
    if len(sliced) in (0, len(free_cell(k).choices)):
        return None
    if model.component("differ") is None:
        model.differ = pyo.Var(range(k.stages - 1), bounds=(0, 1))
        here = [chosen(model, k, i, *sliced) for i in range(k.stages)]
        model.differs = pyo.ConstraintList()
        for i in range(k.stages - 1):
            model.differs.add(model.differ[i] >= here[i] - here[i + 1])
            model.differs.add(model.differ[i] >= here[i + 1] - here[i])
    return model.differ[stage]
