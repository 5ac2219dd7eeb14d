"""The JSON objects of `--top` and `--front`. `docs/cli.md` describes every field."""

from nest_opt.api import RankedPlan, SolveResult
from nest_opt.cli.json_output import Object, degrees_json, devices_json, time_json
from nest_opt.cli.plan_table import excess
from nest_opt.memory_front import FrontResult
from nest_opt.problem.files import to_json_data


def ranking_json(result: SolveResult) -> Object:
    """Return the fields `plans` and `rest_bound`."""
    plans = [_plan(each, result.plans[0]) for each in result.plans]
    return {"plans": plans, **time_json("rest_bound", result.rest_bound_ps)}


def front_json(found: FrontResult) -> Object:
    """Return the field `front`."""
    return {
        "front": {
            "status": found.status,
            "plans": [_plan(each, found.points[0]) for each in found.points],
            "searches": found.searches,
            "wall_s": round(found.wall_s, 6),
        }
    }


def _plan(each: RankedPlan, first: RankedPlan) -> Object:
    plan = to_json_data(each.plan)
    return {
        **time_json("value", each.evaluation.value_ps),
        "change": excess(each, first),
        "degrees": degrees_json(each.plan),
        "devices": devices_json(each.plan),
        "peak_bytes": each.peak_bytes,
        "free_bytes": each.free_bytes,
        # The problem is that of the best plan.
        "plan": {name: value for name, value in plan.items() if name != "problem"},
    }
