"""JSON Schemas of the file formats, generated from the entities that read them.

`python -m nest_opt.plan.schema --write instances/schema` writes them,
`--check` compares. A schema holds what can be said of one value at a time;
what relates values to each other (a block larger than the cluster, an edge to
a layer that does not exist) only reading the file finds.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, get_args

import annotated_types
from pydantic.fields import FieldInfo

from nest_opt.plan.graph_plan import GraphPlan
from nest_opt.plan.plan import Plan
from nest_opt.plan.rank_map import RankMap
from nest_opt.problem import Problem
from nest_opt.problem.base import MAX_DIGITS, Frozen

SCHEMAS: Mapping[str, type[Frozen]] = {
    "problem": Problem,
    "plan": Plan,
    "graph-plan": GraphPlan,
    "rank-map": RankMap,
}

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_UNSIGNED = r"[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?$"


def file_schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema of a file format.

    Parameters
    ----------
    name
        A key of `SCHEMAS`.
    """
    model = SCHEMAS[name]
    version = model.model_fields["version"].default
    body = _tidy(model.model_json_schema())
    entities = {entity.__name__: entity for entity in _entities(Frozen)}
    for entity, schema in [*body["$defs"].items(), (model.__name__, body)]:
        _restore_exact(entities[entity], schema["properties"])
        # Python code may leave these out, a file may not.
        stated = [key for key in ("format", "version") if key in schema["properties"]]
        if stated:
            schema["required"] = [*stated, *schema["required"]]
    return {"$schema": _DIALECT, "$id": f"urn:nest-opt:{name}:{version}", **body}


def _entities(base: type[Frozen]) -> Iterator[type[Frozen]]:
    """Yield every entity that derives from one, by any number of steps."""
    for entity in base.__subclasses__():
        yield entity
        yield from _entities(entity)


def _restore_exact(entity: type[Frozen], properties: dict[str, Any]) -> None:
    """Write the schemas of an entity's exact numbers, with the limits of their fields."""
    for name, field in entity.model_fields.items():
        if Decimal not in {field.annotation, *map(_unannotated, get_args(field.annotation))}:
            continue
        number = _exact_schema(list(_limits(field)))
        rest = {key: properties[name][key] for key in ("default",) if key in properties[name]}
        nullable = type(None) in get_args(field.annotation)
        properties[name] = {
            **({"anyOf": [number, {"type": "null"}]} if nullable else number),
            **rest,
        }


def _unannotated(annotation: Any) -> Any:
    return getattr(annotation, "__origin__", annotation)


def _limits(field: FieldInfo) -> Iterator[Any]:
    """Yield the limits of a field, also those inside `... | None`."""
    found: list[Any] = list(field.metadata)
    for alternative in get_args(field.annotation):
        found.extend(getattr(alternative, "__metadata__", ()))
    for limit in found:
        yield from limit.metadata if isinstance(limit, FieldInfo) else (limit,)


def _exact_schema(limits: list[Any]) -> dict[str, Any]:
    """Return the schema of a JSON number, or of a string that is its decimal form."""
    schema: dict[str, Any] = {"type": ["number", "string"]}
    for limit in limits:
        match limit:
            case annotated_types.Ge(ge=bound):
                schema["minimum"] = int(str(bound))
            case annotated_types.Gt(gt=bound):
                schema["exclusiveMinimum"] = int(str(bound))
            case annotated_types.Le(le=bound):
                schema["maximum"] = int(str(bound))
    # Numeric limits do not reach strings: the pattern at least keeps the sign out.
    signed = schema.get("minimum", schema.get("exclusiveMinimum", -1)) < 0
    pattern = ("^[+-]?" if signed else "^[+]?") + _UNSIGNED
    return {**schema, "pattern": pattern, "maxLength": MAX_DIGITS}


def _tidy(schema: Any) -> Any:
    """Drop titles that repeat a field's name, and close objects with patterned keys."""
    if isinstance(schema, list):
        return [_tidy(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    tidy = {
        key: _tidy(value)
        for key, value in schema.items()
        if not (key == "title" and isinstance(value, str)) and key != "discriminator"
    }
    if "patternProperties" in tidy:
        tidy["additionalProperties"] = False
    return tidy


def schema_text(name: str) -> str:
    """Return the text of a schema's file."""
    return json.dumps(file_schema(name), indent=1) + "\n"


def main(arguments: list[str] | None = None) -> int:
    """Write the schemas into a folder, or check those that are there."""
    parser = argparse.ArgumentParser(prog="python -m nest_opt.plan.schema", description=__doc__)
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--write", type=Path, metavar="DIR", help="write the schemas there")
    action.add_argument("--check", type=Path, metavar="DIR", help="exit 1 if they differ")
    options = parser.parse_args(arguments)
    stale = []
    for name in SCHEMAS:
        path = (options.write or options.check) / f"{name}.schema.json"
        if options.write:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(schema_text(name), encoding="utf-8")
        elif not path.is_file() or path.read_text(encoding="utf-8") != schema_text(name):
            stale.append(str(path))
    for path_name in stale:
        print(f"{path_name}: not what the package generates: run with --write", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    raise SystemExit(main())
