"""Level vectors by residues against levels of the real sets of devices."""

import random

import pytest
from seeds import thinned

from nest_opt.cost.table import CLASSES
from nest_opt.dp.levels import NO_HOP, LevelVectors, maximal
from nest_opt.network import HierarchicalNetwork, Network
from nest_opt.plan.evaluate import block_groups, sync_group
from nest_opt.plan.family import aligned_maps, count_maps
from nest_opt.plan.placement import DeviceMap
from nest_opt.problem import Configuration, HierarchicalSpec, SearchSpace, Zero


def random_network(generator: random.Random) -> HierarchicalNetwork:
    """Return a network of 1 to 4 levels of uneven sizes."""
    return HierarchicalNetwork(
        HierarchicalSpec.model_validate(
            {
                "type": "hierarchical",
                "levels": [
                    {
                        "name": str(level),
                        "size": generator.choice([1, 2, 3, 4, 5]),
                        "bandwidth_bytes_per_s": 1,
                        "latency_s": level,
                    }
                    for level in range(generator.randint(1, 4))
                ],
            }
        )
    )


def real_stage_set(
    network: Network,
    configuration: Configuration,
    device_map: DeviceMap,
    stage: int,
    goes_round: bool = False,
) -> set[tuple[int, ...]]:
    """Return what a stage sees, replica by replica, from sets of devices."""
    seen = set()
    for replica in range(device_map.replicas):
        block = device_map.block(replica, stage)
        levels = [
            max(network.level(ranks) for ranks in block_groups(block, configuration, group))
            for group in ("tp", "cp", "ep")
        ]
        for neighbour in (stage - 1, stage + 1):
            if 0 <= neighbour < device_map.stages or goes_round:
                other = device_map.block(replica, neighbour % device_map.stages)
                levels.append(max(network.level(p) for p in zip(block, other, strict=True)))
            else:
                levels.append(NO_HOP)
        seen.add(tuple(levels))
    return seen


def real_sync_set(
    network: Network, configuration: Configuration, device_map: DeviceMap, stage: int
) -> set[tuple[int, ...]]:
    """Return the (dense, expert) group levels of every rank, from sets of devices."""
    return {
        tuple(
            network.level(sync_group(device_map, configuration, name, stage, rank))
            for name in ("dense", "expert")
        )
        for rank in range(configuration.block_size)
    }


@pytest.mark.parametrize("seed", thinned(range(300)))
def test_level_sets_equal_those_of_the_devices(seed: int) -> None:
    """Maximal stage and sync levels by residues are those found on the devices."""
    generator = random.Random(seed)
    network = random_network(generator)
    places = network.group_sizes[-1]
    devices = generator.randint(max(1, places // 2), places)
    configuration = Configuration(
        generator.choice([1, 2, 3]), generator.choice([1, 1, 2]), generator.choice([1, 1, 2])
    )
    block = configuration.block_size
    vectors = LevelVectors(network.spreads, configuration)
    for replicas in range(1, devices // block + 1):
        for stages in range(1, min(4, devices // (block * replicas)) + 1):
            for device_map in aligned_maps(
                network.group_sizes, devices, block, replicas, stages, SearchSpace()
            ):
                stage_sets = vectors.stage_sets(device_map)
                round_sets = vectors.stage_sets(device_map, goes_round=True)
                sync_sets = vectors.sync_sets(device_map)
                for stage in range(stages):
                    place = network, configuration, device_map, stage
                    assert stage_sets[stage] == maximal(real_stage_set(*place))
                    if stages > 1:
                        around = real_stage_set(*place, goes_round=True)
                        assert round_sets[stage] == maximal(around)
                    assert sync_sets[stage] == maximal(real_sync_set(*place))


@pytest.mark.parametrize("seed", thinned(range(100)))
def test_levels_of_runs_equal_those_of_the_devices(seed: int) -> None:
    """Levels inside and between runs of replicas by residues are those found on the devices."""
    generator = random.Random(f"runs {seed}")
    network = random_network(generator)
    places = network.group_sizes[-1]
    devices = generator.randint(max(1, places // 2), places)
    configuration = Configuration(
        generator.choice([1, 2, 3]), generator.choice([1, 1, 2]), generator.choice([1, 1, 2])
    )
    block = configuration.block_size
    vectors = LevelVectors(network.spreads, configuration)
    for replicas in range(2, devices // block + 1):
        runs = [h for h in range(2, replicas + 1) if replicas % h == 0]
        for stages in range(1, min(2, devices // (block * replicas)) + 1):
            for device_map in aligned_maps(
                network.group_sizes, devices, block, replicas, stages, SearchSpace()
            ):
                for levels in ((1, 1), (0, 2), (3, 0)):
                    zero = Zero(*levels, generator.choice(runs))
                    found = vectors.sync_sets(device_map, zero)
                    for stage in range(stages):
                        real = real_run_set(network, configuration, device_map, stage, zero)
                        assert found[stage] == maximal(real)


def real_run_set(
    network: Network,
    configuration: Configuration,
    device_map: DeviceMap,
    stage: int,
    zero: Zero,
) -> set[tuple[int, ...]]:
    """Return every rank's levels inside the worst run and between equals, from sets of devices."""
    found = set()
    for rank in range(configuration.block_size):
        inside, between = [], []
        for name in CLASSES:
            copies = sync_group(device_map, configuration, name, stage, rank)
            length = len(copies) // (zero.instances if zero.level(name) else 1)
            runs = [copies[first : first + length] for first in range(0, len(copies), length)]
            inside.append(max(network.level(run) for run in runs))
            between.append(max(network.level(equals) for equals in zip(*runs, strict=True)))
        found.add((*inside, *between))
    return found


@pytest.mark.parametrize("seed", thinned(range(100)))
def test_counting_device_maps_equals_making_them(seed: int) -> None:
    """Without making one, the number of maps is right for every d, S, order and pitch."""
    generator = random.Random(f"maps {seed}")
    network = random_network(generator)
    places = network.group_sizes[-1]
    devices, block = generator.randint(max(1, places // 2), places), generator.randint(1, 3)
    search = SearchSpace(
        order=generator.choice([("pp-inner",), ("dp-inner",), ("pp-inner", "dp-inner")]),
        pitch=generator.choice(
            [("tight",), ("level",), ("spread",), ("tight", "level"), ("tight", "level", "spread")]
        ),
    )
    for replicas in range(1, devices // block + 1):
        stages = list(range(1, devices // (block * replicas) + 1))
        place = network.group_sizes, devices, block, replicas
        counts = count_maps(*place, stages, search)
        assert counts == [len(aligned_maps(*place, count, search)) for count in stages]


def test_maximal_keeps_what_nothing_dominates() -> None:
    """Dominated members go, incomparable ones stay."""
    assert maximal([(0, 1), (1, 0), (0, 0), (1, 0)]) == {(0, 1), (1, 0)}
