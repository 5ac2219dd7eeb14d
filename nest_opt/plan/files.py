"""Plan files."""

from pathlib import Path
from typing import Any

from nest_opt.errors import PlanError
from nest_opt.plan.plan import Plan
from nest_opt.problem.files import require_version
from nest_opt.problem.validation import build, read_json


def read_plan(path: Path) -> Plan:
    """Read a plan file.

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
    plan = build(Plan, data, str(path), PlanError)
    require_version(data, "nest-opt-plan", str(path))
    require_version(data["problem"], "nest-opt-problem", f"{path}: problem")
    return plan


def _is_problem(data: Any) -> bool:
    if not isinstance(data, dict):
        return False
    if "format" in data:
        return bool(data["format"] == "nest-opt-problem")
    return "model" in data and "problem" not in data
