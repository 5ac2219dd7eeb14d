"""Collective algorithms against closed forms, against runs of them, and against lower bounds."""

from dataclasses import replace
from fractions import Fraction
from itertools import product
from math import log2

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nest_opt.errors import InstanceError
from nest_opt.network import HierarchicalNetwork
from nest_opt.network.collectives import (
    ALGORITHMS,
    COLLECTIVES,
    AlgorithmName,
    Collective,
    Fabric,
    Link,
    Measurement,
    Protocol,
    Spread,
    Torus,
    collective_time,
    lower_bound,
    torus_shape,
    torus_time,
    uneven_all_to_all_time,
)
from nest_opt.network.collectives.mesh import mesh_bandwidths, ring_count
from nest_opt.network.collectives.shape import Shape
from nest_opt.problem import HierarchicalSpec

US = Fraction(1, 10**6)
GIGA = 10**9
# NVLinks of a DGX-1 with V100 (NVIDIA/nccl issue 671).
CUBE_MESH = (
    (0, 1, 1, 2, 2, 0, 0, 0),
    (1, 0, 2, 1, 0, 2, 0, 0),
    (1, 2, 0, 2, 0, 0, 1, 0),
    (2, 1, 2, 0, 0, 0, 0, 1),
    (2, 0, 0, 0, 0, 1, 1, 2),
    (0, 2, 0, 0, 1, 0, 2, 1),
    (0, 0, 1, 0, 1, 2, 0, 2),
    (0, 0, 0, 1, 2, 1, 2, 0),
)


def shape(name: AlgorithmName, operation: Collective, *counts: int) -> Shape:
    """Return an algorithm's shape over a spread; it must do the operation."""
    found = ALGORITHMS[name](operation, Spread(counts))
    assert found is not None
    return found


def fabric(
    *gigas: int,
    algorithms: tuple[AlgorithmName, ...] = ("ring",),
    step: Fraction = US,
    share: Fraction = Fraction(1),
    switch: bool = False,
) -> Fabric:
    """Return a fabric with one protocol, levels of so many GB/s and equal steps."""
    shares = {"stream": share, "exchange": share} | ({"switch": share} if switch else {})
    return Fabric(
        "test",
        tuple(Link((Fraction(each * GIGA),), shares) for each in gigas),  # type: ignore[arg-type]
        (Protocol("only", Fraction(0), (step,) * len(gigas), (Fraction(1),) * len(gigas)),),
        algorithms,
    )


@pytest.mark.parametrize("ranks", [2, 3, 8, 100])
@pytest.mark.parametrize(("operation", "passes"), [("all-reduce", 2), ("all-gather", 1)])
def test_a_ring_has_the_steps_and_bytes_of_thakur(
    ranks: int, operation: Collective, passes: int
) -> None:
    """Passes * (n - 1) steps and passes * (n - 1) / n buffers."""
    found = shape("ring", operation, ranks)
    assert found.steps == (passes * (ranks - 1),)
    assert found.volumes == (Fraction(passes * (ranks - 1), ranks),)


def test_rings_leave_a_node_by_all_of_its_devices() -> None:
    """Over 2 nodes of 8, NCCL's model has 28 steps inside and 2 between, and 8 rails."""
    found = shape("ring", "all-reduce", 8, 2)
    assert found.steps == (28, 2)
    assert found.volumes == (Fraction(15, 8), Fraction(15, 64))
    assert shape("flat-ring", "all-reduce", 8, 2).volumes == (Fraction(15, 8), Fraction(15, 8))


@pytest.mark.parametrize("algorithm", ["ring", "tree"])
def test_one_level_agrees_with_the_hierarchical_network(algorithm: AlgorithmName) -> None:
    """Ring and tree on one level are equation (4)."""
    level = {"name": "all", "size": 64, "bandwidth_bytes_per_s": 25e9, "latency_s": 1e-6}
    spec = {"type": "hierarchical", "algorithms": ["ring", "tree"], "levels": [level]}
    network = HierarchicalNetwork(HierarchicalSpec.model_validate(spec))
    one = fabric(25, algorithms=(algorithm,), step=Fraction(1e-6))
    for ranks in (5, 8, 33, 64):
        found = collective_time(one, "all-reduce", Spread((ranks,)), 10**6).candidates[0].line
        known = network.collective_s("all-reduce", ranks, 0, algorithm)  # type: ignore[arg-type]
        assert (found.fixed_s - known[0], found.per_byte_s) == (
            pytest.approx(0, abs=1e-12),
            known[1],
        )


