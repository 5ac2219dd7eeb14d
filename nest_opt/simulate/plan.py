"""From an evaluated plan to the simulator: what the chunks of its stages take."""

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise

from nest_opt.errors import ScheduleError
from nest_opt.plan.evaluate import (
    GATHERED,
    ROUND_TERMS,
    Costs,
    Evaluation,
    StageEvaluation,
    evaluate_stage,
    placement_cell,
)
from nest_opt.plan.placement import Placement
from nest_opt.problem import Configuration
from nest_opt.problem.profile import GROUPS
from nest_opt.problem.schedule import Schedule as ScheduleChoice
from nest_opt.simulate.schedule import Schedule, gpipe, interleaved, one_f_one_b, zb_h1
from nest_opt.simulate.simulator import Hops, Simulation, StageTimes, SyncStart, simulate

# Of all microbatches, stages and chunks: about ten seconds of Python.
MOST_OPERATIONS = 2**20


def simulate_plan(
    costs: Costs,
    placement: Placement,
    evaluation: Evaluation,
    *,
    hops: Hops = "blocking",
    sync: SyncStart = "stage",
) -> Simulation:
    """Run a plan's stages as a pipeline of its schedule and m rounds, a device for each stage.

    Parameters
    ----------
    costs, placement
        What was evaluated.
    evaluation
        The result.
    hops, sync
        As of `simulate`; `blocking` is what F of the formulation (11) means,
        `stage` what its exposed sync (16) does.

    Raises
    ------
    ScheduleError
        If there are more than `MOST_OPERATIONS` operations.
    """
    stages, rounds, schedule = len(evaluation.stages), evaluation.rounds, evaluation.schedule
    split = schedule.name == "zb-h1"
    operations = (3 if split else 2) * schedule.chunks * stages * rounds
    if operations > MOST_OPERATIONS:
        each = "a forward and two halves of a backward" if split else "a forward and a backward"
        chunks = f" of {schedule.chunks:,} chunks" if schedule.is_interleaved else ""
        raise ScheduleError(
            f"simulation: found {operations:,} operations ({each} of "
            f"{rounds:,} rounds on {stages:,} stages{chunks}), at most {MOST_OPERATIONS:,} are "
            "run: leave it out, or simulate the plan with a smaller job.global_batch"
        )
    orders = event_schedule(schedule, stages, rounds)
    return simulate(orders, stage_times(costs, placement, evaluation), hops=hops, sync=sync)


def event_schedule(schedule: ScheduleChoice, stages: int, rounds: int) -> Schedule:
    """Return the orders of operations of a schedule on S stages with m rounds.

    Raises
    ------
    ScheduleError
        If an interleaved schedule does not take m rounds.
    """
    if schedule.is_interleaved:
        return interleaved(stages, rounds, schedule.chunks)
    plain = {"1f1b": one_f_one_b, "gpipe": gpipe, "zb-h1": zb_h1}[schedule.name]
    return plain(stages, rounds)


def stage_times(
    costs: Costs, placement: Placement, evaluation: Evaluation
) -> tuple[StageTimes, ...]:
    """Return the times of a plan's stages; operations and hops of one add up to its `time_ps`.

    With chunks there is an entry for each, chunk c of stage i at c * S + i, and
    those of a stage add up. Times are those of the replica where the stage's F
    is largest. BW is one, but for ZB-H1: there W is the plain time of the
    weights' gradients, and repeated forwards and backward collectives belong to
    B. A stage's sync follows its first chunk, which has its gradients last.
    Under the artifact's cost model hops are inside the two paths of a stage,
    so that there are none to delay.
    """
    if costs.is_artifact:
        return tuple(_artifact_times(stage) for stage in evaluation.stages)
    split = evaluation.schedule.name == "zb-h1"
    costs = costs.ordered(placement.layer_order)
    found = [
        list(_times(costs, placement, number, stage, split))
        for number, stage in enumerate(evaluation.stages)
    ]
    return tuple(times[chunk] for chunk in range(len(found[0])) for times in found)


def _artifact_times(stage: StageEvaluation) -> StageTimes:
    forward = stage.time_terms_ps["forward path"]
    return StageTimes(forward, stage.time_ps - forward, sync_ps=stage.sync_ps)


def _times(
    costs: Costs, placement: Placement, number: int, stage: StageEvaluation, split: bool
) -> Iterator[StageTimes]:
    """Yield the times of each chunk of a stage, W apart or not."""
    pair = placement.microbatch, placement.configurations[number]
    costs_of_pair = costs.table.pairs[pair]
    gathered, shared = _shared_times(costs, placement, number, stage)
    last = len(costs.table.layer_rows)
    for place, (low, high) in enumerate(stage.intervals):
        rows = costs.table.layer_rows[low:high]
        forward, backward = _compute_times(costs, pair, stage, rows)
        weight = sum(costs_of_pair.weight_gradient_ps[row] for row in rows if split)
        # Weights are gathered once in the forward pass, and as long again in the backward pass.
        ahead = gathered[place] // 2
        yield StageTimes(
            forward + ahead,
            backward - weight + shared[place] - ahead,
            weight,
            hop_in_ps=costs_of_pair.hop_ps[stage.levels["hop in"]][low] if low > 0 else 0,
            hop_out_ps=costs_of_pair.hop_ps[stage.levels["hop out"]][high] if high < last else 0,
            sync_ps=0 if place else stage.sync_ps,
        )


def _compute_times(
    costs: Costs,
    pair: tuple[int, Configuration],
    stage: StageEvaluation,
    rows: Sequence[int],
) -> tuple[int, int]:
    """Return forward and backward of some rows with their collectives and repeats."""
    own = costs.table.pairs[pair]
    collectives = [
        (own.forward_collective_ps[group][level], own.backward_collective_ps[group][level])
        for group in GROUPS
        if pair[1].degree(group) > 1
        for level in (stage.levels[group],)
    ]
    forward = backward = 0
    for row in rows:
        once = own.forward_ps[row] + sum(ahead[row] for ahead, _ in collectives)
        forward += once
        backward += own.backward_ps[row] + sum(back[row] for _, back in collectives)
        if stage.recompute == "full":
            backward += once
        elif stage.recompute == "selective":
            backward += own.repeated_forward_ps[row]
    return forward, backward


def _shared_times(
    costs: Costs, placement: Placement, number: int, stage: StageEvaluation
) -> tuple[list[int], list[int]]:
    """Return what gathering weights takes in each chunk, and all collectives over copies.

    The rank that is the worst of a stage need not be that of each chunk, so a
    stage's time is divided in the proportion of what the chunks take by themselves.
    """
    if not any(name in stage.time_terms_ps for name in ROUND_TERMS.values()):
        return [0] * len(stage.intervals), [0] * len(stage.intervals)
    cell = placement_cell(costs.problem, placement)
    alone = [
        evaluate_stage(costs, cell, number, [chunk], stage.recompute).time_terms_ps
        for chunk in stage.intervals
    ]
    divided = {
        name: _divided(stage.time_terms_ps[name], [terms.get(name, 0) for terms in alone])
        for name in ROUND_TERMS.values()
        if name in stage.time_terms_ps
    }
    nothing = [0] * len(stage.intervals)
    return divided.get(GATHERED, nothing), [sum(of) for of in zip(*divided.values(), strict=True)]


def _divided(total: int, shares: Sequence[int]) -> list[int]:
    """Return integers in the proportion of some shares that add up to a total."""
    ends = [total * share // (sum(shares) or 1) for share in accumulate(shares, initial=0)]
    return [high - low for low, high in pairwise(ends)]
