"""The cost table: hand-computed entries, its file format, what is refused."""

import copy
import json
import random
import re
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from math import floor
from pathlib import Path
from typing import Any

import pytest
from samples import layer_type, problem_data, sample

from nest_opt import InstanceError, Problem
from nest_opt.cost.build import build_cost_table
from nest_opt.cost.table import MAX_TOTAL, CostTable, SyncKey
from nest_opt.cost.table_file import table_digest, table_from_json, table_to_json
from nest_opt.problem import Configuration
from nest_opt.problem.validation import build

PAGE = Path(__file__).resolve().parent.parent / "docs" / "cost_table.md"

WIDE = Configuration(tp=2, cp=1, ep=2, sp=True)
PLAIN = Configuration(tp=1)
LATENCY_S = (Fraction(1, 10**6), Fraction(5, 10**6))


def ps(seconds: Fraction) -> int:
    """Round to picoseconds, half up."""
    return floor(seconds * 10**12 + Fraction(1, 2))


def profile(**fields: Any) -> dict[str, Any]:
    """Return a profile for microbatch 1."""
    return {"microbatch": 1, "recompute": {"none": {"stash_bytes": 7, "work_bytes": 3}}, **fields}


def hand_problem(outer_bandwidth: str, algorithms: tuple[str, ...] = ("ring",)) -> Problem:
    """Return three blocks and a head on two levels; x feeds y, z and, by a tensor of its own, h."""
    collectives = [
        {"operation": "all-reduce", "group": "tp", "phase": "forward", "bytes": 1000, "count": 2},
        {"operation": "all-to-all", "group": "ep", "phase": "backward", "bytes": 5000},
    ]
    block = {
        "forward_s": "2.5e-12",
        "backward_input_s": "0.5e-12",
        "backward_weight_s": "0.5e-12",
        "dense_parameters": 1001,
        "expert_parameters": 3,
    }
    head = {
        "forward_s": "1.4e-12",
        "backward_input_s": "1.4e-12",
        "backward_weight_s": 0,
        "dense_parameters": 10,
    }
    wide = {"tp": 2, "ep": 2, "sp": True}
    data = {
        "name": "by hand",
        "model": {
            "layer_types": {
                "block": {
                    "output_bytes": {"1": 1001},
                    "profiles": [
                        profile(**block),
                        profile(**block, **wide, collectives=collectives),
                    ],
                },
                "head": {"profiles": [profile(**head), profile(**head, **wide)]},
            },
            "layers": [
                {"id": "x", "type": "block"},
                {"id": "y", "type": "block"},
                {"id": "z", "type": "block"},
                {"id": "h", "type": "head"},
            ],
            "edges": [
                {"source": "x", "target": "y"},
                {"source": "x", "target": "z"},
                {"source": "y", "target": "z"},
                {"source": "z", "target": "h"},
                {"source": "x", "target": "h", "sizes": [{"microbatch": 1, "bytes": 77}]},
            ],
        },
        "cluster": {
            "device_kinds": {"device": {"memory_bytes": 10**9, "reserve_bytes": 11}},
            "devices": [{"kind": "device", "count": 8}],
            "network": {
                "type": "hierarchical",
                "algorithms": algorithms,
                "levels": [
                    {
                        "name": "node",
                        "size": 4,
                        "bandwidth_bytes_per_s": 3 * 10**9,
                        "latency_s": "1e-6",
                    },
                    {
                        "name": "pod",
                        "size": 2,
                        "bandwidth_bytes_per_s": outer_bandwidth,
                        "latency_s": "5e-6",
                    },
                ],
            },
        },
        "job": {
            "global_batch": 8,
            "bytes_per_parameter": {"weights": 2, "gradients": 2.5, "optimizer": 12},
        },
        "search": {"microbatch": [1], "tp": [1, 2], "ep": [1, 2], "sp": [False, True]},
    }
    return build(Problem, data, "by hand")


@pytest.fixture(params=["7e9", "7e8"], ids=["bandwidth rises", "bandwidth falls"])
def by_hand(request: pytest.FixtureRequest) -> tuple[CostTable, tuple[Fraction, Fraction]]:
    """Return the table of the hand-made problem and its effective bandwidths in bytes/s."""
    inner, outer = Fraction(3 * 10**9), Fraction(request.param)
    return build_cost_table(hand_problem(request.param)), (inner, min(inner, outer))


