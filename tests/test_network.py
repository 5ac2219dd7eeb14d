"""The hierarchical network against closed forms and against sets of devices."""

from fractions import Fraction

import pytest

from nest_opt.cost.units import to_ps
from nest_opt.network import HierarchicalNetwork
from nest_opt.problem import HierarchicalSpec


def network(
    *levels: tuple[int, float, float], algorithms: tuple[str, ...] = ("ring",)
) -> HierarchicalNetwork:
    """Return a network of (size, bytes/s, latency in s) levels."""
    return HierarchicalNetwork(
        HierarchicalSpec.model_validate(
            {
                "type": "hierarchical",
                "algorithms": algorithms,
                "levels": [
                    {
                        "name": f"level-{place}",
                        "size": size,
                        "bandwidth_bytes_per_s": bandwidth,
                        "latency_s": latency,
                    }
                    for place, (size, bandwidth, latency) in enumerate(levels)
                ],
            }
        )
    )


def test_ring_all_reduce_of_100_mb_on_8_devices_takes_3_5_ms() -> None:
    """2 * 7/8 of 100 MB at 50 GB/s without latency is exactly 3.5 ms."""
    fixed, per_byte = network((8, 50e9, 0)).collective_s("all-reduce", 8, 0, "ring")
    assert fixed + per_byte * 100_000_000 == Fraction(35, 10_000)


@pytest.mark.parametrize("operation", ["all-gather", "reduce-scatter", "all-to-all"])
def test_other_rings_pass_half_the_rounds(operation: str) -> None:
    """The other collectives take n - 1 rounds of 1/n of the buffer."""
    fixed, per_byte = network((8, 50e9, 1e-6)).collective_s(operation, 8, 0, "ring")  # type: ignore[arg-type]
    assert (fixed, per_byte) == (Fraction(7, 10**6), Fraction(7, 8 * 50 * 10**9))


def test_one_rank_costs_nothing() -> None:
    """A collective of one rank has neither latency nor bytes."""
    assert network((8, 50e9, 1e-6)).collective_s("all-reduce", 1, 0, "ring") == (0, 0)


def test_effective_bandwidth_is_the_least_on_the_way() -> None:
    """A faster outer level cannot outrun the inner ones (900/100/400 is 900/100/100)."""
    found = network((2, 900, 0), (2, 100, 0), (2, 400, 0))
    assert [found.hop_s(Fraction(3600), level) for level in range(3)] == [4, 36, 36]


def test_hop_charges_latency_at_zero_bytes() -> None:
    """A transfer of nothing still takes the latency."""
    assert network((2, 900, 0.25)).hop_s(Fraction(0), 0) == Fraction(1, 4)


def test_level_of_a_set_is_the_smallest_group_that_holds_it() -> None:
    """The level of every pair equals a search over all groups, sizes 3, 2 and 2."""
    found = network((3, 9, 0), (2, 3, 0), (2, 1, 0))
    groups = [
        [set(range(start, start + size)) for start in range(0, 12, size)] for size in (3, 6, 12)
    ]
    for first in range(12):
        for second in range(12):
            expected = next(
                level
                for level, candidates in enumerate(groups)
                if any({first, second} <= group for group in candidates)
            )
            assert found.level([first, second]) == expected


def test_picoseconds_round_half_up_once() -> None:
    """Half a picosecond rounds up, less rounds down."""
    half = Fraction(1, 2 * 10**12)
    assert (to_ps(half), to_ps(half - Fraction(1, 10**20)), to_ps(3 * half)) == (1, 0, 2)


def test_tree_all_reduce_takes_log_steps_and_twice_the_buffer() -> None:
    """Eleven ranks: 4 steps up and 4 down, the buffer sent and received twice over."""
    found = network((16, 50, 3), algorithms=("ring", "tree"))
    assert found.collective_s("all-reduce", 11, 0, "tree") == (24, Fraction(2, 50))


def test_the_faster_algorithm_is_chosen_by_size() -> None:
    """Small buffers take the tree, large ones the ring, and the turn is where they are equal."""
    found = network((16, 50, 3), algorithms=("ring", "tree"))
    # Ring: 20 * 3 + 20/11 * n/50; tree: 8 * 3 + 2 * n/50; equal at n = 9900.
    sizes = (Fraction(9899), Fraction(9900))
    chosen = [found.fastest_algorithm("all-reduce", 11, 0, size) for size in sizes]
    assert chosen == ["tree", "ring"]


def test_only_an_all_reduce_has_a_tree() -> None:
    """An all-gather takes the ring, and without leave so does an all-reduce."""
    both = network((16, 50, 3), algorithms=("ring", "tree"))
    assert both.fastest_algorithm("all-gather", 11, 0, Fraction(1)) == "ring"
    assert network((16, 50, 3)).fastest_algorithm("all-reduce", 11, 0, Fraction(1)) == "ring"
