"""From an evaluated plan to the simulator: what the stages of a plan take under 1F1B."""

from nest_opt.errors import ScheduleError
from nest_opt.plan.evaluate import GATHERED, Costs, Evaluation, StageEvaluation
from nest_opt.plan.placement import Placement
from nest_opt.problem import Configuration
from nest_opt.problem.profile import GROUPS
from nest_opt.simulate.schedule import one_f_one_b
from nest_opt.simulate.simulator import Hops, Simulation, StageTimes, simulate

# F and BW of every microbatch and stage: about ten seconds of Python.
MOST_OPERATIONS = 2**20


def simulate_plan(
    costs: Costs, placement: Placement, evaluation: Evaluation, *, hops: Hops = "blocking"
) -> Simulation:
    """Run a plan's stages as a 1F1B pipeline of its m rounds, a device for each stage.

    Parameters
    ----------
    costs, placement
        What was evaluated.
    evaluation
        The result.
    hops
        As of `simulate`; `blocking` is what F of the formulation (11) means.

    Raises
    ------
    ScheduleError
        If there are more than `MOST_OPERATIONS` operations.
    """
    stages, rounds = len(evaluation.stages), evaluation.rounds
    if 2 * stages * rounds > MOST_OPERATIONS:
        raise ScheduleError(
            f"simulation: found {2 * stages * rounds:,} operations (a forward and a backward of "
            f"{rounds:,} rounds on {stages:,} stages), at most {MOST_OPERATIONS:,} are run: leave "
            "it out, or simulate the plan with a smaller job.global_batch"
        )
    schedule = one_f_one_b(stages, rounds)
    return simulate(schedule, stage_times(costs, placement, evaluation), hops=hops)


def stage_times(
    costs: Costs, placement: Placement, evaluation: Evaluation
) -> tuple[StageTimes, ...]:
    """Return the times of a plan's stages; F, BW and both hops of a stage add up to its `time_ps`.

    Each stage's are those of the replica where its F is largest. BW is one:
    repeated forwards and backward collectives belong to it. Under the
    artifact's cost model hops are inside the two paths of a stage, so that
    there are none to delay.
    """
    times = []
    costs = costs.ordered(placement.layer_order)
    for number, stage in enumerate(evaluation.stages):
        pair = placement.microbatch, placement.configurations[number]
        forward = _forward_ps(costs, stage, pair)
        hop_in, hop_out = (stage.time_terms_ps.get(name, 0) for name in ("hop in", "hop out"))
        backward = stage.time_ps - forward - hop_in - hop_out
        times.append(
            StageTimes(
                forward, backward, hop_in_ps=hop_in, hop_out_ps=hop_out, sync_ps=stage.sync_ps
            )
        )
    return tuple(times)


def _forward_ps(costs: Costs, stage: StageEvaluation, pair: tuple[int, Configuration]) -> int:
    """Return a stage's forward with the collectives of its forward pass.

    Weights are gathered once in it, and as long again in the backward pass.
    """
    if costs.is_artifact:
        return stage.time_terms_ps["forward path"]
    table = costs.table
    gathered = stage.time_terms_ps.get(GATHERED, 0) // 2
    return (
        gathered
        + stage.time_terms_ps["forward"]
        + sum(
            table.pairs[pair].forward_collective_ps[group][stage.levels[group]][
                table.layer_rows[layer]
            ]
            for group in GROUPS
            if pair[1].degree(group) > 1
            for layer in stage.layers
        )
    )
