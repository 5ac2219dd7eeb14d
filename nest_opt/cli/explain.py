"""Facts about a result that its raw fields only imply: level names, and why nothing fits."""

from dataclasses import dataclass
from typing import Literal

from nest_opt.api import SolveResult
from nest_opt.cli.units import exact_bytes_text
from nest_opt.conflicts import MEMORY, Conflict, Requirement
from nest_opt.dp.source import MemoryCase
from nest_opt.network import planned_levels
from nest_opt.plan.evaluate import StageEvaluation
from nest_opt.plan.plan import Plan
from nest_opt.problem import Configuration, Problem


@dataclass(frozen=True)
class Failure:
    """Why a problem has no plan.

    Attributes
    ----------
    reason
        `memory`: `stage`, the heaviest stage of the placement that needs the
        least memory, does not fit. `constraints`: what the search space and
        the constraints leave has no placement on these devices, whatever
        their memory. `unknown`: Ctrl-C came before that was known.
    case, stages, stage_number, layers, stage
        That placement and stage, None (or empty) for `constraints`.
    configurations
        The configuration of each stage of that placement.
    usable_bytes
        What a stage may fill on a device.
    memory_bytes, devices
        The smallest changes that make something fit, None where that change
        alone does not, or is not known to.
    conflict
        Requirements that no plan keeps together, None if they were not found.
    complete
        Whether all placements were compared; if not, others may need less.
    """

    reason: Literal["memory", "constraints", "unknown"]
    usable_bytes: int
    case: MemoryCase | None = None
    stages: int | None = None
    stage_number: int | None = None
    layers: tuple[str, ...] = ()
    stage: StageEvaluation | None = None
    memory_bytes: int | None = None
    devices: int | None = None
    configurations: tuple[Configuration, ...] = ()
    conflict: Conflict | None = None
    complete: bool = True


def failure(result: SolveResult) -> Failure:
    """Return why a problem has no plan."""
    problem, diagnosis, conflict = result.problem, result.diagnosis, result.conflict
    usable = problem.cluster.device_kind.usable_bytes
    if diagnosis is None:
        return Failure("constraints", usable, conflict=conflict)
    stage = diagnosis.heaviest
    if stage is None:
        return Failure(
            "constraints" if diagnosis.complete else "unknown",
            usable,
            devices=diagnosis.devices,
            conflict=conflict,
            complete=diagnosis.complete,
        )
    return Failure(
        "memory",
        usable,
        diagnosis.case,
        diagnosis.stages,
        diagnosis.stage,
        tuple(problem.model.ids[layer] for layer in diagnosis.layers),
        stage,
        diagnosis.memory_bytes,
        diagnosis.devices,
        diagnosis.configurations,
        conflict,
        diagnosis.complete,
    )


def shortage_text(why: Failure) -> str:
    """Return in one sentence what does not fit, or that it is not for want of memory."""
    if why.reason == "unknown":
        return "there is no plan; why was not found before the search was interrupted"
    if why.stage is None:
        return (
            "constraints and search space leave no placement on these devices, whatever their "
            "memory"
        )
    terms = why.stage.memory_terms_bytes
    largest = max(terms, key=lambda name: terms[name])
    return (
        f"stage {why.stage_number} of {why.stages} needs "
        f"{exact_bytes_text(why.stage.memory_bytes)} on each device, but "
        f"{exact_bytes_text(why.stage.usable_bytes)} are usable; its largest memory term is "
        f"{largest}, {exact_bytes_text(terms[largest])}"
    )


def conflict_text(problem: Problem, conflict: Conflict | None) -> str | None:
    """Return which requirements together leave no plan; None where that is told already."""
    if conflict is None:
        return "not known: the search for it was cut short"
    if conflict.members == (MEMORY,) and not problem.constraints:
        return None
    members, curing = conflict.members, conflict.curing
    if not members:
        text = "search space and devices alone leave no plan, without any constraint"
    elif len(members) == 1:
        text = f"{members[0]} alone rules out every plan"
    else:
        text = f"{_listed(members, 'and')} together rule out every plan, and no fewer of them do"
    if members and not curing:
        text += "; other constraints rule out every plan too"
    elif len(curing) < len(members):
        text += f"; without {_listed(curing, 'or')} there is a plan"
    elif curing:
        text += f"; without {'any one of them' if len(members) > 1 else 'it'} there is a plan"
    if conflict.left_out:
        text += f" ({_listed(conflict.left_out, 'and')} left out: no rule in the search)"
    return text


def _listed(requirements: tuple[Requirement, ...], word: str) -> str:
    """Return names with commas, and a word before the last."""
    *names, last = map(str, requirements)
    return f"{', '.join(names)} {word} {last}" if names else last


def group_levels(plan: Plan, stage: StageEvaluation) -> dict[str, str]:
    """Return the name of the level of each group, hop and sync term of a stage."""
    return {name: level_name(plan, level) for name, level in stage.levels.items()}


def level_name(plan: Plan, level: int) -> str:
    """Return a network level's name."""
    return planned_levels(plan.problem.cluster).levels[level].name
