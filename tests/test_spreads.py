"""Collectives over copies that leave a group by a port for each rank: equation (77)."""

import json
import random
from fractions import Fraction
from itertools import combinations, product
from typing import Any

import pytest
from free_brute_force import free_brute_force
from free_instances import free_data
from free_zero_instances import free_zero_data
from random_instances import random_data

from nest_opt import InstanceError, Problem
from nest_opt.certify.checker import RefusedError, Space, check, digest
from nest_opt.certify.maker import make_certificate
from nest_opt.cost.table import CLASSES
from nest_opt.cost.table_file import table_from_json, table_to_json
from nest_opt.dp.default_source import DefaultSource
from nest_opt.dp.free_bounds import group_bound_ps
from nest_opt.dp.free_source import FreeLeastLevels, FreeSource
from nest_opt.dp.least_levels import LeastLevels
from nest_opt.dp.levels import LevelVectors
from nest_opt.dp.search import NO_LIMIT, GroupQueue, search
from nest_opt.errors import ConsistencyError, ModelError
from nest_opt.milp.exact import exact
from nest_opt.models.fabrics import build_torus_fabric
from nest_opt.network import HierarchicalNetwork
from nest_opt.network.collectives.bounds import cut_volumes
from nest_opt.network.collectives.shape import Spread
from nest_opt.network.spread import Spreads, every_spread
from nest_opt.plan.evaluate import Costs, copy_levels, sync_group
from nest_opt.plan.family import aligned_maps
from nest_opt.plan.placement import DeviceMap
from nest_opt.problem import Configuration, HierarchicalSpec, SearchSpace, Zero
from nest_opt.problem.files import to_json_data
from nest_opt.problem.validation import build
from nest_opt.problem.zero import NOT_SHARDED


def network(
    *levels: tuple[int, int | str, int | str], collectives: str = "ports"
) -> HierarchicalNetwork:
    """Return a network of (size, bandwidth, latency) levels."""
    return HierarchicalNetwork(
        HierarchicalSpec.model_validate(
            {
                "type": "hierarchical",
                "collectives": collectives,
                "levels": [
                    {
                        "name": str(number),
                        "size": size,
                        "bandwidth_bytes_per_s": bandwidth,
                        "latency_s": latency,
                    }
                    for number, (size, bandwidth, latency) in enumerate(levels)
                ],
            }
        )
    )


def random_network(rng: random.Random) -> HierarchicalNetwork:
    """Return a network of 1 to 4 levels, on which groups have several bandwidths."""
    return network(
        *(
            (rng.choice((1, 2, 3, 4, 5)), rng.choice((60, 30, 20, 7, 100)), number)
            for number in range(rng.randint(1, 4))
        )
    )


def parts(spreads: Spreads, spread: int) -> tuple[int, int]:
    """Return the level and the number of the bandwidth of a spread."""
    return spreads.level(spread), spreads.bandwidth(spread)


def real_set(
    found: HierarchicalNetwork,
    configuration: Configuration,
    device_map: DeviceMap,
    stage: int,
    zero: Zero,
) -> set[tuple[int, ...]]:
    """Return the spreads of every rank's copies, from sets of devices."""
    ranks = set()
    for rank in range(configuration.block_size):
        copies = [
            copy_levels(
                found, sync_group(device_map, configuration, name, stage, rank), zero.runs(name)
            )
            for name in CLASSES
        ]
        between = tuple(each.between for each in copies) if zero.instances > 1 else ()
        ranks.add((*(each.inside for each in copies), *between))
    return ranks