Hand = tuple[CostTable, tuple[Fraction, Fraction]]


def test_rows_degrees_and_memory_by_hand(by_hand: Hand) -> None:
    """Layers of a type share a row; d divides 8 / ep; bytes are rounded up once per class."""
    table, _ = by_hand
    assert table.layer_rows == (0, 0, 0, 1)
    assert (table.usable_bytes, table.reserve_bytes) == (10**9, 11)
    assert table.replicas == {(1, PLAIN): (1, 2, 4, 8), (1, WIDE): (1, 2)}
    wide = table.pairs[1, WIDE]
    # 1001 * 16.5 = 16516.5 and 3 * 16.5 = 49.5, each up; 10 * 16.5 = 165.
    assert wide.states_bytes == (16517 + 50, 165)
    assert wide.parameters == {"dense": (1001, 10), "expert": (3, 0)}
    assert (wide.stash_bytes, wide.work_bytes) == ({"none": (7, 7)}, {"none": (3, 3)})


def test_compute_times_by_hand(by_hand: Hand) -> None:
    """Half a picosecond is rounded up, in each part of the backward pass by itself."""
    table, _ = by_hand
    for pair in table.pairs.values():
        assert pair.forward_ps == (3, 1)
        assert pair.backward_ps == (2, 1)


def test_collectives_by_hand(by_hand: Hand) -> None:
    """Two calls of a tp all-reduce and one ep all-to-all, each call rounded by itself."""
    table, bandwidths = by_hand
    wide = table.pairs[1, WIDE]
    for level, (latency, bandwidth) in enumerate(zip(LATENCY_S, bandwidths, strict=True)):
        # An all-reduce on 2 ranks passes 2 messages of half the buffer, an all-to-all 1.
        all_reduce = ps(2 * latency + 2 * Fraction(1000, 2) / bandwidth)
        all_to_all = ps(latency + Fraction(5000, 2) / bandwidth)
        assert wide.forward_collective_ps["tp"][level] == (2 * all_reduce, 0)
        assert wide.backward_collective_ps["ep"][level] == (all_to_all, 0)
        for group in ("tp", "cp", "ep"):
            assert table.pairs[1, PLAIN].forward_collective_ps[group][level] == (0, 0)
            if group != "tp":
                assert wide.forward_collective_ps[group][level] == (0, 0)
            if group != "ep":
                assert wide.backward_collective_ps[group][level] == (0, 0)
    assert wide.forward_collective_ps["tp"][0] == (2 * 2_333_333, 0)


@pytest.mark.parametrize("hidden_s", ["0", "2.3e-6", "4e-6", "1"])
def test_what_computation_hides_is_taken_off_each_call(hidden_s: str) -> None:
    """A call is charged what exceeds the hidden seconds, at least 0, rounded once, per level."""
    data = hand_problem("7e8").model_dump(mode="json", exclude_unset=True)
    reduce, exchange = data["model"]["layer_types"]["block"]["profiles"][1]["collectives"]
    reduce["hidden_s"] = hidden_s
    wide = build_cost_table(build(Problem, data, "hidden")).pairs[1, WIDE]
    for level, bandwidth in enumerate((Fraction(3 * 10**9), Fraction(7 * 10**8))):
        call = 2 * LATENCY_S[level] + 2 * Fraction(1000, 2) / bandwidth
        exposed = 2 * ps(max(Fraction(0), call - Fraction(hidden_s)))
        assert wide.forward_collective_ps["tp"][level] == (exposed, 0)
        # The other one hides nothing.
        other = ps(LATENCY_S[level] + Fraction(exchange["bytes"], 2) / bandwidth)
        assert wide.backward_collective_ps["ep"][level] == (other, 0)


