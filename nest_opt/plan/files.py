"""Plan files."""

from pathlib import Path
from typing import Any

from nest_opt.errors import PlanError
from nest_opt.plan.graph_plan import GraphPlan
from nest_opt.plan.plan import Plan
from nest_opt.problem.files import require_version
from nest_opt.problem.validation import build, read_json


def read_plan(path: Path) -> Plan | GraphPlan:
    """Read a plan file, of a pipeline or of a placement graph, as its problem says.

    Raises
    ------
    InstanceError
        If the file cannot be read or is not JSON.
    PlanError
        If it is not a valid plan.
    """
    data = read_json(path)
    if _is_problem(data):
        raise PlanError(
            f"{path}: found a problem (format nest-opt-problem), a plan is needed: "
            "use `nest-opt solve` to make one, or give the plan file"
        )
    if isinstance(data, dict) and data.get("format") == "nest-opt-certificate":
        raise PlanError(
            f"{path}: found a certificate (format nest-opt-certificate), a plan is needed: use "
            "`nest-opt check`, or give the plan file"
        )
    entity: type[Plan] | type[GraphPlan] = GraphPlan if _is_of_placement_graph(data) else Plan
    plan = build(entity, data, str(path), PlanError)
    require_version(data, "nest-opt-plan", str(path))
    require_version(data["problem"], "nest-opt-problem", f"{path}: problem")
    return plan


def _is_problem(data: Any) -> bool:
    if not isinstance(data, dict):
        return False
    if "format" in data:
        return bool(data["format"] == "nest-opt-problem")
    return "model" in data and "problem" not in data


def _is_of_placement_graph(data: Any) -> bool:
    """Whether the problem in a file, which may be anything yet, is a placement graph."""
    for key in ("problem", "job", "transfer"):
        data = data.get(key) if isinstance(data, dict) else None
    return bool(data == "sender-once")
