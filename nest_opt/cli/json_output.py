"""The JSON contract: one object per command. `docs/cli.md` describes every field.

A field whose name ends in `_ps` is a decimal string of picoseconds: batch
times leave the range of integers that JSON readers keep exact.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from nest_opt.api import SolveResult, VerifyResult
from nest_opt.cli.explain import Failure, failure, group_levels
from nest_opt.cli.value import formula, objective_terms, sequences_per_s, utilisation
from nest_opt.cost.units import to_s
from nest_opt.plan.evaluate import Evaluation, StageEvaluation, evaluated_objective
from nest_opt.plan.plan import Plan
from nest_opt.plan.violation import Violation
from nest_opt.problem import Configuration, Problem
from nest_opt.problem.files import to_json_data
from nest_opt.problem.zero import zero_json, zero_of

FAMILY = "aligned"

Object = dict[str, Any]


def print_json(data: Mapping[str, Any]) -> None:
    """Print one object on standard output."""
    click.echo(json.dumps(data, indent=1))


def interrupted_json() -> Object:
    """Return the result of a search that was interrupted before it began."""
    return {
        "status": "interrupted",
        "family": FAMILY,
        "objective": _objective(None, None),
        "throughput": {"sequences_per_s": None, "utilisation": None},
        "bound_s": None,
        "bound_ps": None,
        "gap": None,
        "plan": None,
        "devices": None,
        "search": {"wall_s": 0.0, "cells": 0, "cells_pruned": 0},
        "relaxed_constraints": [],
    }


def solve_json(result: SolveResult) -> Object:
    """Return the result of a search."""
    data = search_json(result)
    if result.status == "infeasible":
        data["diagnosis"] = diagnosis_json(failure(result))
    return data


def search_json(result: SolveResult) -> Object:
    """Return the result of a search, without why there is no plan."""
    plan = result.plan
    data: Object = {"status": result.status, "family": FAMILY}
    data.update(value_json(result.problem, plan, result.evaluation))
    data.update(time_json("bound", result.bound_ps))
    data["gap"] = result.gap
    data["plan"] = None if plan is None else to_json_data(plan)
    data["devices"] = None if plan is None else devices_json(plan)
    data["search"] = {
        "wall_s": round(result.wall_s, 6),
        "cells": result.cells,
        "cells_pruned": result.cells_pruned,
    }
    data["relaxed_constraints"] = list(result.relaxed)
    if result.broken:
        data["broken"] = [str(violation) for violation in result.broken]
    return data


def value_json(problem: Problem, plan: Plan | None, evaluation: Evaluation | None) -> Object:
    """Return the fields `objective` and `throughput`."""
    value = evaluation.value_ps if evaluation else None
    rate = sequences_per_s(plan, evaluation) if plan and evaluation else None
    share = utilisation(plan, evaluation) if plan and evaluation else None
    return {
        "objective": _objective(evaluated_objective(problem), value),
        "throughput": {"sequences_per_s": rate, "utilisation": share},
    }


def _objective(name: str | None, value_ps: int | None) -> Object:
    return {"name": name, **time_json("value", value_ps)}


def time_json(name: str, time_ps: int | None) -> Object:
    """Return a time in seconds to read and in picoseconds to compute with."""
    if time_ps is None:
        return {f"{name}_s": None, f"{name}_ps": None}
    return {f"{name}_s": to_s(time_ps), f"{name}_ps": str(time_ps)}


def devices_json(plan: Plan) -> Object:
    """Return how many devices a plan uses, and how many it leaves idle."""
    total = plan.problem.cluster.device_count
    used = plan.placement().device_map.devices_used
    # An illegal plan may ask for more devices than there are.
    return {"used": used, "total": total, "idle": max(0, total - used)}


def diagnosis_json(why: Failure) -> Object:
    """Return why nothing fits; stage fields are null where no single stage is to blame."""
    stage, case, conflict = why.stage, why.case, why.conflict
    data: Object = {
        "reason": why.reason,
        "stage": why.stage_number,
        "stages": why.stages,
        "layers": list(why.layers),
        "recompute": stage.recompute if stage else None,
        "in_flight": stage.in_flight if stage else None,
        "memory_terms_bytes": dict(stage.memory_terms_bytes) if stage else None,
        "needed_bytes": stage.memory_bytes if stage else None,
        "usable_bytes": why.usable_bytes,
        "complete": why.complete,
    }
    data["degrees"] = case and {
        "microbatch": case.microbatch,
        **case.configuration._asdict(),
        "dp": case.replicas,
        "zero": zero_json(case.zero),
        **_differing(why.configurations),
    }
    data["smallest_change"] = {"memory_bytes": why.memory_bytes, "devices": why.devices}
    data["conflict"] = conflict and {
        name: [{"rule": each.rule, "constraint": each.place} for each in requirements]
        for name, requirements in (
            ("members", conflict.members),
            ("curing", conflict.curing),
            ("left_out", conflict.left_out),
        )
    }
    return data


def _differing(configurations: tuple[Configuration, ...]) -> Object:
    """Return tp and sp stage by stage, nothing where one configuration is that of all."""
    if len(set(configurations)) < 2:
        return {}
    return {
        "tp_by_stage": [k.tp for k in configurations],
        "sp_by_stage": [k.sp for k in configurations],
    }


def verify_json(result: VerifyResult) -> Object:
    """Return the evaluation of a plan, term by term, and its violations."""
    plan, evaluation = result.plan, result.evaluation
    return {
        **_verdict(result),
        "degrees": degrees_json(plan),
        "devices": devices_json(plan),
        **explanation_json(plan, evaluation),
        "violations": violations_json(result.violations),
    }


def explanation_json(plan: Plan, evaluation: Evaluation | None) -> Object:
    """Return the terms of the objective and of every stage."""
    terms = objective_terms(evaluation) if evaluation else {}
    return {
        "formula": formula(evaluation.objective, evaluation.schedule) if evaluation else None,
        "terms": [{"term": name, **time_json("value", value)} for name, value in terms.items()],
        "microbatches_per_pipeline": evaluation.rounds if evaluation else None,
        "stages": [
            {**_stage(plan, number), **_stage_costs(plan, evaluation, number)}
            for number in range(len(plan.stages))
        ],
    }


def show_json(result: VerifyResult) -> Object:
    """Return a plan's table and the devices of every block."""
    plan, evaluation = result.plan, result.evaluation
    data = _verdict(result)
    data["degrees"] = degrees_json(plan)
    data["devices"] = devices_json(plan)
    data["stages"] = [
        {**_stage(plan, number), **_stage_totals(evaluation, number)}
        for number in range(len(plan.stages))
    ]
    data["blocks"] = _blocks(plan)
    data["violations"] = violations_json(result.violations)
    return data


