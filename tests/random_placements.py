"""Random placements of a problem, of the aligned family or not, and placements as plain data."""

import random
from typing import Any

from nest_opt import Problem
from nest_opt.cost.schedule import rounds_per_batch
from nest_opt.plan import Placement
from nest_opt.problem.search import ORDERS, Order


def random_placement(rng: random.Random, problem: Problem) -> Placement | None:
    """Return any placement that can be evaluated, of the aligned family or not.

    None where no degrees are legal.
    """
    devices, layers = problem.cluster.device_count, len(problem.model.ids)
    shapes = [
        (microbatch, k, replicas, stages)
        for microbatch, k in problem.candidates
        for replicas in problem.search.dp or range(1, devices + 1)
        for stages in range(1, layers + 1)
        if k.block_size * replicas * stages <= devices
        and rounds_per_batch(problem.job, microbatch, k.ep, replicas) is not None
    ]
    if not shapes:
        return None
    microbatch, k, replicas, stages = rng.choice(shapes)
    order: Order = rng.choice(ORDERS)
    inner, outer = (stages, replicas) if order == "pp-inner" else (replicas, stages)
    unit = inner * k.block_size
    largest = (devices - unit) // (outer - 1) if outer > 1 else devices
    modes = [
        mode
        for mode in problem.search.recompute
        if all(mode in kind.by_key[microbatch, k].recompute for kind in problem.model.types)
    ]
    return Placement(
        microbatch,
        (k,) * stages,
        replicas,
        order,
        rng.randint(unit, largest),
        (*sorted(rng.sample(range(1, layers), stages - 1)), layers),
        tuple(rng.choice(modes) for _ in range(stages)),
    )


def placement_data(placement: Placement) -> dict[str, Any]:
    """Return a placement as plain data, as the oracle reads it."""
    tp, cp, ep, sp = placement.configurations[0]
    return {
        "microbatch": placement.microbatch,
        **{"tp": tp, "cp": cp, "ep": ep, "sp": sp, "dp": placement.replicas},
        "order": placement.order,
        "pitch": placement.pitch,
        "ends": list(placement.ends),
        "recompute": list(placement.recompute),
    }