def run_halving_doubling(ranks: int) -> tuple[int, Fraction]:
    """Run an all-reduce message by message; return steps and the sum of each step's most bytes.

    Ranks beyond a power of two give their buffer to a partner and get the result back.
    """
    power = 1 << (ranks.bit_length() - 1)
    extra = ranks - power
    held = {rank: {part: {rank} for part in range(power)} for rank in range(ranks)}
    steps, total = 0, Fraction(0)

    def exchange(pairs: list[tuple[int, int, range]], add: bool) -> None:
        nonlocal steps, total
        steps += 1
        moved = [(to, part, set(held[of][part])) for of, to, parts in pairs for part in parts]
        total += Fraction(max(len(parts) for _, _, parts in pairs), power)
        for to, part, terms in moved:
            assert not add or not held[to][part] & terms
            held[to][part] = held[to][part] | terms if add else terms

    everything = range(power)
    if extra:
        exchange([(power + rank, rank, everything) for rank in range(extra)], add=True)
    mine = dict.fromkeys(range(power), everything)
    distances = [1 << place for place in range(power.bit_length() - 1)]
    for distance in distances:
        halves = {}
        for rank, parts in mine.items():
            middle = parts.start + len(parts) // 2
            low, high = range(parts.start, middle), range(middle, parts.stop)
            halves[rank] = (high, low) if rank & distance else (low, high)
        exchange([(r, r ^ distance, away) for r, (_, away) in halves.items()], add=True)
        mine = {rank: kept for rank, (kept, _) in halves.items()}
    for distance in reversed(distances):
        exchange([(rank, rank ^ distance, parts) for rank, parts in mine.items()], add=False)
        mine = {
            rank: range(
                min(parts.start, mine[rank ^ distance].start),
                max(parts.stop, mine[rank ^ distance].stop),
            )
            for rank, parts in mine.items()
        }
    if extra:
        exchange([(rank, power + rank, everything) for rank in range(extra)], add=False)
    assert all(terms == set(range(ranks)) for parts in held.values() for terms in parts.values())
    return steps, total


@pytest.mark.parametrize("ranks", [2, 3, 4, 6, 8, 13, 16])
def test_halving_doubling_has_the_steps_and_bytes_of_a_run(ranks: int) -> None:
    """A run gives every rank the sum, in the formula's steps and bytes, power of two or not."""
    found = shape("halving-doubling", "all-reduce", ranks)
    steps, total = run_halving_doubling(ranks)
    assert (found.steps, found.volumes) == ((steps,), (total,))


def test_halving_doubling_crosses_each_level_with_what_is_left() -> None:
    """8 x 4 ranks: 6 and 4 steps, 7/4 of the buffer inside and 3/4 of 1/8 twice between."""
    found = shape("halving-doubling", "all-reduce", 8, 4)
    assert found.steps == (6, 4)
    assert found.volumes == (Fraction(7, 4), Fraction(3, 16))
    assert sum(found.volumes) == 2 * Fraction(31, 32)


def test_trees_send_two_buffers_and_one_between_two_nodes() -> None:
    """2 ceil(log2 n) steps; 2 buffers from 3 nodes on; NCCL's have a chain inside the node."""
    assert shape("tree", "all-reduce", 9).steps == (8,)
    assert shape("tree", "all-reduce", 9).volumes == (2,)
    assert shape("tree", "all-reduce", 2).volumes == (1,)
    two, four = (shape("chain-tree", "all-reduce", 8, nodes) for nodes in (2, 4))
    assert (two.steps, four.steps) == ((14, 2), (14, 4))
    assert (two.volumes, four.volumes) == ((2, Fraction(1, 8)), (2, Fraction(1, 4)))


def parents_of_two_trees(ranks: int) -> tuple[dict[int, int], dict[int, int]]:
    """Return the parent of each rank in an in-order binary tree, and in its mirror or shift."""
    parent = {}
    for rank in range(1, ranks):
        lowest = rank & -rank
        above = (rank ^ lowest) | (lowest << 1)
        parent[rank] = above if above < ranks else rank ^ lowest
    turned = [ranks - 1 - rank if ranks % 2 == 0 else (rank + 1) % ranks for rank in range(ranks)]
    return parent, {turned[rank]: turned[above] for rank, above in parent.items()}


