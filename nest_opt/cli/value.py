"""What a plan's value is made of, and the throughput that it means."""

from typing import NamedTuple

from nest_opt.cost.objective import ObjectiveWeights, objective_weights
from nest_opt.cost.units import PS_PER_S
from nest_opt.plan.evaluate import Evaluation
from nest_opt.plan.plan import Plan
from nest_opt.plan.utilisation import model_utilisation
from nest_opt.problem.job import Objective
from nest_opt.problem.schedule import Schedule

# Equations (17) to (19), by what the fill f of (69) is.
_PLAIN: dict[Objective, str] = {
    "fill-drain": "sum F + (m - 1) max F + max X",
    "nest": "(m + S - 1) max F + max Y",
    "bottleneck": "m max F",
}
_INTERLEAVED: dict[Objective, str] = {
    "fill-drain": "(sum F + (m v - 1) max F) / v + max X",
    "nest": "(m v + S - 1) max F / v + max Y",
    "bottleneck": "m max F",
}
_ZERO_BUBBLE: dict[Objective, str] = {
    "fill-drain": "sum f + max (m F - f) + max X",
    "nest": "max (m F + (S - 1) f) + max Y",
    "bottleneck": "m max F",
}


class Term(NamedTuple):
    """A term of the objective.

    Attributes
    ----------
    name
        As in the formula.
    value_ps
        Its value.
    of
        What of a stage it is the largest of, such as `F`; empty for sums.
    sizes_ps
        That, of each stage.
    """

    name: str
    value_ps: int
    of: str = ""
    sizes_ps: tuple[int, ...] = ()


def formula(objective: Objective, schedule: Schedule) -> str:
    """Return the formula of an objective under a schedule: equations (17) to (19)."""
    if schedule.is_interleaved:
        return _INTERLEAVED[objective]
    return (_ZERO_BUBBLE if schedule.name == "zb-h1" else _PLAIN)[objective]


def value_terms(evaluation: Evaluation) -> list[Term]:
    """Return the terms of the objective's formula; they add up to the value.

    Where v divides no term, what rounding adds is one of its own.
    """
    weights = objective_weights(
        evaluation.objective, len(evaluation.stages), evaluation.rounds, evaluation.schedule
    )
    return [*_time_terms(evaluation, weights), *_sync_term(evaluation, weights)]


def objective_terms(evaluation: Evaluation) -> dict[str, int]:
    """Return the terms of the objective's formula in picoseconds; their sum is the value."""
    return {term.name: term.value_ps for term in value_terms(evaluation)}


def fills_ps(evaluation: Evaluation) -> tuple[int, ...]:
    """Return v times the fill (69) of each stage."""
    weights = objective_weights(
        evaluation.objective, len(evaluation.stages), evaluation.rounds, evaluation.schedule
    )
    return tuple(weights.fill_ps(s.time_ps, s.weight_gradient_ps) for s in evaluation.stages)


def _time_terms(evaluation: Evaluation, weights: ObjectiveWeights) -> list[Term]:
    """Return the terms of the stages' times: the fills, the largest load, and its rounding."""
    times, fills = tuple(stage.time_ps for stage in evaluation.stages), fills_ps(evaluation)
    v, load_name, of = weights.chunks, *_load_names(evaluation)
    loads = tuple(
        weights.round_weight * time + weights.fill_weight * fill
        for time, fill in zip(times, fills, strict=True)
    )
    filled = weights.sum_weight * sum(fills)
    terms = [Term(load_name, max(loads) // v, of, times if of == "F" else loads)]
    if weights.sum_weight:
        name = {"interleaved": "sum F / v", "zb-h1": "sum f"}
        terms.insert(0, Term(name.get(evaluation.schedule.name, "sum F"), filled // v))
    rounding = weights.whole_ps(filled + max(loads)) - sum(term.value_ps for term in terms)
    return terms + [Term("rounding", rounding)] * (rounding > 0)


def _load_names(evaluation: Evaluation) -> tuple[str, str]:
    """Return the names of the largest load and of what of a stage makes it the largest."""
    objective, schedule = evaluation.objective, evaluation.schedule
    if objective == "bottleneck":
        return "m max F", "F"
    fill_drain = objective == "fill-drain"
    if schedule.is_interleaved:
        return ("(m v - 1) max F / v" if fill_drain else "(m v + S - 1) max F / v"), "F"
    if schedule.name == "zb-h1":
        load = "m F - f" if fill_drain else "m F + (S - 1) f"
        return f"max ({load})", load
    return ("(m - 1) max F" if fill_drain else "(m + S - 1) max F"), "F"


def _sync_term(evaluation: Evaluation, weights: ObjectiveWeights) -> list[Term]:
    if not weights.sync:
        return []
    if evaluation.objective == "fill-drain":
        sizes = tuple(stage.exposed_sync_ps for stage in evaluation.stages)
        return [Term("max X", max(sizes), "X", sizes)]
    sizes = tuple(stage.sync_ps for stage in evaluation.stages)
    return [Term("max Y", max(sizes), "Y", sizes)]


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
