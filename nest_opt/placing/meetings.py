"""Which ranks of a plan meet: what its devices have to do with its cost.

A *meeting* is a term of a stage's time or sync with the pairs of seats that it
waits for: its level is the worst of theirs. The sets of ranks are those of the
evaluator, asked of a map in which seats stand for devices.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

from nest_opt.cost.table import CLASSES, ParameterClass
from nest_opt.plan.evaluate import block_groups, hop_ends, sync_group
from nest_opt.plan.placement import ListedMap, Placement
from nest_opt.problem.profile import GROUPS

# Two places in the list of seats.
Pair = tuple[int, int]
Kind = Literal[
    "tp", "cp", "ep", "hop in", "hop out", "dense", "expert", "dense between", "expert between",
    "tied",
]  # fmt: skip


@dataclass(frozen=True)
class Meeting:
    """Ranks that a term waits for.

    Attributes
    ----------
    stage, member
        The stage, and the replica (of hops and groups) or rank (of copies)
        of which the worst counts.
    kind
        The term: a kind of groups, a hop, copies of a class inside runs of
        replicas or between them, or the exchange of tied gradients.
    pairs
        Seats that meet.
    """

    stage: int
    member: int
    kind: Kind
    pairs: tuple[Pair, ...]


def seat_map(placement: Placement) -> ListedMap:
    """Return the device map in which seats are numbered: by stage, then replica, then rank."""
    seat = iter(range(placement.device_map.devices_used))
    return ListedMap(
        tuple(
            tuple(
                tuple(next(seat) for _ in range(own.block_size)) for _ in range(placement.replicas)
            )
            for own in placement.configurations
        )
    )


def meetings(placement: Placement, tied: bool) -> tuple[Meeting, ...]:
    """Return every meeting of a placement; `tied` says that its ends share parameters."""
    return tuple(meeting for meeting in _meetings(placement, tied) if meeting.pairs)


def _meetings(placement: Placement, tied: bool) -> Iterator[Meeting]:
    seats, last = seat_map(placement), placement.stages - 1
    for stage in range(placement.stages):
        for replica in range(placement.replicas):
            yield from _of_block(placement, seats, stage, replica)
        yield from _of_copies(placement, seats, stage)
        if tied and last > 0 and stage in (0, last):
            ends = (
                pair
                for replica in range(placement.replicas)
                for pair in zip(seats.block(replica, 0), seats.block(replica, last), strict=True)
            )
            yield Meeting(stage, 0, "tied", tuple(ends))


def _of_block(
    placement: Placement, seats: ListedMap, stage: int, replica: int
) -> Iterator[Meeting]:
    """Yield the groups and hops of a block; with chunks the pipeline goes round."""
    choices, stages = placement.configurations, placement.stages
    own, block = choices[stage], seats.block(replica, stage)
    for group in GROUPS:
        if own.degree(group) > 1:
            yield Meeting(stage, replica, group, _all(block_groups(block, own, group)))
    goes_round = placement.schedule.is_interleaved and stages > 1
    sides: tuple[tuple[Kind, int], ...] = (("hop in", stage - 1), ("hop out", stage + 1))
    for kind, other in sides:
        if 0 <= other < stages or goes_round:
            ends = hop_ends(seats, choices, replica, stage, other % stages)
            yield Meeting(stage, replica, kind, tuple(ends))


def _of_copies(placement: Placement, seats: ListedMap, stage: int) -> Iterator[Meeting]:
    """Yield the copies of each rank of a stage, inside runs of replicas and between them."""
    own = placement.configurations[stage]
    for rank in (t + own.tp * own.cp * e for e in range(own.ep) for t in range(own.tp)):
        for name in CLASSES:
            runs = placement.zero.runs(name)
            copies = sync_group(seats, own, name, stage, rank)
            inside = len(copies) // runs
            of_run = [copies[at : at + inside] for at in range(0, len(copies), inside)]
            yield Meeting(stage, rank, name, _all(of_run))
            if runs > 1:
                equals = [copies[place::inside] for place in range(inside)]
                yield Meeting(stage, rank, between_kind(name), _all(equals))


def between_kind(name: ParameterClass) -> Kind:
    """Return the kind of meeting of a class's equals between runs."""
    return "dense between" if name == "dense" else "expert between"


def _all(groups: Iterable[Iterable[int]]) -> tuple[Pair, ...]:
    """Return every two members of each group."""
    return tuple(pair for group in groups for pair in combinations(group, 2))
