"""The JSON of placement graphs: the fields of a pipeline where they have a meaning."""

from nest_opt.api import GraphExactResult, GraphSolveResult, GraphVerifyResult
from nest_opt.cli.graph_report import batches_per_s
from nest_opt.cli.json_output import Object, time_json, violations_json
from nest_opt.plan.gap import relative_gap
from nest_opt.plan.graph_evaluate import GraphEvaluation
from nest_opt.plan.graph_plan import GraphPlan
from nest_opt.problem import Problem
from nest_opt.problem.files import to_json_data


def graph_verify_json(result: GraphVerifyResult) -> Object:
    """Return the evaluation of a plan, term by term, and its violations."""
    return {**graph_show_json(result), "formula": "max F"}


def graph_solve_json(result: GraphSolveResult, explain: bool) -> Object:
    """Return the result of a search, with the terms of every load if asked for."""
    plan, evaluation = result.plan, result.evaluation
    data = {
        "status": result.status,
        "family": result.problem.job.split,
        **graph_value_json(result.problem, evaluation),
        **time_json("bound", result.bound_ps),
        "gap": result.gap,
        "plan": None if plan is None else to_json_data(plan),
        "devices": None if plan is None else graph_devices_json(plan),
        "search": {
            "wall_s": round(result.wall_s, 6),
            "blocks": result.blocks,
            "downsets": result.downsets,
        },
        "relaxed_constraints": [],
        **_diagnosis(result),
    }
    if explain:
        data["explanation"] = plan and {
            "formula": "max F",
            "stages": _stages(plan, evaluation),
        }
    return data


def graph_show_json(result: GraphVerifyResult) -> Object:
    """Return a plan's stages and devices, and its violations."""
    plan, claim = result.plan, result.plan.objective
    return {
        "status": "violations" if result.violations else "legal",
        "problem": plan.problem.name,
        "split": plan.problem.job.split,
        **graph_value_json(plan.problem, result.evaluation),
        "claimed": claim and {"name": claim.name, **time_json("value", int(claim.value_ps))},
        "devices": graph_devices_json(plan),
        "stages": _stages(plan, result.evaluation),
        "violations": violations_json(result.violations),
    }


def graph_exact_json(result: GraphExactResult) -> Object:
    """Return the result of an exact search."""
    plan = result.plan
    return {
        "status": result.status,
        "family": result.family,
        **graph_value_json(result.problem, result.evaluation),
        **_bound(result),
        **time_json("contiguous", result.contiguous_ps),
        "gap": result.gap,
        "plan": None if plan is None else to_json_data(plan),
        "devices": None if plan is None else graph_devices_json(plan),
        "search": _search(result),
        "relaxed_constraints": [],
        **_diagnosis(result),
    }


def graph_optimum_json(
    verified: GraphVerifyResult, result: GraphExactResult | None
) -> Object | None:
    """Return a plan's gap to the best split; None for an illegal plan."""
    if result is None or verified.evaluation is None:
        return None
    best = result.evaluation
    return {
        "family": result.family,
        "status": result.status,
        **time_json("value", best.value_ps if best else None),
        **_bound(result),
        "plan_gap": relative_gap(verified.evaluation.value_ps, result.bound_ps),
        "search": _search(result),
    }


def _diagnosis(result: GraphExactResult | GraphSolveResult) -> Object:
    return {} if result.obstacle is None else {"diagnosis": {"reason": result.obstacle}}


def _bound(result: GraphExactResult) -> Object:
    return {
        **time_json("bound", result.bound_ps),
        "bound_vouched_by": result.bound_vouched_by,
        "exact_units": result.exact_units,
    }


def _search(result: GraphExactResult) -> Object:
    return {
        "wall_s": round(result.wall_s, 6),
        "cells": result.cells,
        "cells_pruned": result.cells_pruned,
        "cells_solved": result.cells_solved,
        "nodes": result.nodes,
    }


def graph_value_json(problem: Problem, evaluation: GraphEvaluation | None) -> Object:
    """Return the fields `objective` and `throughput`."""
    value = evaluation.value_ps if evaluation else None
    rate = batches_per_s(problem, evaluation) if evaluation else None
    return {
        "objective": {"name": "bottleneck", **time_json("value", value)},
        "throughput": {"sequences_per_s": rate, "utilisation": None},
    }


def graph_devices_json(plan: GraphPlan) -> Object:
    """Return how many devices are in use."""
    total = plan.problem.cluster.device_count
    used = len({stage.device for stage in plan.stages} & set(range(total)))
    return {"used": used, "total": total, "idle": total - used}


def _stages(plan: GraphPlan, evaluation: GraphEvaluation | None) -> list[Object]:
    return [
        {
            "stage": number,
            "device": stage.device,
            "layers": list(stage.layers),
            **_costs(evaluation, number),
        }
        for number, stage in enumerate(plan.stages)
    ]


def _costs(evaluation: GraphEvaluation | None, number: int) -> Object:
    if evaluation is None:
        return {}
    stage = evaluation.stages[number]
    return {
        "kind": stage.kind,
        "time_ps": str(stage.time_ps),
        "time_terms_ps": {name: str(value) for name, value in stage.time_terms_ps.items()},
        "memory_bytes": stage.memory_bytes,
        "usable_bytes": stage.usable_bytes,
    }
