"""What a ZeRO level makes of a stage's memory, of its sync and of its rounds."""

from collections.abc import Iterator, Sequence
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
from nest_opt.problem import Configuration, Zero


class CopyLevels(NamedTuple):
    """Spreads of a class's copies: those inside a run of replicas, and equals between."""

    inside: int
    between: int = 0


class Sharding(NamedTuple):
    """A ZeRO level with all that its costs depend on, the pair aside.

    Attributes
    ----------
    zero
        z of each class, and h: what is sharded over the copies of a parameter,
        and in how many runs of replicas.
    replicas, rounds
        d and m.
    """

    zero: Zero
    replicas: int
    rounds: int

    def inside(self, configuration: Configuration, name: ParameterClass) -> int:
        """Return R / h, the copies that share out a class; all R where nothing is shared."""
        return copies(configuration, name, self.replicas) // self.zero.runs(name)

    def step_operations(self, name: ParameterClass) -> tuple[SyncOperation, ...]:
        """Return what a class does over the copies of a run once a batch: equation (15)."""
        zero = self.zero.level(name)
        if zero == 0:
            return ("all-reduce",)
        if zero == 1 or (zero == 2 and self.rounds == 1):
            return ("reduce-scatter", "all-gather")
        return ("all-gather",) if zero == 2 else ()

    def round_operations(self, name: ParameterClass) -> tuple[SyncOperation, ...]:
        """Return what each layer does over the copies of a run in every microbatch: (60)."""
        zero = self.zero.level(name)
        if zero == 3:
            return ("all-gather", "all-gather", "reduce-scatter")
        return ("reduce-scatter",) if zero == 2 and self.rounds > 1 else ()

    @property
    def has_rounds(self) -> bool:
        """Whether any class has collectives over copies in a microbatch."""
        return any(self.round_operations(name) for name in CLASSES)

    def tied_share(self, configuration: Configuration) -> int:
        """Return the ranks over which the gradients of tied parameters are sharded.

        Both ends have equally many copies, so that equal ranks hold equal shares.
        """
        return self.inside(configuration, "dense") if self.zero.level("dense") >= 2 else 1


class Call(NamedTuple):
    """A collective that a table must have in every spread: see `SyncKey`."""

    operation: SyncOperation
    copies: int
    shares: int = 1


def calls_of(
    configuration: Configuration, name: ParameterClass, zero: Zero, replicas: int
) -> Iterator[Call]:
    """Yield every collective over copies of a class, whatever the number of rounds."""
    sharding = Sharding(zero, replicas, 1)
    inside, runs = sharding.inside(configuration, name), zero.runs(name)
    operations: Sequence[SyncOperation] = (
        ("reduce-scatter", "all-gather") if zero.level(name) else ("all-reduce",)
    )
    if inside > 1:
        yield from (Call(operation, inside) for operation in operations)
    if runs > 1:
        yield Call("all-reduce", runs, inside)


def fits_replicas(zero: Zero, replicas: int) -> bool:
    """Whether d replicas are h equal runs."""
    return replicas % zero.instances == 0


def sharded_pair(
    table: CostTable, pair: tuple[int, Configuration], sharding: Sharding
) -> PairCosts:
    """Return the costs of a pair with the memory of a ZeRO level: equations (12) and (61)."""
    costs = table.pairs[pair]
    if not sharding.zero:
        return costs
    shards = [
        table.shards[
            ShardKey(pair[1], name, sharding.inside(pair[1], name), sharding.zero.level(name))
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
    levels: CopyLevels,
) -> SyncCosts | None:
    """Return the sync of a class once a batch; None if it has one copy or no such collective."""
    found = (
        run_sync(table, configuration, name, sharding, levels.inside),
        between_sync(table, configuration, name, sharding, levels.between),
    )
    return _added([cost for cost in found if cost is not None])


def run_sync(
    table: CostTable,
    configuration: Configuration,
    name: ParameterClass,
    sharding: Sharding,
    spread: int,
) -> SyncCosts | None:
    """Return the part of a class's sync over the copies of one run; None if there is none."""
    operations = sharding.step_operations(name)
    return _added(_calls(table, configuration, name, sharding, spread, operations))


def between_sync(
    table: CostTable,
    configuration: Configuration,
    name: ParameterClass,
    sharding: Sharding,
    spread: int,
) -> SyncCosts | None:
    """Return the all-reduce of a class's shard between runs; None if there is one run."""
    runs = sharding.zero.runs(name)
    if runs == 1:
        return None
    shares = sharding.inside(configuration, name)
    return table.sync[SyncKey(configuration, name, runs, spread, "all-reduce", shares)]


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
    levels: Sequence[CopyLevels],
    only: SyncOperation | None = None,
    classes: Sequence[ParameterClass] = CLASSES,
) -> Row | None:
    """Return what each row's collectives over its copies take in a round; None if there are none.

    `levels` are the spreads of the copies of each class, `only` is the operation
    that counts where not all do, `classes` those that count. A layer calls
    them by itself: its latency is in every one, and layers without parameters
    of a class call nothing.
    """
    found = []
    for name, (inside, _) in zip(CLASSES, levels, strict=True):
        parameters = table.pairs[pair].parameters[name]
        if name not in classes:
            continue
        operations = [what for what in sharding.round_operations(name) if only in (None, what)]
        found += [
            tuple(
                call.fixed_ps + time if count else 0
                for count, time in zip(parameters, call.row_ps, strict=True)
            )
            for call in _calls(table, pair[1], name, sharding, inside, operations)
        ]
    return _sum(found) if found else None


def _calls(
    table: CostTable,
    configuration: Configuration,
    name: ParameterClass,
    sharding: Sharding,
    spread: int,
    operations: Sequence[SyncOperation],
) -> list[SyncCosts]:
    ranks = sharding.inside(configuration, name)
    if ranks == 1:
        return []
    return [table.sync[SyncKey(configuration, name, ranks, spread, what)] for what in operations]


def _added(calls: Sequence[SyncCosts]) -> SyncCosts | None:
    if not calls:
        return None
    return SyncCosts(sum(call.fixed_ps for call in calls), _sum([call.row_ps for call in calls]))


def _sum(rows: Sequence[Row]) -> Row:
    return tuple(map(sum, zip(*rows, strict=True)))
