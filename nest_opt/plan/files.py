"""Plan files."""

from pathlib import Path
from typing import Any

from nest_opt.errors import PlanError
from nest_opt.plan.plan import Plan
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
    return build(Plan, data, str(path), PlanError)


def _is_problem(data: Any) -> bool:
    if not isinstance(data, dict):
        return False
    if "format" in data:
        return bool(data["format"] == "nest-opt-problem")
    return "model" in data and "problem" not in data