def _blocks(plan: Plan) -> list[Object] | None:
    """Return the devices of every block, None where there are more than the cluster has."""
    device_map = plan.placement().device_map
    if device_map.devices_used > plan.problem.cluster.device_count:
        return None
    return [
        {
            "replica": replica,
            "stage": stage,
            "devices": list(device_map.block(replica, stage)),
        }
        for replica in range(device_map.replicas)
        for stage in range(device_map.stages)
    ]


def import_json(format_name: str, output: Path | None, text: str) -> Object:
    """Return what was imported."""
    return {
        "status": "imported",
        "format": format_name,
        "output": None if output is None else str(output),
        "problem": json.loads(text),
    }


def _verdict(result: VerifyResult) -> Object:
    plan = result.plan
    claim = plan.objective
    return {
        "status": "violations" if result.violations else "legal",
        "problem": plan.problem.name,
        **value_json(plan.problem, plan, result.evaluation),
        "claimed": claim and _objective(claim.name, int(claim.value_ps)),
    }


def violations_json(violations: Sequence[Violation]) -> list[Object]:
    """Return what a plan breaks."""
    return [
        {"rule": v.rule, "found": v.found, "allowed": v.allowed, "remedy": v.remedy}
        for v in violations
    ]


def degrees_json(plan: Plan) -> Object:
    """Return the degrees of a plan."""
    return {
        "microbatch": plan.microbatch,
        "tp": plan.tp,
        "cp": plan.cp,
        "ep": plan.ep,
        "sp": plan.sp,
        "dp": plan.dp,
        "zero": zero_json(zero_of(plan.zero)),
        "pp": len(plan.stages),
        "schedule": plan.schedule,
        "chunks": plan.placement().schedule.chunks,
        "order": plan.order,
        "pitch": plan.pitch,
    }


def _stage(plan: Plan, number: int) -> Object:
    block = plan.placement().device_map.block(0, number)
    stage, configuration = plan.stages[number], plan.configurations[number]
    return {
        "stage": number,
        "layers": list(stage.layers),
        "intervals": [list(chunk) for chunk in plan.placement().intervals[number]],
        "recompute": stage.recompute,
        "tp": configuration.tp,
        "sp": configuration.sp,
        "replica_0_devices": list(block),
    }


def _stage_totals(evaluation: Evaluation | None, number: int) -> Object:
    if evaluation is None:
        return {}
    stage = evaluation.stages[number]
    return {
        "time_ps": str(stage.time_ps),
        "sync_ps": str(stage.sync_ps),
        "memory_bytes": stage.memory_bytes,
        "usable_bytes": stage.usable_bytes,
    }


def _stage_costs(plan: Plan, evaluation: Evaluation | None, number: int) -> Object:
    if evaluation is None:
        return {}
    stage: StageEvaluation = evaluation.stages[number]
    return {
        **_stage_totals(evaluation, number),
        "time_terms_ps": {name: str(value) for name, value in stage.time_terms_ps.items()},
        "sync_terms_ps": {name: str(value) for name, value in stage.sync_terms_ps.items()},
        "weight_gradient_ps": str(stage.weight_gradient_ps),
        "backward_before_ps": str(stage.backward_before_ps),
        "exposed_sync_ps": str(stage.exposed_sync_ps),
        "in_flight": stage.in_flight,
        "memory_terms_bytes": dict(stage.memory_terms_bytes),
        "levels": group_levels(plan, stage),
    }
