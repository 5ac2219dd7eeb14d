"""Writing and reading cost tables: `docs/cost_table.md` specifies the format.

A table comes with a certificate, whose maker is not trusted: what this module
accepts, the search and the evaluator can use without further checks.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import cache
from itertools import pairwise, product
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from nest_opt.cost.sharding import Sharding, calls_of, fits_replicas
from nest_opt.cost.table import (
    CLASSES,
    MAX_TOTAL,
    CostTable,
    PairCosts,
    ParameterClass,
    Row,
    ShardCosts,
    ShardKey,
    SyncCosts,
    SyncKey,
    SyncOperation,
    TiedCosts,
    TiedKey,
    refuse_overflow,
)
from nest_opt.errors import InstanceError
from nest_opt.problem import Configuration
from nest_opt.problem.base import Degree, Flag, Frozen, Positive
from nest_opt.problem.hierarchical import MAX_RATES
from nest_opt.problem.profile import GROUPS, Group, Recompute
from nest_opt.problem.zero import Zero, ZeroLevel, ZeroValue, zero_json, zero_of

_Amount = Annotated[int, Field(strict=True, ge=0, lt=MAX_TOTAL)]
_Amounts = tuple[_Amount, ...]
_Degrees = tuple[Degree, Degree, Degree, Flag]


class _PairEntry(Frozen):
    """One entry of `pairs`: its key, its legal d and the fields of `PairCosts`."""

    microbatch: Positive
    configuration: _Degrees
    replicas: tuple[Degree, ...]
    forward_ps: _Amounts
    backward_ps: _Amounts
    weight_gradient_ps: _Amounts
    repeated_forward_ps: _Amounts
    forward_collective_ps: dict[Group, tuple[_Amounts, ...]]
    backward_collective_ps: dict[Group, tuple[_Amounts, ...]]
    parameters: dict[ParameterClass, _Amounts]
    states_bytes: _Amounts
    stash_bytes: dict[Recompute, _Amounts] = Field(min_length=1)
    work_bytes: dict[Recompute, _Amounts]
    hop_ps: tuple[_Amounts, ...]

    @property
    def key(self) -> tuple[int, Configuration]:
        """(microbatch size, configuration)."""
        return self.microbatch, Configuration(*self.configuration)

    def costs(self) -> PairCosts:
        """Return the entry without its key and degrees."""
        return PairCosts(**{field.name: getattr(self, field.name) for field in fields(PairCosts)})

    def rows(self) -> Iterator[tuple[str, Row]]:
        """Yield every array that has one entry a row, with the name of its field."""
        for name in (
            "forward_ps",
            "backward_ps",
            "weight_gradient_ps",
            "repeated_forward_ps",
            "states_bytes",
        ):
            yield name, getattr(self, name)
        for name in ("parameters", "stash_bytes", "work_bytes"):
            yield from ((name, row) for row in getattr(self, name).values())
        for name in ("forward_collective_ps", "backward_collective_ps"):
            yield from ((name, row) for rows in getattr(self, name).values() for row in rows)

    def levels(self) -> Iterator[tuple[str, tuple[Row, ...]]]:
        """Yield every array that has one entry a network level, with the name of its field."""
        yield "hop_ps", self.hop_ps
        for name in ("forward_collective_ps", "backward_collective_ps"):
            yield from ((name, rows) for rows in getattr(self, name).values())


class _SyncEntry(Frozen):
    """One entry of `sync`: the fields of `SyncKey` and `SyncCosts`."""

    configuration: _Degrees
    parameter_class: ParameterClass = Field(alias="class")
    copies: Positive
    level: _Amount
    rate: _Amount = 0
    operation: SyncOperation = "all-reduce"
    shares: Positive = 1
    fixed_ps: _Amount
    row_ps: _Amounts

    def key(self, levels: int) -> SyncKey:
        """Return what the costs belong to, on a network of so many levels."""
        configuration, spread = Configuration(*self.configuration), self.level + levels * self.rate
        return SyncKey(
            configuration, self.parameter_class, self.copies, spread, self.operation, self.shares
        )


class _ShardEntry(Frozen):
    """One entry of `shards`: the fields of `ShardKey` and `ShardCosts`."""

    configuration: _Degrees
    parameter_class: ParameterClass = Field(alias="class")
    copies: Positive
    zero: ZeroLevel
    states_bytes: _Amounts
    work_bytes: _Amounts

    @property
    def key(self) -> ShardKey:
        """What the costs belong to."""
        configuration = Configuration(*self.configuration)
        return ShardKey(configuration, self.parameter_class, self.copies, self.zero)


class _ExchangeEntry(Frozen):
    """One entry of `tied.exchange`: the fields of `TiedKey`, and the time."""

    tp: Degree
    share: Positive
    level: _Amount
    exchange_ps: _Amount

    @property
    def key(self) -> TiedKey:
        """What the time belongs to."""
        return TiedKey(self.tp, self.share, self.level)


class _TiedEntry(Frozen):
    """`tied`: the fields of `TiedCosts`."""

    row: _Amount
    exchange: tuple[_ExchangeEntry, ...]

    def costs(self) -> TiedCosts:
        """Return the entry as the table has it."""
        return TiedCosts(self.row, {entry.key: entry.exchange_ps for entry in self.exchange})


class _TableFile(Frozen):
    """A cost table's file."""

    format: Literal["nest-opt-cost-table"]
    version: Annotated[int, Field(strict=True, ge=1, le=1)]
    layer_rows: _Amounts = Field(min_length=1)
    levels: Annotated[int, Field(strict=True, ge=1)]
    usable_bytes: _Amount
    reserve_bytes: _Amount
    pairs: tuple[_PairEntry, ...] = Field(min_length=1)
    sync: tuple[_SyncEntry, ...]
    zero: Annotated[tuple[ZeroValue, ...], Field(min_length=1)] = (0,)
    shards: tuple[_ShardEntry, ...] = ()
    tied: _TiedEntry | None = None
    rates: tuple[_Amounts, ...] | None = None

    @property
    def row_count(self) -> int:
        """The rows: one a layer type, and one for the last layer without tied parameters."""
        return len(set(self.layer_rows)) + (self.tied is not None)