@pytest.mark.parametrize("ranks", [2, 3, 4, 7, 8, 12, 16, 31, 40])
def test_two_trees_have_the_steps_and_bytes_of_the_formula(ranks: int) -> None:
    """Half of the buffer up and down each of two trees: the busiest rank, the longest way."""
    sent, deepest = dict.fromkeys(range(ranks), Fraction(0)), 0
    for parent in parents_of_two_trees(ranks):
        for rank, above in parent.items():
            sent[rank] += Fraction(1, 2)
            sent[above] += Fraction(1, 2)
            depth, here = 0, rank
            while here in parent:
                depth, here = depth + 1, parent[here]
            deepest = max(deepest, depth)
    found = shape("tree", "all-reduce", ranks)
    assert found.volumes == (max(sent.values()),)
    assert found.steps == (2 * deepest,)


def test_three_levels_send_less_the_further_out() -> None:
    """8 x 4 x 2: rings of 8, 4 and 2 with shares 1, 1/8 and 1/32: together 2 * 63/64 buffers."""
    found = shape("hierarchical", "all-reduce", 8, 4, 2)
    assert found.steps == (14, 6, 2)
    assert found.volumes == (Fraction(7, 4), Fraction(3, 16), Fraction(1, 32))
    assert sum(found.volumes) == 2 * Fraction(63, 64)


def test_switches_add_up() -> None:
    """(n + 1) / n buffers each way inside; above, one buffer a node with switches there too."""
    inside, everywhere = (
        shape(name, "all-reduce", 8, 4)
        for name in ("in-switch", "in-all-switches")  # type: ignore[arg-type]
    )
    assert inside.volumes == (Fraction(9, 8), Fraction(1, 4))
    assert everywhere.volumes == (Fraction(9, 8), Fraction(1, 8))
    assert everywhere.steps == (2, 2)


def test_a_torus_gathers_over_all_links_of_all_axes() -> None:
    """V / (2 k W), whatever the lengths, is scaling-book's; an all-reduce takes two of them."""
    for sizes in ((16,), (8, 8), (4, 4, 4)):
        torus = Torus(sizes, (True,) * len(sizes))
        ranks, axes = torus.ranks, len(sizes)
        found = torus_shape("all-gather", torus)
        assert found.volumes == (Fraction(ranks - 1, ranks) / (2 * axes),)
        assert found.steps == (torus.diameter,)
        assert torus_shape("all-reduce", torus).volumes == (2 * found.volumes[0],)
        line = Torus(sizes, (False,) * len(sizes))
        assert torus_shape("all-gather", line).volumes == (2 * found.volumes[0],)


@pytest.mark.parametrize(("size", "joined"), list(product(range(2, 9), (True, False))))
def test_all_to_all_loads_links_as_counted(size: int, joined: bool) -> None:
    """The busiest link over all pairs by shortest ways, ties half each way, is the formula's."""
    load: dict[tuple[int, int], Fraction] = {}
    for one, other in product(range(size), repeat=2):
        ahead, back = (other - one) % size, (one - other) % size
        if joined:
            forward = Fraction(int(ahead < back)) + Fraction(int(ahead == back), 2)
            ways = ((1, ahead, forward), (-1, back, 1 - forward))
        else:
            ways = ((1, other - one, Fraction(1)), (-1, one - other, Fraction(1)))
        for turn, hops, share in ways:
            for hop in range(hops):
                link = ((one + turn * hop) % size, turn)
                load[link] = load.get(link, Fraction(0)) + share / size
    assert torus_shape("all-to-all", Torus((size,), (joined,))).volumes == (max(load.values()),)


@pytest.mark.parametrize("operation", ["all-reduce", "all-gather", "reduce-scatter", "all-to-all"])
@pytest.mark.parametrize("sizes", [(8,), (4, 4), (6, 6, 6)])
def test_wrapped_tori_reach_their_bound(operation: Collective, sizes: tuple[int, ...]) -> None:
    """Without latency and at the whole peak, equal wrapped axes leave no gap."""
    torus = Torus(sizes, (True,) * len(sizes))
    links = fabric(45, step=Fraction(0))
    assert torus_time(links, operation, torus, 10**9).gap == 0


