"""Pipeline schedules: microbatches in flight and rounds per batch."""

from nest_opt.problem.job import Job


def rounds_per_batch(job: Job, microbatch: int, expert_degree: int, replicas: int) -> int | None:
    """Return m, the microbatches that each pipeline runs per batch.

    m = G / (b * D) over D = ep * d data streams; None where G is not a
    multiple and the job does not pad.
    """
    streams = microbatch * expert_degree * replicas
    rounds, rest = divmod(job.global_batch, streams)
    if rest and not job.pad:
        return None
    return rounds + (rest > 0)


def in_flight_1f1b(stage: int, stages: int, rounds: int) -> int:
    """Return the microbatches whose stash stage i of S holds at its peak: min(S - i, m).

    1F1B; Narayanan et al. 2021 (arXiv:2104.04473), section 2.2.1.
    """
    return min(stages - stage, rounds)
