"""The JSON of placement graphs: the fields of a pipeline where they have a meaning."""

from nest_opt.cli.graph_report import batches_per_s
from nest_opt.cli.json_output import Object, time_json, violations_json
from nest_opt.graph_api import GraphVerifyResult
from nest_opt.plan.graph_evaluate import GraphEvaluation
from nest_opt.plan.graph_plan import GraphPlan
from nest_opt.problem import Problem


def graph_verify_json(result: GraphVerifyResult) -> Object:
    """Return the evaluation of a plan, term by term, and its violations."""
    return {**graph_show_json(result), "formula": "max F"}


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
        "stages": [
            {
                "stage": number,
                "device": stage.device,
                "layers": list(stage.layers),
                **_costs(result.evaluation, number),
            }
            for number, stage in enumerate(plan.stages)
        ],
        "violations": violations_json(result.violations),
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
