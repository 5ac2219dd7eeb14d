"""The pages on file formats: complete, and their example is solved as they say."""

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from nest_opt import Problem, solve
from nest_opt.cost.units import to_s
from nest_opt.plan.schema import SCHEMAS, file_schema
from nest_opt.problem.validation import build, parse_json

DOCS = Path(__file__).resolve().parent.parent / "docs"
TEXT = "\n".join((DOCS / name).read_text("utf-8") for name in ("problem_format.md", "rank_maps.md"))


def example(name: str) -> str:
    """Return the block after a marked comment of the page."""
    found = re.search(
        rf"<!-- example: {name} -->\n```\w+\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE
    )
    assert found
    return found.group(1)


def test_example_is_solved_as_the_page_says() -> None:
    """The problem on the page is valid, and its best plan is the one below it."""
    jsonschema.Draft202012Validator(file_schema("problem")).validate(json.loads(example("problem")))
    result = solve(build(Problem, parse_json(example("problem"), "page"), "page"))
    assert result.plan is not None
    assert result.evaluation is not None
    found = result.plan.placement()
    layers = ", ".join(str(high - low) for ((low, high),) in found.intervals)
    degrees = f"microbatch {found.microbatch}, tp {found.configurations[0].tp}, dp {found.replicas}"
    assert example("answer") == (
        f"{result.status}, {to_s(result.evaluation.value_ps):.3f} s\n"
        f"{degrees}, stages of {layers} layers, recompute {' '.join(found.recompute)}\n"
    )


def entities() -> dict[str, Any]:
    """Return the schema of every object that a file may hold, by name."""
    found = {}
    for name in SCHEMAS:
        schema = file_schema(name)
        found |= {name: schema, **schema["$defs"]}
    return {name: body for name, body in found.items() if name != "Problem"}


def tables() -> list[dict[str, dict[str, str]]]:
    """Return the page's tables of fields: for each field, its cells by column."""
    found = []
    for head, body in re.findall(
        r"^(\| field \|[^\n]*)\n\|[-|]+\n(.*?)\n(?:\n|\Z)", TEXT + "\n", re.DOTALL | re.MULTILINE
    ):
        columns = cells(head)
        rows = [dict(zip(columns, cells(row), strict=True)) for row in body.splitlines()]
        found.append({row["field"].strip("`"): row for row in rows})
    return found


def cells(row: str) -> list[str]:
    """Return the cells of a table's row."""
    return [cell.strip() for cell in row.strip().removeprefix("|").removesuffix("|").split("|")]


# Constraints are told in one table, a row for each type.
CONSTRAINTS = {
    "AntiColocation",
    "Colocation",
    "DegreeLimit",
    "FailureDomains",
    "ForbiddenBoundary",
    "HopLatency",
    "PinnedLayers",
    "Power",
    "TpInsideNode",
    "UserConstraint",
}
OBJECTS = sorted(set(entities()) - CONSTRAINTS)


def test_page_has_one_table_for_each_object() -> None:
    """The fields of the tables are those of the objects, no more and no fewer."""
    of_objects = sorted(sorted(entities()[name]["properties"]) for name in OBJECTS)
    assert sorted(sorted(table) for table in tables()) == of_objects


@pytest.mark.parametrize("name", OBJECTS)
def test_table_states_the_defaults(name: str) -> None:
    """A field is `required` on the page if it has no default, else its default stands there."""
    schema = entities()[name]
    table = next(table for table in tables() if set(table) == set(schema["properties"]))
    for field, body in schema["properties"].items():
        told = table[field]["default"]
        assert (told == "required") == (field in schema.get("required", ())), field
        default = body.get("default")
        if isinstance(default, bool | int) and told not in ("that", "required"):
            assert told == json.dumps(default), field
        if isinstance(default, list) and told.startswith("`"):
            assert json.loads(told.strip("`")) == default, field


@pytest.mark.parametrize("name", sorted(entities()))
def test_page_names_every_word_that_a_field_may_hold(name: str) -> None:
    """Each of the words that a field is limited to is on the page, and each constraint's fields."""
    for field, body in entities()[name]["properties"].items():
        assert f"`{field}`" in TEXT
        words = [body.get("const"), *body.get("enum", ()), *body.get("items", {}).get("enum", ())]
        for word in words:
            assert word is None or f"`{word}`" in TEXT or f'`"{word}"`' in TEXT, field
