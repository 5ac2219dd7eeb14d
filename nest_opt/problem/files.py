"""Problem files."""

import hashlib
import json
from pathlib import Path

from nest_opt.errors import InstanceError
from nest_opt.problem.base import Frozen
from nest_opt.problem.problem import Problem
from nest_opt.problem.validation import build, read_json


def read_problem(path: Path) -> Problem:
    """Read a problem file.

    Raises
    ------
    InstanceError
        If the file is not a valid problem.
    """
    data = read_json(path)
    if isinstance(data, dict) and data.get("format") == "nest-opt-plan":
        raise InstanceError(
            f"{path}: found a plan (format nest-opt-plan), a problem is needed: "
            "use `nest-opt verify` or `show`, or give the problem file"
        )
    return build(Problem, data, str(path))


def to_json_text(entity: Frozen) -> str:
    """Return an entity as the text of its file; fields left at their default are left out."""
    data = entity.model_dump(mode="json", exclude_defaults=True)
    head = {name: getattr(entity, name) for name in ("format", "version") if hasattr(entity, name)}
    return json.dumps({**head, **data}, indent=1) + "\n"


def problem_digest(problem: Problem) -> str:
    """Return the SHA-256 of a problem's canonical JSON, in hexadecimal."""
    data = problem.model_dump(mode="json")
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