def test_hops_by_hand(by_hand: Hand) -> None:
    """Tensors are relayed over every cut to their last consumer, once, in equal shares."""
    table, bandwidths = by_hand
    crossing = (0, 1001 + 77, 1001 + 1001 + 77, 1001 + 77, 0)
    for level, (latency, bandwidth) in enumerate(zip(LATENCY_S, bandwidths, strict=True)):
        for configuration, shares in ((PLAIN, 1), (WIDE, 2)):
            assert table.pairs[1, configuration].hop_ps[level] == tuple(
                ps(latency + Fraction(size, shares) / bandwidth) for size in crossing
            )
    assert table.pairs[1, WIDE].hop_ps[0][1] == 1_179_667


def test_sync_by_hand(by_hand: Hand) -> None:
    """Dense gradients have cp * ep * d copies, experts cp * d; one copy needs no sync."""
    table, bandwidths = by_hand
    assert {(key.configuration, key.parameter_class, key.copies) for key in table.sync} == {
        *((PLAIN, name, copies) for name in ("dense", "expert") for copies in (2, 4, 8)),
        *((WIDE, "dense", copies) for copies in (2, 4)),
        (WIDE, "expert", 2),
    }
    gradients = {
        "dense": (Fraction("2.5") * 1001, Fraction("2.5") * 10),
        "expert": (Fraction("2.5") * 3, Fraction(0)),
    }
    for key, cost in table.sync.items():
        latency, bandwidth = LATENCY_S[key.spread], bandwidths[key.spread]
        messages = 2 * (key.copies - 1)
        assert cost.fixed_ps == ps(messages * latency)
        assert cost.row_ps == tuple(
            ps(messages * size / (key.copies * bandwidth))
            for size in gradients[key.parameter_class]
        )
    # 6 messages of 2502.5 / 4 bytes at 3e9 bytes/s are 1251.25 ns.
    assert table.sync[SyncKey(WIDE, "dense", 4, 0)].row_ps[0] == 1_251_250


def test_tree_syncs_by_hand() -> None:
    """A sync takes the tree at all levels where the largest layer prefers it at the outermost."""
    table = build_cost_table(hand_problem("7e8", ("ring", "tree")))
    outer = Fraction("7e8")
    largest = {"dense": Fraction("2.5") * 1001, "expert": Fraction("2.5") * 3}
    trees = set()
    for key, cost in table.sync.items():
        size = largest[key.parameter_class]
        messages, steps = 2 * (key.copies - 1), 2 * {2: 1, 4: 2, 8: 3}[key.copies]
        ring_s = messages * LATENCY_S[1] + messages * size / (key.copies * outer)
        tree_s = steps * LATENCY_S[1] + 2 * size / outer
        passes, share = (steps, Fraction(2)) if tree_s < ring_s else (
            messages, Fraction(messages, key.copies)
        )  # fmt: skip
        bandwidth = (Fraction(3 * 10**9), outer)[key.spread]
        assert cost.fixed_ps == ps(passes * LATENCY_S[key.spread])
        assert cost.row_ps[0] == ps(share * size / bandwidth)
        if tree_s < ring_s:
            trees.add((key.copies, key.spread))
    assert trees == {(copies, level) for copies in (4, 8) for level in (0, 1)}


def test_json_round_trip() -> None:
    """A table written as text and read back is equal, and so is its digest."""
    table = build_cost_table(hand_problem("7e8"))
    back = table_from_json(json.loads(json.dumps(table_to_json(table))))
    assert back == table
    assert table_digest(back) == table_digest(table)


def shuffled(value: Any, rng: random.Random) -> Any:
    """Return JSON data with the keys of every object in another order."""
    if isinstance(value, dict):
        keys = rng.sample(list(value), len(value))
        return {key: shuffled(value[key], rng) for key in keys}
    return [shuffled(item, rng) for item in value] if isinstance(value, list) else value


def test_digest_does_not_depend_on_the_order_of_keys() -> None:
    """Tables whose files differ in key order alone have one digest."""
    table = build_cost_table(hand_problem("7e8"))
    data = table_to_json(table)
    mixed = shuffled(data, random.Random(1))
    assert json.dumps(mixed) != json.dumps(data)
    assert table_digest(table_from_json(mixed)) == table_digest(table)


