"""Problem files."""

import hashlib
import json
from pathlib import Path
from typing import Any

from nest_opt.errors import InstanceError
from nest_opt.problem.base import Frozen
from nest_opt.problem.networks import NetworkSpec
from nest_opt.problem.problem import Problem
from nest_opt.problem.validation import build, read_json

LINE_CHARACTERS = 100
# What else there is, and the commands that are for it.
_OTHERS = {
    "nest-opt-plan": ("plan", "`nest-opt verify` or `show`"),
    "nest-opt-certificate": ("certificate", "`nest-opt check`"),
}


def read_problem(path: Path) -> Problem:
    """Read a problem file.

    Raises
    ------
    InstanceError
        If the file is not a valid problem.
    """
    data = read_json(path)
    form = data.get("format") if isinstance(data, dict) else None
    if isinstance(form, str) and form in _OTHERS:
        noun, remedy = _OTHERS[form]
        raise InstanceError(
            f"{path}: found a {noun} (format {form}), a problem is needed: use {remedy}, or give "
            "the problem file"
        )
    problem = build(Problem, data, str(path))
    require_version(data, "nest-opt-problem", str(path))
    return problem


def read_network(path: Path) -> NetworkSpec:
    """Read a file that holds a network as `cluster.network` of a problem has it.

    Raises
    ------
    InstanceError
        If the file is not a valid network.
    """
    return build(_NetworkFile, {"network": read_json(path)}, str(path)).network


class _NetworkFile(Frozen):
    network: NetworkSpec


def require_version(data: dict[str, Any], name: str, place: str) -> None:
    """Refuse a file that does not say what it is: later versions will differ.

    Raises
    ------
    InstanceError
        If `format` or `version` is missing, or the version is not a number.
    """
    for key, value in (("format", name), ("version", 1)):
        if key not in data or type(data[key]) is not type(value):
            found = json.dumps(data[key], default=str) if key in data else "nothing"
            raise InstanceError(
                f"{place}: {key}: found {found}, {json.dumps(value)} is needed: write that"
            )


def to_json_data(entity: Frozen) -> dict[str, Any]:
    """Return an entity as the data of its file; fields left at their default are left out."""
    data = entity.model_dump(mode="json", exclude_defaults=True)
    head = {name: getattr(entity, name) for name in ("format", "version") if hasattr(entity, name)}
    problem = getattr(entity, "problem", None)
    if isinstance(problem, Problem):
        data["problem"] = to_json_data(problem)
    return {**head, **data}


def to_json_text(entity: Frozen) -> str:
    """Return an entity as the text of its file."""
    return _layout(to_json_data(entity), "") + "\n"


def _layout(value: Any, indent: str) -> str:
    """Return JSON with one line for whatever fits in it, and for each profile."""
    line = json.dumps(value)
    is_profile = isinstance(value, dict) and "forward_s" in value
    if len(indent) + len(line) <= LINE_CHARACTERS or is_profile:
        return line
    deeper = indent + " "
    if isinstance(value, dict):
        items = [
            f"{deeper}{json.dumps(key)}: {_layout(item, deeper)}" for key, item in value.items()
        ]
        return "{\n" + ",\n".join(items) + f"\n{indent}}}"
    if isinstance(value, list):
        items = [deeper + _layout(item, deeper) for item in value]
        return "[\n" + ",\n".join(items) + f"\n{indent}]"
    return line


def problem_digest(problem: Problem) -> str:
    """Return the SHA-256 of a problem's canonical JSON, in hexadecimal.

    Fields left at their default do not count, so that a later version's new
    fields leave the digests of older problems as they are.
    """
    text = json.dumps(to_json_data(problem), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
