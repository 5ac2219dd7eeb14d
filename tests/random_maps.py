"""Random placements of a group of the free family: device maps that mix what belongs together."""

import random

from nest_opt.certify.dual_groups import Degrees
from nest_opt.plan.evaluate import Costs
from nest_opt.plan.placement import ListedMap, Placement
from nest_opt.problem import Configuration

# Stage and replica.
Block = tuple[int, int]


def random_placement(costs: Costs, at: Degrees, rng: random.Random) -> Placement | None:
    """Return a placement, legal or not; None if its blocks need too many devices."""
    devices = costs.problem.cluster.device_count
    chain = tuple(rng.choice(at.choices) for _ in range(at.stages))
    if at.replicas * sum(k.block_size for k in chain) > devices:
        chain = (min(at.choices, key=lambda k: k.block_size),) * at.stages
    if at.replicas * sum(k.block_size for k in chain) > devices:
        return None
    layers = costs.table.layer_count
    even = {layers * stage // at.stages + rng.choice((-1, 0, 0, 1)) for stage in range(at.stages)}
    inner = sorted(even & set(range(1, layers)))[: at.stages - 1]
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
    """Return a device map: blocks in turn, some groups left early, now and then ranks swapped."""
    devices, inner = costs.problem.cluster.device_count, costs.network.group_sizes[0]
    groups = [list(range(at, min(at + inner, devices))) for at in range(0, devices, inner)]
    rng.shuffle(groups)
    order = _order(len(chain), replicas, rng)
    spare = devices - sum(chain[stage].block_size for stage, _ in order)
    blocks: dict[Block, list[int]] = {}
    for stage, replica in order:
        size = chain[stage].block_size
        while len(groups[0]) < size and len(groups[0]) <= spare and rng.random() < 0.9:
            spare -= len(groups.pop(0))
        blocks[stage, replica] = []
        while len(blocks[stage, replica]) < size:
            groups = [group for group in groups if group]
            blocks[stage, replica].append(groups[0].pop(0))
        groups = [group for group in groups if group] or [[]]
    for _ in range(rng.choice((0, 0, 1, 3))):
        one, two = blocks[rng.choice(order)], blocks[rng.choice(order)]
        a, b = rng.randrange(len(one)), rng.randrange(len(two))
        one[a], two[b] = two[b], one[a]
    return ListedMap(
        tuple(
            tuple(tuple(blocks[stage, replica]) for replica in range(replicas))
            for stage in range(len(chain))
        )
    )


def _order(stages: int, replicas: int, rng: random.Random) -> list[Block]:
    """Return all blocks: runs of a replica's stages, all replicas of a stage, and single ones."""
    remaining = [(stage, replica) for stage in range(stages) for replica in range(replicas)]
    order: list[Block] = []
    while remaining:
        stage, replica = rng.choice(remaining)
        run = [(s, replica) for s in range(stage, rng.randint(stage, stages - 1) + 1)]
        copies = [(stage, r) for r in range(replicas)]
        some = [b for b in rng.choice((run, copies, [(stage, replica)])) if b in remaining]
        order += some
        remaining = [block for block in remaining if block not in some]
    return order