@pytest.mark.parametrize("part", range(8))
def test_spreads_by_residues_are_those_of_the_devices(part: int) -> None:
    """Maximal spreads by residues are those of the devices; the least ones are no worse."""
    rng, uneven = random.Random(f"spreads {part}"), 0
    for _ in range(6):
        found = random_network(rng)
        places = found.group_sizes[-1]
        devices = rng.randint(max(1, places // 2), places)
        k = Configuration(rng.choice((1, 2, 3)), rng.choice((1, 1, 2)), rng.choice((1, 1, 2)))
        vectors, spreads = LevelVectors(found.spreads, k), found.spreads
        for replicas in range(1, devices // k.block_size + 1):
            runs = [h for h in range(1, replicas + 1) if replicas % h == 0]
            stages = rng.randint(1, max(1, min(3, devices // (k.block_size * replicas))))
            for device_map in aligned_maps(
                found.group_sizes, devices, k.block_size, replicas, stages, SearchSpace()
            ):
                zero = rng.choice(
                    (NOT_SHARDED, Zero(*rng.choice(((1, 1), (0, 2))), rng.choice(runs)))
                )
                sets = vectors.sync_sets(device_map, zero)
                for stage in range(stages):
                    real = real_set(found, k, device_map, stage, zero)
                    assert sets[stage] == spreads.maximal(real)
                    for least in (LeastLevels(spreads), FreeLeastLevels(spreads)):
                        best = least.of_copies(k, replicas, zero)
                        for member in real:
                            for low, high in zip(best, member, strict=True):
                                assert spreads.join((low, high)) == high
                                uneven += low != high
    assert uneven


def test_long_rows_of_replicas_have_the_spread_of_their_devices() -> None:
    """Where most replicas are left out, counts are those of all devices."""
    rng = random.Random("long rows")
    for _ in range(40):
        found = network((rng.choice((4, 6)), 60, 0), (rng.choice((2, 3)), 10, 1), (40, 3, 2))
        k = Configuration(rng.choice((1, 2)), 1, rng.choice((1, 2)))
        step, replicas = k.block_size + rng.randint(0, 9), rng.randint(2, 60)
        first = rng.randint(0, 30)
        if first + replicas * step > found.group_sizes[-1]:
            continue
        members = LevelVectors(found.spreads, k).copy_set(first, step, replicas)
        device_map = DeviceMap(k.block_size, replicas, 1, "pp-inner", step)
        shifted = {
            tuple(
                found.spread([first + x for x in sync_group(device_map, k, name, 0, rank)])
                for name in CLASSES
            )
            for rank in range(k.block_size)
        }
        assert members == found.spreads.maximal(shifted)


def test_no_set_of_devices_beats_the_best_spread() -> None:
    """Of all sets of n devices on a level or above none is better than the best in any part."""
    reached = 0
    for levels in (((3, 60, 0), (2, 20, 1), (2, 7, 2)), ((2, 60, 0), (2, 50, 1), (3, 25, 2))):
        found = network(*levels)
        spreads, places = found.spreads, range(found.group_sizes[-1])
        for count in range(2, 7):
            for devices in combinations(places, count):
                spread = found.spread(devices)
                assert spread in every_spread(spreads.rates, count)
                for level in range(spreads.level(spread) + 1):
                    best = spreads.best(count, level)
                    assert spreads.join((best, spread)) == spread
                    assert best in every_spread(spreads.rates, count)
                    reached += best == spread
    assert reached


def test_two_nodes_of_four_ranks_by_hand() -> None:
    """Eight ranks, four a node, leave a node by four ports; no group gets more than inside one."""
    found = network((8, 300, 1), (4, 50, 2))
    spread = found.spread([0, 1, 2, 3, 8, 9, 10, 11])
    assert found.collective_s("all-reduce", 8, spread, "ring") == (14 * 2, Fraction(14, 8) / 200)
    uneven = found.spread([0, 1, 2, 3, 8])
    assert found.collective_s("all-gather", 5, uneven, "ring") == (4 * 2, Fraction(4, 5) / 50)
    full = found.spread(range(16))
    assert found.collective_s("all-reduce", 16, full, "tree") == (8 * 2, Fraction(2, 300))


@pytest.mark.parametrize("seed", range(20))
def test_one_port_has_the_levels_alone(seed: int) -> None:
    """With one port a group a spread is a level, and as fast as the worst spread on it."""
    rng = random.Random(seed)
    several = random_network(rng)
    flat = network(
        *(
            (size, bandwidth, number)
            for number, (size, bandwidth) in enumerate(
                (rng.choice((1, 2, 3, 4)), rng.choice((60, 30, 20, 7))) for _ in range(3)
            )
        ),
        collectives="flat",
    )
    for found in (flat, several):
        devices = rng.sample(range(found.group_sizes[-1]), min(3, found.group_sizes[-1]))
        level, spreads = found.level(devices), found.spreads
        assert spreads.level(found.spread(devices)) == level
        assert spreads.join((found.spread(devices), spreads.single_port(level))) == (
            spreads.single_port(level)
        )
    ends = [0, flat.group_sizes[-1] - 1]
    assert flat.spread(ends) == flat.level(ends)
    assert every_spread(flat.spreads.rates, 9) == (0, 1, 2)


def test_no_spread_is_faster_than_a_better_one() -> None:
    """Times of a call fall with neither part of a spread."""
    for seed in range(40):
        found = random_network(random.Random(f"order {seed}"))
        spreads = found.spreads
        every = every_spread(spreads.rates, 12)
        times = {s: found.collective_s("all-reduce", 12, s, "ring") for s in every}
        for low, high in product(every, every):
            if spreads.join((low, high)) == high:
                assert times[low][0] <= times[high][0]
                assert times[low][1] <= times[high][1]
            assert spreads.join((low, high)) in every


def test_no_collective_is_below_what_must_cross_the_links() -> None:
    """A ring or tree moves at least the bytes of the cut bound over every level."""
    without_switches = build_torus_fabric(300)
    bandwidths = (300, 50, 20)
    found = network(*((8, bandwidth, 0) for bandwidth in bandwidths))
    for inner, middle, outer in product((1, 2, 8), (1, 3, 8), (1, 2, 4)):
        shape = Spread((inner, middle, outer))
        if shape.ranks == 1:
            continue
        devices = [
            x + 8 * y + 64 * z for z in range(outer) for y in range(middle) for x in range(inner)
        ]
        spread = found.spread(devices)
        for operation in ("all-reduce", "all-gather", "reduce-scatter"):
            volumes = cut_volumes(without_switches, operation, shape)
            _, per_byte = found.collective_s(operation, shape.ranks, spread, "ring")
            for volume, bandwidth, count in zip(volumes, bandwidths, shape.counts, strict=True):
                assert count == 1 or per_byte >= volume / bandwidth


def ports_data() -> dict[str, Any]:
    """Return a problem whose network tells spreads of its copies apart."""
    for seed in range(100):
        data = random_data(seed)
        if data["cluster"]["network"].get("collectives") == "ports":
            table = Costs(build(Problem, data, "problem")).table
            if table.rates and any(key.spread >= table.level_count for key in table.sync):
                return data
    raise AssertionError("no such problem")


def test_a_table_of_several_ports_is_read_as_it_was_written() -> None:
    """A table with rates comes back the same, and none of its parts may be another."""
    table = Costs(build(Problem, ports_data(), "problem")).table
    data = table_to_json(table)
    assert table_from_json(data) == table
    assert table.rates is not None
    for wrong in (
        [[0] for _ in table.rates],
        [[*rates, 9] for rates in table.rates],
        [list(rates) for rates in table.rates][1:],
        [[5000, *rates] for rates in table.rates],
    ):
        with pytest.raises(InstanceError, match=r"rates|sync"):
            table_from_json({**data, "rates": wrong})
    without = {name: value for name, value in data.items() if name != "rates"}
    with pytest.raises(InstanceError, match="sync"):
        table_from_json(without)


def test_the_checker_has_the_same_rates() -> None:
    """The checker numbers bandwidths as the table does, and refuses another table's."""
    data = ports_data()
    costs = Costs(build(Problem, data, "problem"))
    problem, table = to_json_data(costs.problem), table_to_json(costs.table)
    space = Space(problem, table, "aligned")
    assert space.rates == [list(rates) for rates in costs.network.spreads.rates]
    with pytest.raises(Exception, match=r"table\.rates"):
        Space(problem, {**table, "rates": [[0]] * (len(space.sizes) - 1)}, "aligned")


def test_the_checker_divides_by_oversubscription() -> None:
    """Rates are those of what is left of an oversubscribed level, to the same digits."""
    data = ports_data()
    for number, level in enumerate(data["cluster"]["network"]["levels"]):
        level["oversubscription"] = (1, 3, "1.7", 7)[number]
    costs = Costs(build(Problem, data, "problem"))
    assert costs.table.rates is not None
    space = Space(to_json_data(costs.problem), table_to_json(costs.table), "aligned")
    assert space.rates == [list(rates) for rates in costs.network.spreads.rates]


def test_programs_that_choose_devices_refuse_ports() -> None:
    """The free family's integer program names the field and what to do."""
    problem = build(Problem, ports_data(), "problem")
    with pytest.raises(ModelError, match=r"cluster\.network\.collectives: found ports"):
        exact(problem, family="free")


def test_too_many_bandwidths_are_refused() -> None:
    """An innermost level that is too much faster than a large group's next one is refused."""
    with pytest.raises(ValueError, match="found ports with 2000 bandwidths"):
        network((2000, 10**9, 0), (2, 1, 0))


def test_no_group_of_the_free_family_has_a_plan_below_its_bounds() -> None:
    """Runs and linear programs take the best spread on each level: no assignment is below them."""
    compared = tight = 0
    for make, seeds in ((free_data, (20, 28, 49)), (free_zero_data, (7, 11, 15, 20))):
        for seed in seeds:
            data = make(seed)
            data["search"]["per_stage"] = []
            data["cluster"]["network"]["collectives"] = "ports"
            costs = Costs(build(Problem, data, "problem"))
            best = free_brute_force(costs.problem, 120, groups=True)
            if best is None or costs.network.spreads.is_flat:
                continue
            source, queue = FreeSource(costs), GroupQueue(FreeSource(costs), with_dominated=True)
            queue.fill()
            while (group := queue.next(NO_LIMIT)) is not None:
                chain = (group.configuration,) * group.stages
                of = group.microbatch, chain, group.replicas, group.schedule, group.zero
                if of in best.by_group:
                    bound = group_bound_ps(source, group)
                    assert bound is not None
                    assert bound <= best.by_group[of]
                    compared, tight = compared + 1, tight + (bound == best.by_group[of])
                queue.finish()
    assert compared >= 6
    assert tight


def test_a_certificate_of_ports_is_accepted_and_one_more_is_not_provable() -> None:
    """The optimum is proved; a picosecond more is not, nor anything on another network."""
    costs = Costs(build(Problem, ports_data(), "problem"))
    value = search(DefaultSource(costs)).value_ps
    assert value is not None
    made = json.loads(json.dumps(make_certificate(costs, "aligned", value).data))
    assert check(made).least_ps == value
    with pytest.raises(ConsistencyError):
        make_certificate(costs, "aligned", value + 1)
    made["problem"]["cluster"]["network"].pop("collectives")
    made["problem_sha256"] = digest(made["problem"])
    with pytest.raises(RefusedError, match=r"table\.rates"):
        check(made)