def test_rings_of_a_cube_mesh_are_those_that_were_measured() -> None:
    """1, 2, 4, none, 2, 4 and 6 rings of 25 GB/s; vTrain has 22.6, 45, 87, 37, 46, 87, 136."""
    assert [ring_count(CUBE_MESH, range(n)) for n in range(2, 9)] == [1, 2, 4, 0, 2, 4, 6]
    found = [float(each) for each in mesh_bandwidths(CUBE_MESH, Fraction(25))]
    assert found == [25, 25, 50, 100, 40, 50, 100, 150]
    with pytest.raises(InstanceError, match="at most 8"):
        ring_count(CUBE_MESH, range(9))


SPREADS = st.lists(st.integers(1, 6), min_size=1, max_size=3).map(lambda each: Spread(tuple(each)))
SHARES = st.fractions(Fraction(1, 10), 1, max_denominator=20)


@st.composite
def fabrics(draw: st.DrawFn) -> Fabric:
    """Draw a fabric of three levels, two protocols and all algorithms or some."""
    links = tuple(
        Link(
            (Fraction(draw(st.integers(1, 900)) * GIGA),),
            {"stream": draw(SHARES), "exchange": draw(SHARES)}
            | ({"switch": draw(SHARES)} if draw(st.booleans()) else {}),
            draw(st.none() | st.integers(1, 4)),
        )
        for _ in range(3)
    )
    protocols = tuple(
        Protocol(
            name,
            draw(st.integers(0, 90)) * US,
            tuple(draw(st.integers(0, 50)) * US for _ in range(3)),
            tuple(draw(SHARES) for _ in range(3)),
        )
        for name in ("quick", "wide")
    )
    usual: tuple[AlgorithmName, ...] = ("ring", "pairwise", "binomial", "direct")
    few = tuple(name for name in ALGORITHMS if name not in ("direct", "in-switch"))
    names = draw(st.sampled_from([tuple(ALGORITHMS), usual, few]))
    if "direct" not in names:
        names = tuple(name for name in names if name != "in-all-switches")
    return Fabric("drawn", links, protocols, names)


@settings(max_examples=35, deadline=None)
@given(fabrics(), SPREADS, st.sampled_from(COLLECTIVES), st.integers(0, 2**36))
def test_no_algorithm_beats_the_bound_and_bytes_cost_time(
    drawn: Fabric, spread: Spread, operation: Collective, size: int
) -> None:
    """Every candidate is at or above the bound; a larger buffer never takes less time."""
    if operation == "send-receive" and "direct" not in drawn.algorithms:
        with pytest.raises(InstanceError, match="no algorithm for send-receive"):
            collective_time(drawn, operation, Spread((2,)), size)
        return
    found = collective_time(drawn, operation, spread, size)
    assert found.bound == lower_bound(drawn, operation, spread, size)
    assert all(each.time_s >= found.bound.time_s for each in found.candidates)
    assert list(found.candidates) == sorted(found.candidates, key=lambda each: each.time_s)
    assert 0 <= found.gap <= 1
    assert collective_time(drawn, operation, spread, size + 1).time_s >= found.time_s
    assert collective_time(drawn, operation, spread, 2 * size).time_s >= found.time_s


TORI = st.lists(st.tuples(st.integers(1, 5), st.booleans()), min_size=1, max_size=3).map(
    lambda axes: Torus(tuple(size for size, _ in axes), tuple(joined for _, joined in axes))
)


@settings(max_examples=50, deadline=None)
@given(TORI, st.sampled_from(COLLECTIVES), st.integers(0, 2**30), SHARES)
def test_no_torus_beats_its_bound(
    torus: Torus, operation: Collective, size: int, share: Fraction
) -> None:
    """Axes of any length, wrapped or not: at or above the bound, and longer with more bytes."""
    links = fabric(45, share=share)
    found = torus_time(links, operation, torus, size)
    assert found.time_s >= found.bound.time_s
    assert torus_time(links, operation, torus, size + 1).time_s >= found.time_s


