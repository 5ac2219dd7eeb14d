"""Pipeline schedules: which numbers of rounds they run, and what they hold in memory.

`docs/schedules.md` has the schedules, their sources and how far the closed
forms are from them.
"""

from collections.abc import Sequence
from itertools import pairwise

from nest_opt.problem.job import Job
from nest_opt.problem.schedule import Schedule


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


def runs(schedule: Schedule, stages: int, rounds: int) -> bool:
    """Whether a schedule runs m rounds on S stages.

    Interleaving takes microbatches in groups of S, and one stage has nothing
    to take turns with (Narayanan et al. 2021, arXiv:2104.04473, section 2.2.2).
    ZB-H1 fills its warm-up with S microbatches (Qi et al. 2023, arXiv:2401.10241,
    section 2.1).
    """
    if schedule.name == "interleaved":
        return stages > 1 and rounds % stages == 0
    return schedule.name != "zb-h1" or rounds >= stages


def in_flight(schedule: Schedule, stage: int, stages: int, rounds: int) -> int:
    """Return the stashes of one microbatch and chunk that stage i of S holds at its peak.

    1F1B: min(S - i, m), Narayanan et al. 2021 (arXiv:2104.04473), section
    2.2.1; GPipe: m, Huang et al. 2019 (arXiv:1811.06965); interleaved: its
    warm-up and one more, min(2 (S - i - 1) + (v - 1) S + 1, m v), section 2.2.2
    of the former; ZB-H1: min(S, m), as the weights' gradients of the last i
    microbatches wait (Qi et al. 2023, arXiv:2401.10241, section 2.1).
    """
    if schedule.name == "gpipe":
        return rounds
    if schedule.name == "interleaved":
        v = schedule.chunks
        return min(2 * (stages - stage - 1) + (v - 1) * stages + 1, rounds * v)
    return min(stages - stage if schedule.name == "1f1b" else stages, rounds)


def are_equal_chunks(sizes: Sequence[int], schedule: Schedule) -> bool:
    """Whether a schedule takes chunks of these numbers of layers: (70).

    Those of an interleaved one are equal but for the first and the last, which
    hold what only the ends of a model have. One chunk a stage may be any.
    """
    inner = sizes[1:-1] if schedule.is_interleaved else ()
    return all(here == there for here, there in pairwise(inner))


def drains(schedule: Schedule) -> bool:
    """Whether later stages end earlier, by the backward times of those before: equation (16).

    Under ZB-H1 all stages end at about the same time, only i (B - W) apart.
    """
    return schedule.name != "zb-h1"