def test_the_page_shows_what_the_code_writes() -> None:
    """The table and digest in docs/cost_table.md are those of the problem in it."""
    text = PAGE.read_text(encoding="utf-8")
    blocks = re.findall(r"```json\n(.*?)```", text, re.DOTALL)
    problem = build(Problem, json.loads(blocks[0], parse_float=Decimal), "page")
    table = build_cost_table(problem)
    assert json.loads(blocks[1]) == table_to_json(table)
    assert re.findall(r"`([0-9a-f]{64})`", text) == [table_digest(table)]


def test_the_page_describes_every_field() -> None:
    """Each field of the example has a row of its own in the page's tables of fields."""
    text = PAGE.read_text(encoding="utf-8")
    described = set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE))
    problem = tied(sharded(hand_problem("7e8"), (1, 2)))
    network = problem.cluster.network.model_copy(update={"collectives": "ports"})
    cluster = problem.cluster.model_copy(update={"network": network})
    data = table_to_json(build_cost_table(problem.model_copy(update={"cluster": cluster})))
    syncs = {name for entry in data["sync"] for name in entry}
    parts = (data["pairs"][0], syncs, data["shards"][0], data["tied"])
    assert described == {*data, *data["tied"]["exchange"][0]}.union(*parts)


def sharded(problem: Problem, instances: tuple[int, ...] = (1,)) -> Problem:
    """Return a problem that searches all ZeRO levels, in some numbers of runs of replicas."""
    search = problem.search.model_copy(update={"zero": (0, 1, 2, 3), "zero_instances": instances})
    return problem.model_copy(update={"search": search})


def tied(problem: Problem) -> Problem:
    """Return a problem whose head has some parameters of the first block."""
    head = problem.model.layer_types["head"]
    profiles = tuple(p.model_copy(update={"tied_parameters": 10}) for p in head.profiles)
    types = {**problem.model.layer_types, "head": head.model_copy(update={"profiles": profiles})}
    model = problem.model.model_copy(update={"layer_types": types})
    return problem.model_copy(update={"model": model})


