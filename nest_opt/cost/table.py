"""The cost table: every coefficient of the default cost model, as integers.

It is the only source of numbers for the evaluator, the dynamic program and
any other solver of the same problem. Layers of one type share a row. Each
entry is rounded once, from exact rationals; whatever is computed from the
table afterwards is exact. `nest_opt.cost.build` computes it, `nest_opt.cost.table_file`
writes and reads it (`docs/cost_table.md` specifies the format).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from nest_opt.errors import InstanceError
from nest_opt.network.spread import Rates, every_spread, flat_rates
from nest_opt.problem import Configuration
from nest_opt.problem.profile import GROUPS, Group, Recompute
from nest_opt.problem.zero import NOT_SHARDED, Zero

ParameterClass = Literal["dense", "expert"]
CLASSES: tuple[ParameterClass, ...] = ("dense", "expert")
SyncOperation = Literal["all-reduce", "reduce-scatter", "all-gather"]
OPERATIONS: tuple[SyncOperation, ...] = ("all-reduce", "reduce-scatter", "all-gather")

# One microbatch through the whole pipeline, and one device's bytes, must leave
# the search arrays (int64, infinity at 2**61) room for one addition.
MAX_TOTAL = 2**60

Row = tuple[int, ...]


@dataclass(frozen=True)
class PairCosts:
    """Costs of one (microbatch size, configuration), one entry per row.

    Attributes
    ----------
    forward_ps, backward_ps
        Compute time of a microbatch; backward is both of its parts.
    weight_gradient_ps
        The part of the backward that makes gradients of weights.
    repeated_forward_ps
        Of the forward time, what `selective` runs again; 0 where the pair lacks that mode.
    forward_collective_ps, backward_collective_ps
        Per group kind and network level, the time of a row's collectives.
    parameters
        Per class, parameters per rank.
    states_bytes
        Weights, gradients and optimizer states.
    stash_bytes, work_bytes
        Per recomputation mode.
    hop_ps
        Per network level, the time of a transfer over each cut; cut c lies
        before layer c, so entries 0 and n belong to no boundary.
    """

    forward_ps: Row
    backward_ps: Row
    weight_gradient_ps: Row
    repeated_forward_ps: Row
    forward_collective_ps: Mapping[Group, tuple[Row, ...]]
    backward_collective_ps: Mapping[Group, tuple[Row, ...]]
    parameters: Mapping[ParameterClass, Row]
    states_bytes: Row
    stash_bytes: Mapping[Recompute, Row]
    work_bytes: Mapping[Recompute, Row]
    hop_ps: tuple[Row, ...]


@dataclass(frozen=True)
class SyncCosts:
    """A collective over the copies of one class: `fixed_ps` a call plus `row_ps` a layer."""

    fixed_ps: int
    row_ps: Row


@dataclass(frozen=True)
class SyncKey:
    """What a collective over copies depends on: class, copies, their spread and operation.

    An all-reduce and a reduce-scatter are of gradients, an all-gather is of weights; an
    all-reduce between runs of replicas is of one of `shares` equal shares of them.
    """

    configuration: Configuration
    parameter_class: ParameterClass
    copies: int
    spread: int
    operation: SyncOperation = "all-reduce"
    shares: int = 1


@dataclass(frozen=True)
class ShardKey:
    """What memory under ZeRO depends on: class, copies that share it out, and level z."""

    configuration: Configuration
    parameter_class: ParameterClass
    copies: int
    zero: int


@dataclass(frozen=True)
class ShardCosts:
    """Memory of one class under ZeRO, one entry per row.

    Attributes
    ----------
    states_bytes
        Weights, gradients and optimizer states.
    work_bytes
        What of a layer is whole while that layer computes.
    """

    states_bytes: Row
    work_bytes: Row


@dataclass(frozen=True)
class TiedKey:
    """What the exchange of tied gradients depends on.

    Attributes
    ----------
    tp
        Of both ends, which is all that splits the parameters.
    share
        Ranks over which their gradients are sharded; 1 if they are not.
    level
        Network level of the two ranks.
    """

    tp: int
    share: int
    level: int


@dataclass(frozen=True)
class TiedCosts:
    """What the parameters cost that the last layer shares with the first: (65) and (66).

    Attributes
    ----------
    row
        The row of the last layer without them, for a stage that holds both layers.
    exchange_ps
        The all-reduce of their gradients between two ranks.
    """

    row: int
    exchange_ps: Mapping[TiedKey, int]


@dataclass(frozen=True)
class CostTable:
    """All coefficients of a problem under the default cost model.

    Attributes
    ----------
    layer_rows
        Row of each layer, in the listed order.
    level_count
        Network levels.
    rates
        What spreads have beside their level; None where the level alone decides.
    usable_bytes, reserve_bytes
        Memory of a device that may be filled, and the part kept free.
    replicas
        Legal data-parallel degrees of each (microbatch size, configuration).
    pairs, sync
        The coefficients.
    zero, shards
        What the search space may shard, and the memory of each class where anything is.
    tied
        What the last layer shares with the first, None if nothing.
    """

    layer_rows: Row
    level_count: int
    usable_bytes: int
    reserve_bytes: int
    replicas: Mapping[tuple[int, Configuration], tuple[int, ...]]
    pairs: Mapping[tuple[int, Configuration], PairCosts]
    sync: Mapping[SyncKey, SyncCosts]
    zero: tuple[Zero, ...] = (NOT_SHARDED,)
    shards: Mapping[ShardKey, ShardCosts] = field(default_factory=dict)
    tied: TiedCosts | None = None
    rates: Rates | None = None

    def spreads(self, copies: int) -> tuple[int, ...]:
        """Return every spread that so many copies may have."""
        return every_spread(self.rates or flat_rates(self.level_count), copies)

    @property
    def layer_count(self) -> int:
        """n, the number of layers."""
        return len(self.layer_rows)

    def own_rows(self, low: int, high: int) -> Row:
        """Return rows of layers low, ..., high - 1 for states and the sync of a batch.

        With the first layer and the last, tied parameters are there once: (65).
        """
        rows = self.layer_rows[low:high]
        if self.tied is None or (low, high) != (0, self.layer_count):
            return rows
        return (*rows[:-1], self.tied.row)


def row_times(
    costs: PairCosts, configuration: Configuration, levels: Sequence[int]
) -> dict[Recompute, Row]:
    """Return the time of each row under each mode, hops aside: (8) and (9).

    `levels` are those of the tp, cp and ep groups. `none` is always there.
    """
    groups = [
        (group, level)
        for group, level in zip(GROUPS, levels, strict=False)
        if configuration.degree(group) > 1
    ]
    forward = _added(
        costs.forward_ps, *(costs.forward_collective_ps[group][level] for group, level in groups)
    )
    plain = _added(
        forward,
        costs.backward_ps,
        *(costs.backward_collective_ps[group][level] for group, level in groups),
    )
    repeated: dict[Recompute, Row] = {"selective": costs.repeated_forward_ps, "full": forward}
    return {
        "none": plain,
        **{mode: _added(plain, row) for mode, row in repeated.items() if mode in costs.stash_bytes},
    }


def _added(*rows: Row) -> Row:
    return tuple(map(sum, zip(*rows, strict=True)))


def copies(configuration: Configuration, parameter_class: ParameterClass, replicas: int) -> int:
    """Return R, the ranks that hold the same parameters of a class."""
    streams = configuration.cp * replicas
    return streams * configuration.ep if parameter_class == "dense" else streams


def refuse_overflow(table: CostTable) -> None:
    """Refuse a table whose totals leave the range of the search arrays.

    Raises
    ------
    InstanceError
        If one microbatch through all layers, one device's bytes with all
        layers, or one sync of all layers reaches `MAX_TOTAL`.
    """
    top = table.level_count - 1
    for (microbatch, configuration), pair in table.pairs.items():
        name = f"profiles for microbatch={microbatch} {configuration}"
        time = [
            2 * (f + sum(pair.forward_collective_ps[g][top][row] for g in GROUPS))
            + b
            + sum(pair.backward_collective_ps[g][top][row] for g in GROUPS)
            for row, (f, b) in enumerate(zip(pair.forward_ps, pair.backward_ps, strict=True))
        ]
        layers = sum(time[row] for row in table.layer_rows)
        refuse_total(name, layers + 2 * sum(pair.hop_ps[top]), "ps")
        for mode in pair.stash_bytes:
            size = [
                s + t + w
                for s, t, w in zip(
                    pair.states_bytes, pair.stash_bytes[mode], pair.work_bytes[mode], strict=True
                )
            ]
            refuse_total(name, sum(size[row] for row in table.layer_rows), "bytes")
    counts = Counter(table.layer_rows).items()
    for key, sync in table.sync.items():
        total = sync.fixed_ps + sum(count * sync.row_ps[row] for row, count in counts)
        if any(table.zero):
            # Both classes at once, and in every layer a call of its own three times a microbatch.
            total = 8 * (table.layer_count * sync.fixed_ps + total)
        what = "gradient all-reduce" if key.operation == "all-reduce" else key.operation
        refuse_total(f"{what} over {key.copies} ranks", total, "ps")
    for exchange in table.tied.exchange_ps.values() if table.tied else ():
        # Beside the syncs of both classes.
        refuse_total("all-reduce of tied gradients over 2 ranks", 8 * exchange, "ps")


def refuse_total(what: str, total: int, unit: str) -> None:
    """Raise InstanceError if a total reaches `MAX_TOTAL`."""
    if total >= MAX_TOTAL:
        raise InstanceError(
            f"{what}: found {total:.3e} {unit} in all, less than {MAX_TOTAL:.3e} {unit} is needed: "
            "check the units of profiles, bandwidths and latencies (seconds, bytes, bytes/s)"
        )