@settings(max_examples=25, deadline=None)
@given(st.sampled_from([(4,), (2, 3), (1, 4), (2, 1, 2)]), st.integers(1, 10**9))
def test_even_bytes_make_an_uneven_all_to_all_direct(counts: tuple[int, ...], each: int) -> None:
    """Equal bytes for all pairs give time and bound of the direct all-to-all."""
    spread = Spread(counts)
    links = fabric(450, 50, 25, algorithms=("direct",))
    ranks = spread.ranks
    uneven = uneven_all_to_all_time(links, spread, [[each] * ranks for _ in range(ranks)])
    even = collective_time(links, "all-to-all", spread, each * ranks)
    assert (uneven.time_s, uneven.bound) == (even.time_s, even.bound)


def test_an_uneven_all_to_all_waits_for_the_busiest() -> None:
    """One rank that receives all from the other node takes as long as its node's links."""
    links = fabric(100, 10, algorithms=("direct",), step=Fraction(0))
    sent = [[0] * 4 for _ in range(4)]
    sent[0][2] = sent[1][2] = 10**9
    found = uneven_all_to_all_time(links, Spread((2, 2)), sent)
    assert found.time_s == Fraction(2 * 10**9, 2 * 10 * GIGA)
    with pytest.raises(InstanceError, match="4 rows of 4"):
        uneven_all_to_all_time(links, Spread((2, 2)), sent[:3])
    with pytest.raises(InstanceError, match="found -1 bytes"):
        uneven_all_to_all_time(links, Spread((2,)), [[0, -1], [0, 0]])


def test_the_choice_names_its_alternatives() -> None:
    """Small buffers take few steps, large ones few bytes; the reason has both."""
    links = fabric(25, algorithms=("ring", "halving-doubling", "tree"), step=10 * US)
    small, large = (
        collective_time(links, "all-reduce", Spread((12,)), size) for size in (1000, 10**9)
    )
    assert small.candidates[0].algorithm == "tree"
    assert large.candidates[0].algorithm == "ring"
    assert {each.algorithm for each in large.candidates} == {"ring", "halving-doubling", "tree"}
    assert large.reason.startswith("ring (only) takes 220.0 us for steps and 73333.3 us for bytes")
    assert small.bound.binding == "latency"
    assert large.bound.binding == "bytes"


def test_one_rank_does_nothing() -> None:
    """One rank has no candidate, no time and no bound."""
    found = collective_time(fabric(25), "all-gather", Spread((1,)), 10**9)
    assert (found.candidates, found.time_s, found.bound.time_s, found.gap) == ((), 0, 0, 0)
    assert found.reason == "one rank has nothing to exchange"
    assert torus_time(fabric(45), "all-reduce", Torus((1,), (True,)), 5).time_s == 0


def test_binomial_and_scatter_cross_where_steps_and_bytes_do() -> None:
    """A binomial broadcast wins on few bytes, a scatter with an all-gather on many."""
    links = fabric(25, algorithms=("binomial", "scatter-gather"), step=10 * US)
    by_size = {
        size: collective_time(links, "broadcast", Spread((32,)), size) for size in (100, 10**9)
    }
    assert by_size[100].time_s == 5 * 10 * US + Fraction(int(log2(32)) * 100, 25 * GIGA)
    assert [found.candidates[0].algorithm for found in by_size.values()] == [
        "binomial",
        "scatter-gather",
    ]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Spread((4, 0)), "spread: found counts"),
        (lambda: Torus((4, 4), (True,)), "torus: found sizes"),
        (lambda: Link((Fraction(0),), {}), "link: found bandwidths"),
        (lambda: Link((Fraction(1),), {"stream": Fraction(2)}), "share of 2.0"),
        (lambda: Protocol("p", -US, (), ()), "protocol p: found a negative time"),
        (lambda: Protocol("p", US, (US,), (Fraction(0),)), "protocol p: found a share of 0.0"),
        (lambda: Fabric("f", (), (), ()), "fabric f: found 0 links"),
        (lambda: replace(fabric(1), links=fabric(1, 1).links), "has 1 steps and 1 shares, 2 of"),
        (lambda: Measurement("all-reduce", Spread((2,)), 1, 0.0), "found 1 bytes in 0.0 s"),
        (lambda: collective_time(fabric(1), "all-reduce", Spread((2, 2)), 1), "2 levels, at most"),
        (lambda: collective_time(fabric(1), "all-to-all", Spread((2,)), 1), "no algorithm"),
    ],
)
def test_what_cannot_be_is_refused(make: object, message: str) -> None:
    """A message names what was found, what is allowed and what to do."""
    with pytest.raises(InstanceError, match=message):
        make()  # type: ignore[operator]