# Half the range in picoseconds, so two layers reach it exactly.
HALF_S = Decimal(MAX_TOTAL // 2) / 10**12


@pytest.mark.parametrize(("less_ps", "refused"), [(1, False), (0, True)])
def test_times_are_refused_from_two_to_the_sixty_on(less_ps: int, refused: bool) -> None:
    """Two layers of 2**59 ps are too much, one picosecond less is not."""
    kind = layer_type(
        forward_s=0,
        output_bytes=0,
        parameters=0,
        backward_s=str(HALF_S - Decimal(less_ps) / 10**12),
    )
    first = {"id": "a", "type": "full"}
    second = {"id": "b", "type": "half"}
    data = problem_data(global_batch=1)
    data["model"]["layer_types"] = {"full": layer_type(0, HALF_S, 0, 0), "half": kind}
    data["model"]["layers"] = [first, second]
    for level in data["cluster"]["network"]["levels"]:
        level["latency_s"] = 0
    problem = build(Problem, data, "sample")
    if refused:
        with pytest.raises(InstanceError, match=r"profiles for microbatch=1 tp=1.* less than"):
            build_cost_table(problem)
    else:
        assert sum(build_cost_table(problem).pairs[1, PLAIN].backward_ps) == MAX_TOTAL - 1


def test_bytes_are_refused_beyond_the_range() -> None:
    """Two thousand layers of a petabyte each are refused."""
    kind = layer_type(stash_bytes=10**15)
    layers = [{"id": "block", "type": "block", "repeat": 2000}]
    problem = sample(model={"layer_types": {"block": kind}, "layers": layers})
    with pytest.raises(InstanceError, match=r"found 2.000e\+18 bytes in all, .* bytes is needed"):
        build_cost_table(problem)


def test_syncs_are_refused_beyond_the_range() -> None:
    """Gradients over a link of a thousandth byte a second are refused."""
    data = problem_data()
    data["model"]["layer_types"] = {"block": layer_type(parameters=10**9, output_bytes=0)}
    data["cluster"]["network"]["levels"][0]["bandwidth_bytes_per_s"] = 0.001
    with pytest.raises(InstanceError, match="gradient all-reduce over 2 ranks: found"):
        build_cost_table(build(Problem, data, "sample"))


Path_ = tuple[str | int, ...]


def paths(value: Any, prefix: Path_ = ()) -> Iterator[Path_]:
    """Yield the place of every field and item of JSON data."""
    items: Any = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    for key, item in items:
        yield (*prefix, key)
        yield from paths(item, (*prefix, key))


def parent(data: Any, path: Path_) -> Any:
    """Return what holds the last key of a path."""
    for key in path[:-1]:
        data = data[key]
    return data


TABLE = table_to_json(build_cost_table(hand_problem("7e8")))
PLACES = list(paths(TABLE))
NOT_A_FIELD: tuple[Any, ...] = (
    None, "x", "5", 1.5, 1.0, Decimal("1.5"), True, False, -1, MAX_TOTAL, [], {}, [[]], [None],
    {"x": 1},
)  # fmt: skip


# Without d = 1, which needs no sync, a table is one of a smaller search space.
SPARE: Path_ = ("pairs", 0, "replicas", 0)


def test_every_deletion_is_refused() -> None:
    """A table that lacks any one field or item is refused, by InstanceError alone."""
    assert len(PLACES) > 300
    assert SPARE in PLACES
    for path in PLACES:
        if path == SPARE:
            continue
        data = copy.deepcopy(TABLE)
        del parent(data, path)[path[-1]]
        with pytest.raises(InstanceError, match="cost table"):
            table_from_json(data)


def test_every_change_of_type_is_refused() -> None:
    """A table with any one value of another type or range is refused, by InstanceError alone."""
    for path in PLACES:
        data = copy.deepcopy(TABLE)
        holder = parent(data, path)
        kept = holder[path[-1]]
        for wrong in NOT_A_FIELD:
            if type(wrong) is type(kept) and wrong == kept:
                continue
            holder[path[-1]] = wrong
            with pytest.raises(InstanceError, match="cost table"):
                table_from_json(data)


def test_unknown_fields_are_refused() -> None:
    """A field that the format does not have is refused in every object."""
    for path in [(), *PLACES]:
        data = copy.deepcopy(TABLE)
        place = parent(data, (*path, ""))
        if isinstance(place, dict):
            place["surprise"] = 1
            with pytest.raises(InstanceError, match="surprise"):
                table_from_json(data)


def test_repeated_items_are_refused() -> None:
    """A table in which any one item of an array comes twice is refused."""
    for path in PLACES:
        if isinstance(path[-1], int):
            data = copy.deepcopy(TABLE)
            holder = parent(data, path)
            holder.insert(path[-1], copy.deepcopy(holder[path[-1]]))
            with pytest.raises(InstanceError, match="cost table"):
                table_from_json(data)


def test_no_change_of_a_number_goes_unnoticed() -> None:
    """A table with any one number raised by one is refused or has another digest."""
    digest = table_digest(table_from_json(TABLE))
    accepted = 0
    for path in PLACES:
        data = copy.deepcopy(TABLE)
        holder = parent(data, path)
        if type(holder[path[-1]]) is not int:
            continue
        holder[path[-1]] += 1
        try:
            changed = table_from_json(data)
        except InstanceError:
            continue
        accepted += 1
        assert table_digest(changed) != digest
    assert accepted > 100


@pytest.mark.parametrize("data", [None, [], "table", 5, {}])
def test_what_is_no_table_is_refused(data: Any) -> None:
    """Data that is no object, or an empty one, is refused."""
    with pytest.raises(InstanceError, match="format nest-opt-cost-table, version 1"):
        table_from_json(data)


def test_times_that_fall_with_the_level_are_refused() -> None:
    """The search looks at the highest levels alone, so a cheaper outer level is refused."""
    for path in (("pairs", 0, "hop_ps", 1, 2), ("sync", 1, "row_ps", 0)):
        data = copy.deepcopy(TABLE)
        parent(data, path)[path[-1]] = 0
        with pytest.raises(InstanceError, match="found 0 ps a level above"):
            table_from_json(data)


def test_tables_whose_totals_overflow_are_refused() -> None:
    """Reading a table checks the range of its totals, as building it does."""
    data = copy.deepcopy(TABLE)
    data["pairs"][0]["forward_ps"] = [MAX_TOTAL // 4, 0]
    with pytest.raises(InstanceError, match="profiles for microbatch=1"):
        table_from_json(data)
