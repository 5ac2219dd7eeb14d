"""Random placements of a problem, of the aligned family or not, and placements as plain data."""

import random
from itertools import islice
from typing import Any

from nest_opt import Problem
from nest_opt.cost.schedule import rounds_per_batch
from nest_opt.plan import Placement
from nest_opt.plan.placement import ListedMap
from nest_opt.problem import Zero
from nest_opt.problem.schedule import ONE_F_ONE_B, Schedule
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
        and any(replicas % zero.instances == 0 for zero in problem.zeros)
    ]
    if not shapes:
        return None
    microbatch, k, replicas, stages = rng.choice(shapes)
    schedule = ONE_F_ONE_B
    if problem.search.schedules != (ONE_F_ONE_B,):
        schedule = rng.choice(problem.search.schedules)
        if stages * schedule.chunks > layers or (stages == 1 and schedule.chunks > 1):
            schedule = Schedule("zb-h1")
    levels = [zero for zero in problem.zeros if replicas % zero.instances == 0]
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
        (*sorted(rng.sample(range(1, layers), stages * schedule.chunks - 1)), layers),
        tuple(rng.choice(modes) for _ in range(stages)),
        zero=rng.choice(levels) if any(problem.zeros) else Zero(),
        schedule=schedule,
    )


def random_staged_placement(rng: random.Random, problem: Problem) -> Placement | None:
    """Return any placement whose stages may differ, in any order or on any devices listed.

    None where few tries find no legal degrees.
    """
    devices, layers = problem.cluster.device_count, len(problem.model.ids)
    for _ in range(30):
        microbatch, first = rng.choice(problem.candidates)
        alike = [
            k
            for b, k in problem.candidates
            if b == microbatch and (k.cp, k.ep) == (first.cp, first.ep)
        ]
        stages = rng.randint(min(2, layers), layers)
        vector = tuple(rng.choice(alike) for _ in range(stages))
        if problem.model.has_tied and vector[0].tp != vector[-1].tp:
            continue
        sizes = [k.block_size for k in vector]
        replicas = rng.randint(1, max(1, devices // sum(sizes)))
        if (
            replicas * sum(sizes) > devices
            or (problem.search.dp and replicas not in problem.search.dp)
            or rounds_per_batch(problem.job, microbatch, first.ep, replicas) is None
        ):
            continue
        order = rng.choice((*ORDERS, "listed"))
        outer = replicas if order == "pp-inner" else stages
        unit = sum(sizes) if order == "pp-inner" else replicas * max(sizes)
        if outer * unit > devices:
            order = "listed"
        anywhere = iter(rng.sample(range(devices), replicas * sum(sizes)))
        listed = ListedMap(
            tuple(tuple(tuple(islice(anywhere, size)) for _ in range(replicas)) for size in sizes)
        )
        modes = [
            mode
            for mode in problem.search.recompute
            if all(
                mode in kind.by_key[microbatch, k].recompute
                for kind in problem.model.types
                for k in vector
            )
        ]
        levels = [zero for zero in problem.zeros if replicas % zero.instances == 0]
        if modes and levels:
            largest = (devices - unit) // (outer - 1) if outer > 1 else devices
            return Placement(
                microbatch,
                vector,
                replicas,
                order,
                0 if order == "listed" else rng.randint(unit, largest),
                (*sorted(rng.sample(range(1, layers), stages - 1)), layers),
                tuple(rng.choice(modes) for _ in range(stages)),
                listed if order == "listed" else None,
                rng.choice(levels) if any(problem.zeros) else Zero(),
                rng.choice(problem.search.schedules)
                if problem.search.schedules != (ONE_F_ONE_B,)
                else ONE_F_ONE_B,
            )
    return None


def placement_data(placement: Placement) -> dict[str, Any]:
    """Return a placement as plain data, as the oracle reads it."""
    listed = placement.devices
    return {
        "microbatch": placement.microbatch,
        "tp": [k.tp for k in placement.configurations],
        "cp": placement.configurations[0].cp,
        "ep": placement.configurations[0].ep,
        "sp": [k.sp for k in placement.configurations],
        "dp": placement.replicas,
        "zero": placement.zero._asdict(),
        "schedule": placement.schedule.name,
        "chunks": placement.schedule.chunks,
        "order": placement.order,
        "pitch": placement.pitch,
        "ends": list(placement.ends),
        "recompute": list(placement.recompute),
        **({} if listed is None else {"devices": listed.devices}),
    }
