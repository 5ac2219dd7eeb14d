"""Random placements of the free family: device maps that mix what belongs together."""

import random

from nest_opt.certify.dual_groups import Degrees
from nest_opt.plan.evaluate import Costs
from nest_opt.plan.placement import ListedMap, Placement
from nest_opt.problem import Configuration

Block = tuple[int, int]


def random_placement(costs: Costs, at: Degrees, rng: random.Random) -> Placement | None:
    """Return a placement of a group, legal or not; None if its blocks need too many devices."""
    chain = tuple(rng.choice(at.choices) for _ in range(at.stages))
    devices = costs.problem.cluster.device_count
    if at.replicas * sum(k.block_size for k in chain) > devices:
        chain = (min(at.choices, key=lambda k: k.block_size),) * at.stages
    if at.replicas * sum(k.block_size for k in chain) > devices:
        return None
    layers = costs.table.layer_count
    ends = [layers * (stage + 1) // at.stages for stage in range(at.stages)]
    for stage in range(at.stages - 1):
        ends[stage] += rng.choice((-1, 0, 0, 1))
    inner = sorted(set(ends[:-1]) & set(range(1, layers)))
    while len(inner) < at.stages - 1:
        inner = sorted({*inner, rng.randrange(1, layers)})
    modes = [tuple(costs.table.pairs[at.microbatch, k].stash_bytes) for k in chain]
    return Placement(
        at.microbatch, chain, at.replicas, "listed", 0, (*inner, layers),
        tuple(rng.choice(mode) for mode in modes), random_map(costs, chain, at.replicas, rng),
        zero=at.zero, schedule=at.schedule,
    )  # fmt: skip


def random_map(
    costs: Costs, chain: tuple[Configuration, ...], replicas: int, rng: random.Random
) -> ListedMap:
    """Return a device map: stages and replicas in runs, now and then a rank somewhere else."""
    stages = range(len(chain))
    remaining = [(stage, replica) for stage in stages for replica in range(replicas)]
    order: list[Block] = []
    while remaining:
        stage, replica = rng.choice(remaining)
        kind = rng.choice(("run", "copies", "one"))
        some = [(stage, replica)]
        if kind == "run":
            some = [(s, replica) for s in range(stage, rng.randint(stage, stages[-1]) + 1)]
        elif kind == "copies":
            some = [(stage, r) for r in range(replicas)]
        some = [block for block in some if block in remaining]
        order += some
        remaining = [block for block in remaining if block not in some]
    devices, inner = costs.problem.cluster.device_count, costs.network.group_sizes[0]
    groups = [list(range(at, min(at + inner, devices))) for at in range(0, devices, inner)]
    needed = sum(chain[stage].block_size for stage, _ in order)
    if rng.random() < 0.7:
        rng.shuffle(groups)
    spare = devices - needed
    blocks: dict[Block, list[int]] = {}
    while True:
        free = [list(group) for group in groups]
        skipped = spare
        for stage, replica in order:
            size = chain[stage].block_size
            while free and len(free[0]) < size and len(free[0]) <= skipped and rng.random() < 0.9:
                skipped -= len(free.pop(0))
            taken: list[int] = []
            while len(taken) < size:
                free = [group for group in free if group]
                taken.append(free[0].pop(0))
            blocks[stage, replica] = taken
            free = [group for group in free if group]
        break
    if rng.random() < 0.3:
        for _ in range(rng.randint(1, 3)):
            one, two = rng.choice(order), rng.choice(order)
            a, b = rng.randrange(len(blocks[one])), rng.randrange(len(blocks[two]))
            blocks[one][a], blocks[two][b] = blocks[two][b], blocks[one][a]
    return ListedMap(
        tuple(tuple(tuple(blocks[s, r]) for r in range(replicas)) for s in stages)
    )
