"""The JSON Schemas: generated, committed, and true of every file."""

import json
from pathlib import Path

import jsonschema
import pytest

import nest_opt
from nest_opt.plan.schema import SCHEMAS, file_schema, main, schema_text
from nest_opt.problem.files import read_problem, to_json_text

INSTANCES = Path(__file__).resolve().parent.parent / "instances"
PROBLEMS = sorted([*INSTANCES.glob("tiny/*.json"), *INSTANCES.glob("paper/*.json")])


@pytest.mark.parametrize("name", SCHEMAS)
def test_committed_schema_is_the_generated_one(name: str) -> None:
    """instances/schema holds what the entities say, to the letter."""
    committed = (INSTANCES / "schema" / f"{name}.schema.json").read_text(encoding="utf-8")
    assert committed == schema_text(name)


@pytest.mark.parametrize("name", SCHEMAS)
def test_schema_is_a_schema(name: str) -> None:
    """Each schema is valid in its dialect and carries format, version and identifier.

    Plans of pipelines and of placement graphs are one format.
    """
    schema = file_schema(name)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$id"] == f"urn:nest-opt:{name}:1"
    assert schema["properties"]["format"]["const"] == f"nest-opt-{name.removeprefix('graph-')}"
    assert schema["properties"]["version"]["const"] == 1


def test_exact_numbers_keep_their_limits() -> None:
    """Numbers that may also be decimal strings have the limits of their fields."""
    level = file_schema("problem")["$defs"]["LevelSpec"]["properties"]
    validator = jsonschema.Draft202012Validator(level["bandwidth_bytes_per_s"])
    assert all(map(validator.is_valid, (1, 0.5, "0.5", "1e9")))
    assert not any(map(validator.is_valid, (0, -1, 10**15 + 1, "-1", "fast", None, True)))
    optional = file_schema("problem")["$defs"]["DeviceKind"]["properties"]["peak_flops"]
    assert jsonschema.Draft202012Validator(optional).is_valid(None)
    assert not jsonschema.Draft202012Validator(optional).is_valid(0)


@pytest.mark.parametrize("path", PROBLEMS, ids=lambda path: path.stem)
def test_every_instance_is_valid(path: Path) -> None:
    """The problem schema accepts an instance as it stands, and as the package writes it."""
    validator = jsonschema.Draft202012Validator(file_schema("problem"))
    validator.validate(json.loads(path.read_text(encoding="utf-8")))
    validator.validate(json.loads(to_json_text(read_problem(path))))


@pytest.mark.parametrize("stem", ["spread-pitch-wins", "recompute-in-first-stage"])
def test_written_plan_is_valid(stem: str) -> None:
    """The plan schema accepts the plans that the package writes."""
    plan = nest_opt.solve(read_problem(INSTANCES / "tiny" / f"{stem}.json")).plan
    assert plan is not None
    jsonschema.Draft202012Validator(file_schema("plan")).validate(json.loads(to_json_text(plan)))


def test_command_writes_and_checks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--write makes files that --check accepts; a changed or missing one is named, with exit 1."""
    assert main(["--write", str(tmp_path / "new")]) == 0
    assert main(["--check", str(tmp_path / "new")]) == 0
    (tmp_path / "new" / "plan.schema.json").write_text("{}")
    (tmp_path / "new" / "problem.schema.json").unlink()
    capsys.readouterr()
    assert main(["--check", str(tmp_path / "new")]) == 1
    told = capsys.readouterr().err
    assert "plan.schema.json" in told
    assert "problem.schema.json" in told