def table_from_json(data: Any, cuts: int | None = None) -> CostTable:
    """Return the table that `table_to_json` wrote.

    Parameters
    ----------
    data
        The JSON data.
    cuts
        The number of downsets, of a table in any order of layers; None: the listed one.

    Raises
    ------
    InstanceError
        If the data is not of the format: a field is missing, unknown or of
        another type; an array has another length than layers, rows and levels
        ask for; an entry is missing or comes twice; a time falls from one
        network level to the next; a part of a pass takes longer than the
        pass; or a total leaves the range of the search.
    """
    try:
        file = _TableFile.model_validate(data)
    except ValidationError as error:
        item = error.errors(include_url=False)[0]
        place = ".".join(map(str, item["loc"])) or "the table"
        found = "nothing" if item["type"] == "missing" else repr(item["input"])[:60]
        raise _malformed(place, found, item["msg"].removeprefix("Input ")) from error
    _refuse_shapes(file, cuts or len(file.layer_rows) + 1)
    _refuse_rates(file)
    table = CostTable(
        layer_rows=file.layer_rows,
        level_count=file.levels,
        usable_bytes=file.usable_bytes,
        reserve_bytes=file.reserve_bytes,
        replicas={entry.key: entry.replicas for entry in file.pairs},
        pairs={entry.key: entry.costs() for entry in file.pairs},
        sync={
            entry.key(file.levels): SyncCosts(entry.fixed_ps, entry.row_ps) for entry in file.sync
        },
        zero=tuple(map(zero_of, file.zero)),
        shards={
            entry.key: ShardCosts(entry.states_bytes, entry.work_bytes) for entry in file.shards
        },
        tied=file.tied.costs() if file.tied else None,
        rates=file.rates,
    )
    if len(table.pairs) < len(file.pairs):
        raise _malformed("pairs", "an entry 2 times", "1 is allowed")
    _refuse_syncs(file, table)
    shards = _shard_keys(table)
    if set(table.shards) != shards or len(table.shards) < len(file.shards):
        raise _malformed(
            "shards", f"{len(file.shards)} entries", f"{len(shards)} are needed: one for each "
            "configuration, class, number of copies and ZeRO level where one is above 0"
        )  # fmt: skip
    if file.tied:
        _refuse_tied(file, table)
    refuse_overflow(table)
    return table


