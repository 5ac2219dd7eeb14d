"""Which ranks of a plan meet: what its devices have to do with its cost.

A *meeting* is a term of a stage's time or sync with the pairs of seats that it
waits for: its level is the worst of theirs. The sets of ranks are those of the
evaluator, asked of a map in which seats stand for devices.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

from nest_opt.cost.table import CLASSES
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
    seats, choices = seat_map(placement), placement.configurations
    last = placement.stages - 1
    round_trip = placement.schedule.is_interleaved and last > 0
    for stage, own in enumerate(choices):
        for replica in range(placement.replicas):
            block = seats.block(replica, stage)
            for group in GROUPS:
                if own.degree(group) > 1:
                    yield Meeting(stage, replica, group, _all(block_groups(block, own, group)))
            for kind, step in (("hop in", -1), ("hop out", 1)):
                other = stage + step
                if 0 <= other <= last or round_trip:
                    ends = hop_ends(seats, choices, replica, stage, other % (last + 1))
                    yield Meeting(stage, replica, "hop in" if step < 0 else "hop out", tuple(ends))
        for rank in (t + own.tp * own.cp * e for e in range(own.ep) for t in range(own.tp)):
            for name in CLASSES:
                copies = sync_group(seats, own, name, stage, rank)
                inside = len(copies) // placement.zero.runs(name)
                runs = [copies[at : at + inside] for at in range(0, len(copies), inside)]
                yield Meeting(stage, rank, name, _all(runs))
                equals = [copies[place::inside] for place in range(inside)]
                between: Kind = "dense between" if name == "dense" else "expert between"
                if placement.zero.runs(name) > 1:
                    yield Meeting(stage, rank, between, _all(equals))
        if tied and last > 0 and stage in (0, last):
            ends = (
                pair
                for replica in range(placement.replicas)
                for pair in zip(seats.block(replica, 0), seats.block(replica, last), strict=True)
            )
            yield Meeting(stage, 0, "tied", tuple(ends))


def _all(groups: Iterable[Iterable[int]]) -> tuple[Pair, ...]:
    """Return every two members of each group."""
    return tuple(pair for group in groups for pair in combinations(group, 2))
