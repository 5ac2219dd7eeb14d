"""What a plan's value is made of, and the throughput that it means."""

from nest_opt.cost.units import PS_PER_S
from nest_opt.plan.evaluate import Evaluation
from nest_opt.plan.plan import Plan
from nest_opt.plan.utilisation import model_utilisation
from nest_opt.problem.job import Objective

FORMULAS: dict[Objective, str] = {
    "fill-drain": "sum F + (m - 1) max F + max X",
    "nest": "(m + S - 1) max F + max Y",
    "bottleneck": "m max F",
}


def objective_terms(evaluation: Evaluation) -> dict[str, int]:
    """Return the terms of the objective's formula in picoseconds; their sum is the value."""
    stages, rounds = evaluation.stages, evaluation.rounds
    slowest = max(stage.time_ps for stage in stages)
    if evaluation.objective == "fill-drain":
        return {
            "sum F": sum(stage.time_ps for stage in stages),
            "(m - 1) max F": (rounds - 1) * slowest,
            "max X": max(stage.exposed_sync_ps for stage in stages),
        }
    if evaluation.objective == "nest":
        return {
            "(m + S - 1) max F": (rounds + len(stages) - 1) * slowest,
            "max Y": max(stage.sync_ps for stage in stages),
        }
    return {"m max F": rounds * slowest}


def sequences_per_s(plan: Plan, evaluation: Evaluation) -> float | None:
    """Return G over the batch time; None where that is 0.

    Under `bottleneck`, b * ep * d over the slowest stage.
    """
    if evaluation.objective == "bottleneck":
        sequences = plan.microbatch * plan.ep * plan.dp
        time = max(stage.time_ps for stage in evaluation.stages)
    else:
        sequences, time = plan.problem.job.global_batch, evaluation.value_ps
    return sequences * PS_PER_S / time if time else None


def utilisation(plan: Plan, evaluation: Evaluation) -> float | None:
    """Return model FLOPs over the peak of the devices used; None where either is not stated."""
    devices = plan.placement().device_map.devices_used
    return model_utilisation(plan.problem, evaluation.value_ps, devices)
