"""What a ZeRO level makes of a stage's memory, of its sync and of its rounds."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from nest_opt.cost.table import (
    CLASSES,
    CostTable,
    PairCosts,
    ParameterClass,
    Row,
    ShardKey,
    SyncCosts,
    SyncKey,
    SyncOperation,
    TiedKey,
    copies,
)
from nest_opt.problem import Configuration


class Sharding(NamedTuple):
    """A ZeRO level with all that its costs depend on, the pair aside.

    Attributes
    ----------
    zero
        z: what is sharded over the copies of a parameter. 0 nothing, 1
        optimizer states, 2 gradients too, 3 weights too.
    replicas, rounds
        d and m.
    """

    zero: int
    replicas: int
    rounds: int

    @property
    def step_operations(self) -> tuple[SyncOperation, ...]:
        """What a stage does over its copies once a batch: equation (15)."""
        if self.zero == 0:
            return ("all-reduce",)
        if self.zero == 1 or (self.zero == 2 and self.rounds == 1):
            return ("reduce-scatter", "all-gather")
        return ("all-gather",) if self.zero == 2 else ()

    @property
    def round_operations(self) -> tuple[SyncOperation, ...]:
        """What each layer does over its copies in every microbatch: equation (60)."""
        if self.zero == 3:
            return ("all-gather", "all-gather", "reduce-scatter")
        return ("reduce-scatter",) if self.zero == 2 and self.rounds > 1 else ()

    def tied_share(self, configuration: Configuration) -> int:
        """Return the ranks over which the gradients of tied parameters are sharded.

        Both ends have equally many copies, so that equal ranks hold equal shares.
        """
        return copies(configuration, "dense", self.replicas) if self.zero >= 2 else 1


def sharded_pair(
    table: CostTable, pair: tuple[int, Configuration], sharding: Sharding
) -> PairCosts:
    """Return the costs of a pair with the memory of a ZeRO level: equations (12) and (61)."""
    costs = table.pairs[pair]
    if sharding.zero == 0:
        return costs
    shards = [
        table.shards[
            ShardKey(pair[1], name, copies(pair[1], name, sharding.replicas), sharding.zero)
        ]
        for name in CLASSES
    ]
    extra = _sum([shard.work_bytes for shard in shards])
    return replace(
        costs,
        states_bytes=_sum([shard.states_bytes for shard in shards]),
        work_bytes={mode: _sum([work, extra]) for mode, work in costs.work_bytes.items()},
    )


def step_sync(
    table: CostTable,
    configuration: Configuration,
    name: ParameterClass,
    sharding: Sharding,
    level: int,
) -> SyncCosts | None:
    """Return the sync of a class once a batch; None if it has one copy or no such collective."""
    calls = _calls(table, configuration, name, sharding, level, sharding.step_operations)
    if not calls:
        return None
    return SyncCosts(sum(call.fixed_ps for call in calls), _sum([call.row_ps for call in calls]))


def exchange_time(
    table: CostTable, configuration: Configuration, sharding: Sharding, level: int
) -> int:
    """Return what first and last stage pay for the gradients of tied parameters: (66)."""
    if table.tied is None:
        return 0
    key = TiedKey(configuration.tp, sharding.tied_share(configuration), level)
    return table.tied.exchange_ps[key]


def round_times(
    table: CostTable,
    pair: tuple[int, Configuration],
    sharding: Sharding,
    levels: Sequence[int],
    operations: Sequence[SyncOperation] | None = None,
) -> Row | None:
    """Return what each row's collectives over its copies take in a round; None if there are none.

    `levels` are those of the copies of each class, `operations` some of those
    of a round. A layer calls them by itself: its latency is in every one, and
    layers without parameters of a class call nothing.
    """
    if operations is None:
        operations = sharding.round_operations
    found = []
    for name, level in zip(CLASSES, levels, strict=True):
        parameters = table.pairs[pair].parameters[name]
        found += [
            tuple(
                call.fixed_ps + time if count else 0
                for count, time in zip(parameters, call.row_ps, strict=True)
            )
            for call in _calls(table, pair[1], name, sharding, level, operations)
        ]
    return _sum(found) if found else None


def _calls(
    table: CostTable,
    configuration: Configuration,
    name: ParameterClass,
    sharding: Sharding,
    level: int,
    operations: Sequence[SyncOperation],
) -> list[SyncCosts]:
    ranks = copies(configuration, name, sharding.replicas)
    if ranks == 1:
        return []
    return [table.sync[SyncKey(configuration, name, ranks, level, what)] for what in operations]


def _sum(rows: Sequence[Row]) -> Row:
    return tuple(map(sum, zip(*rows, strict=True)))