def _refuse_rates(file: _TableFile) -> None:
    """Refuse rates that are no numbers of bandwidths: they never rise with the number of ranks."""
    for number, sync in enumerate(file.sync):
        if sync.level >= file.levels:
            raise _malformed(
                f"sync.{number}.level", sync.level, f"0 to {file.levels - 1} is needed"
            )
    if file.rates is None:
        return
    fine = len(file.rates) == file.levels - 1 and sum(map(len, file.rates)) <= MAX_RATES
    fine = fine and all(
        rates and all(low >= high for low, high in pairwise(rates)) for rates in file.rates
    )
    if not fine or not any(map(any, file.rates)):
        raise _malformed(
            "rates", f"{len(file.rates)} rows",
            f"{file.levels - 1} are needed, one a level above 0: numbers that never rise, of which "
            f"one at least is above 0, at most {MAX_RATES} in all",
        )  # fmt: skip


def _refuse_syncs(file: _TableFile, table: CostTable) -> None:
    """Refuse calls over copies other than those that the search may ask for, or that fall."""
    calls = {
        SyncKey(configuration, name, ranks, 0, operation, shares)
        for configuration, name, degree, zero in _shardings(table)
        for operation, ranks, shares in calls_of(configuration, name, zero, degree)
    }

    @cache
    def spreads(ports: int) -> frozenset[int]:
        return frozenset(table.spreads(2 * ports))

    def spreads_of(call: SyncKey) -> frozenset[int]:
        # More ports than there are rates make no difference.
        return spreads(min(call.copies // 2, MAX_RATES))

    needed = sum(len(spreads_of(call)) for call in calls)
    known = all(
        replace(key, spread=0) in calls and key.spread in spreads_of(key) for key in table.sync
    )
    if not known or not needed == len(table.sync) == len(file.sync):
        raise _malformed(
            "sync", f"{len(file.sync)} entries", f"{needed} are needed: one for each "
            "configuration, class, number of copies above 1 and spread"
        )  # fmt: skip
    _refuse_falling_sync(table)


def _refuse_falling_sync(table: CostTable) -> None:
    """Refuse calls that get faster with the level, or with a lower bandwidth.

    The fixed part is that of the level, the rest that of the bandwidth; without
    rates the level decides both.
    """
    levels = table.level_count
    found: dict[SyncKey, tuple[dict[int, Row], dict[int, Row]]] = {}
    for key, cost in table.sync.items():
        rate, level = divmod(key.spread, levels)
        parts = found.setdefault(replace(key, spread=0), ({}, {}))
        at = (level, rate if table.rates else level)
        for part, place, row in zip(parts, at, ((cost.fixed_ps,), cost.row_ps), strict=True):
            if part.setdefault(place, row) != row:
                raise _malformed(
                    "sync", f"{row} and {part[place]} ps for equal calls", "equal times are needed"
                )
    for parts in found.values():
        for part in parts:
            _refuse_falling("sync", [part[place] for place in sorted(part)])


def _refuse_tied(file: _TableFile, table: CostTable) -> None:
    """Refuse exchanges that are not those of the table, and a last layer that is none or grows."""
    assert file.tied is not None
    assert table.tied is not None
    last, own = table.layer_rows[-1], table.tied.row
    if own != file.row_count - 1:
        raise _malformed("tied.row", own, f"{file.row_count - 1} is needed, a row of no layer")
    if table.layer_rows.count(last) > 1:
        raise _malformed("tied", f"row {last} in several layers", "the last layer alone may be it")
    found, needed = table.tied.exchange_ps, _tied_keys(table)
    if set(found) != needed or len(found) < len(file.tied.exchange):
        raise _malformed(
            "tied.exchange", f"{len(file.tied.exchange)} entries",
            f"{len(needed)} are needed: one for each tp, share of gradients and level",
        )  # fmt: skip
    for key in needed:
        if key.level:
            lower = found[replace(key, level=key.level - 1)]
            _refuse_falling("tied.exchange", [(lower,), (found[key],)])
    rows = [("pairs", pair.states_bytes) for pair in table.pairs.values()]
    rows += [("shards", shard.states_bytes) for shard in table.shards.values()]
    rows += [("sync", sync.row_ps) for sync in table.sync.values()]
    for place, row in rows:
        if row[own] > row[last]:
            raise _malformed(
                f"{place}: row {own}", row[own],
                f"at most {row[last]} is allowed, as in row {last}, which has more parameters",
            )  # fmt: skip


def _tied_keys(table: CostTable) -> set[TiedKey]:
    """Return the keys that the search may ask a table's exchanges for."""
    return {
        TiedKey(configuration.tp, Sharding(zero, degree, 1).tied_share(configuration), level)
        for (_, configuration), degrees in table.replicas.items()
        for degree in degrees
        for zero in table.zero
        if fits_replicas(zero, degree)
        for level in range(table.level_count)
    }


def _malformed(place: str, found: object, allowed: str) -> InstanceError:
    return InstanceError(
        f"cost table (format nest-opt-cost-table, version 1): {place}: found {found}, {allowed}: "
        "write the table anew from its problem"
    )


def _refuse_shapes(file: _TableFile, cuts: int) -> None:
    """Refuse arrays and keys that are not those of the table's layers, rows and levels."""
    types, rows = len(set(file.layer_rows)), file.row_count
    if max(file.layer_rows) != types - 1:
        raise _malformed("layer_rows", max(file.layer_rows), f"rows 0 to {types - 1} are needed")

    def refuse_length(place: str, values: tuple[Any, ...], length: int, what: str) -> None:
        if len(values) != length:
            raise _malformed(place, f"{len(values)} entries", f"{length} are needed, one a {what}")

    for number, entry in enumerate(file.pairs):
        place = f"pairs.{number}"
        _refuse_keys(place, entry)
        for name, levels in entry.levels():
            refuse_length(f"{place}.{name}", levels, file.levels, "network level")
            _refuse_falling(f"{place}.{name}", levels)
        for name, row in entry.rows():
            refuse_length(f"{place}.{name}", row, rows, "row")
        _refuse_more(f"{place}.repeated_forward_ps", entry.repeated_forward_ps, entry.forward_ps)
        _refuse_more(f"{place}.weight_gradient_ps", entry.weight_gradient_ps, entry.backward_ps)
        for hops in entry.hop_ps:
            refuse_length(f"{place}.hop_ps", hops, cuts, "cut")
    for number, sync in enumerate(file.sync):
        refuse_length(f"sync.{number}.row_ps", sync.row_ps, rows, "row")
    for number, shard in enumerate(file.shards):
        refuse_length(f"shards.{number}.states_bytes", shard.states_bytes, rows, "row")
        refuse_length(f"shards.{number}.work_bytes", shard.work_bytes, rows, "row")


def _refuse_more(place: str, parts: Row, wholes: Row) -> None:
    """Refuse parts that are larger than what they are of."""
    for part, whole in zip(parts, wholes, strict=True):
        if part > whole:
            raise _malformed(
                place, f"{part} ps", f"at most {whole} ps, all of the pass, is allowed"
            )


def _refuse_falling(place: str, levels: Sequence[Row]) -> None:
    """Refuse times that fall with the level: the search looks at the highest levels alone."""
    for inner, outer in pairwise(levels):
        for low, high in zip(inner, outer, strict=False):
            if high < low:
                raise _malformed(
                    place, f"{high} ps a level above {low} ps", f"at least {low} ps is needed"
                )


def _refuse_keys(place: str, entry: _PairEntry) -> None:
    if list(entry.replicas) != sorted(set(entry.replicas)):
        raise _malformed(f"{place}.replicas", list(entry.replicas), "rising numbers are needed")
    keyed: list[tuple[str, Mapping[Any, Any], tuple[str, ...]]] = [
        ("forward_collective_ps", entry.forward_collective_ps, GROUPS),
        ("backward_collective_ps", entry.backward_collective_ps, GROUPS),
        ("parameters", entry.parameters, CLASSES),
        ("work_bytes", entry.work_bytes, tuple(entry.stash_bytes)),
    ]
    for name, mapping, keys in keyed:
        if set(mapping) != set(keys):
            raise _malformed(f"{place}.{name}", f"keys {list(mapping)}", f"{keys} are needed")


def _shard_keys(table: CostTable) -> set[ShardKey]:
    """Return the keys that the search may ask a table's shards for."""
    return {
        ShardKey(
            configuration,
            name,
            Sharding(zero, degree, 1).inside(configuration, name),
            zero.level(name),
        )
        for configuration, name, degree, zero in _shardings(table)
        if zero
    }


def _shardings(
    table: CostTable,
) -> Iterator[tuple[Configuration, ParameterClass, int, Zero]]:
    """Yield every configuration, class and d with what may be sharded there."""
    for (_, configuration), degrees in table.replicas.items():
        for name, degree, zero in product(CLASSES, degrees, table.zero):
            if fits_replicas(zero, degree):
                yield configuration, name, degree, zero


def table_to_json(table: CostTable) -> dict[str, Any]:
    """Return the table as JSON data (format nest-opt-cost-table, version 1)."""
    return {
        "format": "nest-opt-cost-table",
        "version": 1,
        "layer_rows": list(table.layer_rows),
        "levels": table.level_count,
        "usable_bytes": table.usable_bytes,
        "reserve_bytes": table.reserve_bytes,
        "pairs": [
            {
                "microbatch": microbatch,
                "configuration": list(configuration),
                "replicas": list(table.replicas[microbatch, configuration]),
                **{name: _plain(value) for name, value in vars(pair).items()},
            }
            for (microbatch, configuration), pair in table.pairs.items()
        ],
        "sync": [
            {
                "configuration": list(key.configuration),
                "class": key.parameter_class,
                "copies": key.copies,
                "level": key.spread % table.level_count,
                **({"rate": key.spread // table.level_count} if table.rates else {}),
                **({"operation": key.operation} if any(table.zero) else {}),
                **({"shares": key.shares} if key.shares > 1 else {}),
                "fixed_ps": costs.fixed_ps,
                "row_ps": list(costs.row_ps),
            }
            for key, costs in table.sync.items()
        ],
        **(_sharding_to_json(table) if any(table.zero) else {}),
        **(_tied_to_json(table.tied) if table.tied else {}),
        **({"rates": [list(rates) for rates in table.rates]} if table.rates else {}),
    }


def _tied_to_json(tied: TiedCosts) -> dict[str, Any]:
    return {
        "tied": {
            "row": tied.row,
            "exchange": [
                {"tp": key.tp, "share": key.share, "level": key.level, "exchange_ps": value}
                for key, value in tied.exchange_ps.items()
            ],
        }
    }


def _sharding_to_json(table: CostTable) -> dict[str, Any]:
    return {
        "zero": [zero_json(zero) for zero in table.zero],
        "shards": [
            {
                "configuration": list(key.configuration),
                "class": key.parameter_class,
                "copies": key.copies,
                "zero": key.zero,
                "states_bytes": list(costs.states_bytes),
                "work_bytes": list(costs.work_bytes),
            }
            for key, costs in table.shards.items()
        ],
    }


def _plain(value: Any) -> Any:
    """Turn nested tuples and mappings into JSON arrays and objects."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def table_digest(table: CostTable) -> str:
    """Return the SHA-256 of a table's canonical JSON form, in hexadecimal."""
    text = json.dumps(table_to_json(table), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
