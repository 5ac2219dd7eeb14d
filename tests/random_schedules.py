"""Random placements under every schedule: a drawn problem that allows them all, and its cuts."""

import random
from dataclasses import replace

from random_placements import random_placement

from nest_opt import Problem
from nest_opt.cost.schedule import rounds_per_batch, runs
from nest_opt.plan import Placement
from nest_opt.problem.schedule import SCHEDULES, Schedule, ScheduleName

CHUNKS = (2, 3)
# Draws until a placement has stages and rounds that a schedule runs.
_TRIES = 40


def with_schedules(problem: Problem, *names: ScheduleName) -> Problem:
    """Return a problem that searches these schedules, all if none is named."""
    search = problem.search.model_copy(
        update={"schedule": names or SCHEDULES, "chunks": CHUNKS, "per_stage": ()}
    )
    return problem.model_copy(update={"search": search})


def random_scheduled_placement(
    rng: random.Random, problem: Problem, name: ScheduleName
) -> Placement | None:
    """Return any placement that can be evaluated and runs a schedule; None if few draws find one.

    Stages are two or more.
    """
    layers = len(problem.model.ids)
    plain = with_schedules(problem, "1f1b")
    for _ in range(_TRIES):
        placement = random_placement(rng, plain)
        if placement is None:
            return None
        schedule = Schedule(name, rng.choice(CHUNKS) if name == "interleaved" else 1)
        stages = placement.stages
        rounds = rounds_per_batch(
            problem.job, placement.microbatch, placement.ep, placement.replicas
        )
        if rounds is None or stages < 2 or not runs(schedule, stages, rounds):
            continue
        if not schedule.is_interleaved:
            return replace(placement, schedule=schedule)
        if stages * schedule.chunks <= layers:
            ends = random_chunk_ends(rng, layers, stages * schedule.chunks)
            return replace(placement, schedule=schedule, ends=ends)
    return None


def random_chunk_ends(rng: random.Random, layers: int, chunks: int) -> tuple[int, ...]:
    """Return the ends of chunks that are equal but for the first and the last."""
    size = rng.randint(1, (layers - 2) // (chunks - 2))
    first = rng.randint(1, layers - 1 - size * (chunks - 2))
    return (*(first + size * chunk for chunk in range(chunks - 1)), layers)
