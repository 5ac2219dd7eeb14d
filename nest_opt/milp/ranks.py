"""Ranks whose devices a program chooses: which are told apart, and what must be close.

On a hierarchical network only the groups that devices are in matter. Ranks of
one kind (tp, cp or ep) are counted per innermost group, not told apart: ranks
with the same place in the two other kinds are a *slot*. The docs prove that
the counts of slots decide every level: number the counted ranks of each slot
by device; then equal ranks of two slots are all inside level-l groups exactly
if the two have equal shares of their ranks in each level-l group. No Pyomo here.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

from nest_opt.cost.table import CLASSES, ParameterClass, copies
from nest_opt.milp.levels import Levels
from nest_opt.network.pair_levels import PairLevels
from nest_opt.problem import Configuration
from nest_opt.problem.profile import GROUPS, Group
from nest_opt.problem.zero import Zero

# Places in the two kinds that are not counted, in the order tp, cp, ep.
Slot = tuple[int, int]


@dataclass(frozen=True)
class Near:
    """Slots that must be near each other.

    Attributes
    ----------
    slots
        The slots.
    together
        Whether all ranks must be in one group, or equal ranks only.
    """

    slots: tuple[Slot, ...]
    together: bool


@dataclass(frozen=True)
class Ranks:
    """How the ranks of a cell's blocks are told apart.

    Attributes
    ----------
    counted
        The kind of which only numbers per group are known.
    """

    counted: Group

    @property
    def _others(self) -> tuple[Group, Group]:
        first, second = (kind for kind in GROUPS if kind != self.counted)
        return first, second

    def width(self, k: Configuration) -> int:
        """Return the ranks of a slot."""
        return k.degree(self.counted)

    @lru_cache(maxsize=1024)  # noqa: B019 - few instances, all alike
    def slots(self, k: Configuration) -> tuple[Slot, ...]:
        """Return the slots of a block."""
        first, second = self._others
        return tuple(product(range(k.degree(first)), range(k.degree(second))))

    def coordinates(self, slot: Slot, number: int) -> tuple[int, int, int]:
        """Return the (tp, cp, ep) ranks of a slot's rank of a number."""
        first, second = self._others
        of_kind = {self.counted: number, first: slot[0], second: slot[1]}
        return of_kind["tp"], of_kind["cp"], of_kind["ep"]

    @lru_cache(maxsize=1024)  # noqa: B019
    def shapes(self, choices: Sequence[Configuration]) -> tuple[tuple[Configuration, ...], ...]:
        """Return choices by the slots that they have."""
        found: dict[tuple[Slot, ...], list[Configuration]] = {}
        for k in choices:
            found.setdefault(self.slots(k), []).append(k)
        return tuple(map(tuple, found.values()))

    def inside(self, k: Configuration, kind: Group) -> tuple[Near, ...]:
        """Return what is near within one block when its groups of a kind are."""
        if kind == self.counted:
            return tuple(Near((slot,), True) for slot in self.slots(k))
        other = 1 - self._others.index(kind)
        return tuple(
            Near(tuple(slot for slot in self.slots(k) if slot[other] == place), False)
            for place in range(k.degree(self._others[other]))
        )

    def sync(self, k: Configuration) -> tuple[tuple[Near, Near], ...]:
        """Return what is near over the replicas of a run when the copies of a rank are.

        A pair (dense, expert) for each sort of ranks: dense copies are the
        ranks with the same place in tp, expert ones have the same in ep as
        well. Of counted ranks, the worst of each class is the same one.
        """

        def near(kinds: tuple[Group, ...], slot: Slot) -> Near:
            places = [place for place, kind in enumerate(self._others) if kind in kinds]
            alike = tuple(s for s in self.slots(k) if all(s[p] == slot[p] for p in places))
            return Near(alike, self.counted not in kinds)

        pairs = (((near(("tp",), s)), near(("tp", "ep"), s)) for s in self.slots(k))
        return tuple(dict.fromkeys(pairs))

    def hop(
        self, here: Configuration, there: Configuration, whole: bool
    ) -> Iterator[tuple[Slot, Slot]]:
        """Yield the slots of two neighbours whose equal ranks pass tensors on to each other.

        `whole` says that their sp differs: one side has slices of tensors and
        the other all of them, so that each tp rank passes to each. Where tp
        ranks are counted that is no matter of equal ranks.
        """
        if self.counted == "tp":
            yield from zip(self.slots(here), self.slots(there), strict=True)
            return
        for (t, one), (u, other) in product(self.slots(here), self.slots(there)):
            overlap = t * there.tp < (u + 1) * here.tp and u * here.tp < (t + 1) * there.tp
            if one == other and (overlap or whole):
                yield (t, one), (u, other)


def ranks(choices: Sequence[Configuration], replicas: int, zero: Zero) -> Ranks:
    """Return how to tell the ranks of a cell apart: the kind of most ranks is counted.

    Not tp where a rank's dense copies may be on another level than its expert
    ones, and another rank's the other way round: then each tp rank has sums
    of its own. With several runs of replicas, so has each rank of tp and ep,
    of its level inside runs and that between; cp ranks hold the same, and
    share both.
    """
    if zero.instances > 1:
        return Ranks("cp")
    cp, ep = choices[0].cp, choices[0].ep
    tp = max(k.tp for k in choices)
    own_sums = tp > 1 and ep > 1 and cp * replicas > 1
    if not own_sums and (tp >= max(cp, ep) or len({k.tp for k in choices}) > 1):
        return Ranks("tp")
    return Ranks("ep" if ep >= cp else "cp")


@dataclass(frozen=True)
class LeastLevels:
    """The lowest levels that a stage can have, each by itself; `sync` as in `StageLevels`."""

    inside: Levels
    hop: int
    sync: Levels


def least_levels(
    capacities: Sequence[int], k: Configuration, replicas: int, zero: Zero
) -> LeastLevels:
    """Return the least levels, from the devices of the fullest group of each level."""

    def least(devices: int) -> int:
        return next((lev for lev, size in enumerate(capacities) if size >= devices), 0)

    return LeastLevels(
        tuple(least(k.degree(kind)) for kind in GROUPS),
        least(2),
        (
            *(least(copies(k, name, replicas) // zero.runs(name)) for name in CLASSES),
            *(least(zero.runs(name)) for name in CLASSES),
        ),
    )


def least_pair_levels(
    pairs: PairLevels, k: Configuration, replicas: int, zero: Zero, together: bool
) -> LeastLevels:
    """Return the levels that terms of a stage reach, where pairs decide levels: (94).

    Sets of devices that have none in common cannot all be near where there
    are too few such sets, so the worst of them is not.

    Parameters
    ----------
    together
        Whether the worst replica and the worst rank are meant, whose terms
        are added up: then of one kind of groups the worst of all replicas counts, and
        of dense copies the worst of all ranks. Else every replica and rank by itself.
    """
    block, free = k.block_size, replicas if together else 1
    inside = []
    for kind in GROUPS:
        size = k.degree(kind)
        inside.append(pairs.least(size, free * block // size))
        # The worst group of another kind may be another replica's.
        free = free if size == 1 else 1

    def sync(name: ParameterClass, shards: int) -> int:
        runs = zero.runs(name)
        return pairs.least(copies(k, name, replicas) // runs, shards * runs)

    return LeastLevels(
        tuple(inside),
        # Where tp differs, this many pairs have no device in common.
        pairs.least(2, k.cp * k.ep),
        (
            sync("dense", k.tp if together else 1),
            sync("expert", 1),
            *(pairs.least(zero.runs(name), 1) for name in CLASSES),
        ),
    )
