"""Family: what cannot be near, by counting devices. Equation (51).

These rows follow from (45) and (47) when numbers are whole, not before: they
are what keeps the relaxed program from putting everything next to everything.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pyomo.environ as pyo

from nest_opt.cost.table import CLASSES
from nest_opt.milp.coefficients import CellCoefficients
from nest_opt.milp.devices import rooms_below
from nest_opt.milp.near import (
    SyncPlace,
    between_places,
    blocks_of,
    equal_replicas,
    free_cell,
    kinds_of,
    levels_of,
    ranks_of,
    run_places,
    run_replicas,
    shapes_of,
    sync_nears,
)
from nest_opt.milp.options import chosen
from nest_opt.milp.units import Units
from nest_opt.network.pair_levels import PairLevels


def add_counting(model: Any, k: CellCoefficients, _: Units) -> None:
    """Add (51): blocks that are near each other below level l fit one group of level l - 1.

    For a run of stages with more devices than a group has, some hop is above
    or some block is torn; the same for the replicas of a stage. Of a run that
    fits, the groups hold only so many. Where first and last stage exchange
    gradients, runs go round: these two are near if the exchange is below.
    """
    model.counting = pyo.ConstraintList()
    for level in levels_of(k):
        if k.pairs is not None:
            _add_sets(model, k, k.pairs, level)
        _add_replicas(model, k, level)
        for first in range(k.stages - 1):
            for last in range(first + 1, k.stages):
                if not _add_run(model, k, level, range(first, last + 1)):
                    break
        for first in range(k.stages - 1, 0, -1) if k.has_exchange else ():
            for last in range(first):
                if not _add_run(model, k, level, (*range(first, k.stages), *range(last + 1))):
                    break


def _add_sets(model: Any, k: CellCoefficients, pairs: PairLevels, level: int) -> None:
    """Add (94): of sets of devices without one in common, only so many are below a level.

    Groups of all blocks, copies of all stages and, of each boundary, hops of all replicas.
    """
    cell = free_cell(k)
    if len(cell.choices) > 1:
        return
    (own,) = cell.choices
    for kind in kinds_of(k):
        groups = own.block_size // own.degree(kind)
        below = pairs.most_sets(own.degree(kind), level) // groups
        every = [model.inside_above[kind, *block, level] for block in blocks_of(k)]
        _add_least(model, every, below)
    for name in CLASSES:
        places = [place for place in run_places(k) if place[0] == name]
        runs = run_replicas(k, name)
        for replicas in runs[:1] if places else ():
            ranks = len(replicas) * len(sync_nears(k, 0, name)[0].slots)
            below = pairs.most_sets(ranks, level) // len(runs)
            _add_least(model, [model.sync_above[(*place, level)] for place in places], below)
    most = pairs.most_sets(2, level) // own.block_size
    for stage in range(k.stages - 1):
        hops = [model.hop_above[replica, stage, level] for replica in range(cell.replicas)]
        _add_least(model, hops, most)


def _add_least(model: Any, every: Sequence[Any], below: int) -> None:
    """Add that all but so many of some are above."""
    if len(every) - below > 0:
        model.counting.add(sum(every) >= len(every) - below)


def _torn(model: Any, k: CellCoefficients, replica: int, stage: int, level: int) -> Any:
    """Return an expression of at least 1 if a block is not inside one group below a level."""
    return sum(model.inside_above[kind, replica, stage, level] for kind in kinds_of(k))


def _add_replicas(model: Any, k: CellCoefficients, level: int) -> None:
    """Add that the copies of a rank are in one group with a whole block only if all fit.

    The same of the equals between runs.
    """
    for place in run_places(k):
        replicas = run_replicas(k, place[0])[0]
        _add_copies(model, k, level, place, len(replicas), model.sync_above[(*place, level)])
    for place in between_places(k):
        replicas = equal_replicas(k, place[0])[0]
        _add_copies(model, k, level, place, len(replicas), model.between_above[(*place, level)])


def _add_copies(
    model: Any, k: CellCoefficients, level: int, place: SyncPlace, replicas: int, above: Any
) -> None:
    """Add what a group must hold for copies in some replicas, and replica 0's whole block."""
    name, stage, shape, number = place
    room = max(rooms_below(k, level))
    slots = len(sync_nears(k, shape, name)[number].slots)
    copies = {own: slots * ranks_of(k).width(own) for own in shapes_of(k)[shape]}
    far = [own for own, ranks in copies.items()
           if own.block_size + (replicas - 1) * ranks > room]  # fmt: skip
    if far:
        apart = above + _torn(model, k, 0, stage, level)
        model.counting.add(apart >= chosen(model, k, stage, *far))


def _add_run(model: Any, k: CellCoefficients, level: int, stages: Sequence[int]) -> bool:
    """Add what a run of stages asks of a group; return whether a longer run says more.

    The first stage may follow the last one, by the exchange between them.
    """
    cell, rooms = free_cell(k), rooms_below(k, level)
    exchange = 0 if stages[0] <= stages[-1] else model.exchange_above[level]
    hops = {
        replica: sum(
            model.hop_above[replica, stage, level]
            for stage, after in pairwise(stages)
            if after == stage + 1
        )
        for replica in range(cell.replicas)
    }
    sizes = [own.block_size for own in cell.choices]
    most, least = max(sizes) * len(stages), min(sizes) * len(stages)
    if most > max(rooms):
        devices = sum(
            own.block_size * chosen(model, k, stage, own)
            for stage in stages
            for own in cell.choices
        )
        for replica in range(cell.replicas):
            for stage in stages if kinds_of(k) else stages[:1]:
                apart = hops[replica] + exchange + _torn(model, k, replica, stage, level)
                if least > max(rooms):
                    model.counting.add(apart >= 1)
                else:
                    model.counting.add(devices - max(rooms) <= (most - max(rooms)) * apart)
    if least > max(rooms):
        return False
    held = sum(room // least for room in rooms)
    if held < cell.replicas:
        # The exchange of one replica may be above for all of them.
        apart = (cell.replicas - held) * exchange + sum(
            own + _torn(model, k, replica, stages[0], level) for replica, own in hops.items()
        )
        model.counting.add(apart >= cell.replicas - held)
    return True
