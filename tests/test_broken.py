"""Malformed files: each gives its message, and no other kind of failure.

A file's name says by what it fails: `problem-` when it is read, `solve-` when
it is solved, `plan-` when it is read as a plan, `verify-` when that plan is
verified, `artifact-` and `partitioning-` when it is imported.
"""

import json
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest

import nest_opt
from nest_opt import InstanceError, NestOptError, PlanError
from nest_opt.models.dnn_partitioning import read_dnn_partitioning
from nest_opt.models.nest_artifact import read_nest_artifact
from nest_opt.plan.files import read_plan
from nest_opt.plan.schema import file_schema
from nest_opt.problem.files import read_problem

BROKEN = Path(__file__).resolve().parent.parent / "instances" / "broken"
FILES = sorted(BROKEN.glob("*.json"))

USES: dict[str, Callable[[Path], object]] = {
    "problem": read_problem,
    "solve": lambda path: nest_opt.solve(read_problem(path)),
    "plan": read_plan,
    "verify": lambda path: nest_opt.verify(read_plan(path)),
    "artifact": read_nest_artifact,
    "partitioning": read_dnn_partitioning,
}

# What no schema can say: it sees one value at a time, after JSON was parsed.
BEYOND_SCHEMA = {
    "problem-algorithms-without-ring",
    "problem-anti-colocation-repeated",
    "problem-chunks-repeated",
    "problem-constraint-unknown-layer",
    "problem-degree-limit-crossed",
    "problem-degree-limit-none",
    "problem-duplicate-edge",
    "problem-two-sizes-of-an-edge",
    "problem-duplicate-key",
    "problem-duplicate-layer-id",
    "problem-duplicate-profile",
    "problem-edge-backwards",
    "problem-edge-to-itself",
    "problem-edge-to-unknown-layer",
    "problem-failure-domains-unknown-level",
    "problem-falling-latency",
    "problem-float-for-integer",  # 8.0 is an integer to a schema
    "problem-half-surrogate",
    "problem-interleaved-per-stage",
    "problem-layer-order-artifact",
    "problem-layer-order-interleaved",
    "problem-layer-order-per-stage",
    "problem-layer-order-user-constraint",
    "problem-level-of-two-names",
    "problem-more-devices-than-network",
    "problem-no-recompute-mode",
    "problem-no-usable-byte",
    "problem-parameters-by-microbatch",
    "problem-per-stage-artifact",
    "problem-pinned-layers-beyond",
    "problem-pinned-layers-unknown-layer",
    "problem-power-without-watts",
    "problem-repeated-degree",
    "problem-repeated-layer-collides",
    "problem-repeated-time-under-full",
    "problem-reserve-above-memory",
    "problem-schedule-artifact",
    "problem-selective-above-forward",
    "problem-selective-without-time",
    "problem-tied-above-dense",
    "problem-tied-above-first-layer",
    "problem-tied-artifact",
    "problem-tied-before-last-layer",
    "problem-tied-by-microbatch",
    "problem-tied-in-two-layers",
    "problem-tied-only-layer",
    "problem-too-many-digits",
    "problem-too-many-layers",
    "problem-too-many-places",
    "problem-tp-inside-unknown-level",
    "problem-two-device-kinds",
    "problem-unknown-device-kind",
    "problem-unknown-type",
    "problem-work-below-stash-difference",
    "plan-bad-problem",
    "plan-chunks-of-other-number",
    "plan-chunks-of-other-sum",
    "plan-chunks-without-interleaved",
    "plan-devices-without-listed",
    "plan-interleaved-without-chunks",
    "plan-listed-with-pitch",
    "plan-listed-without-devices",
    "plan-listed-wrong-shape",
    "plan-without-pitch",
    "problem-graph-collectives",
    "problem-graph-constraint",
    "problem-graph-cost-model",
    "problem-graph-edge-with-sizes",
    "problem-graph-edge-without-size",
    "problem-graph-full-recompute",
    "problem-graph-layer-order",
    "problem-graph-microbatch",
    "problem-graph-objective",
    "problem-graph-order-only-to-itself",
    "problem-graph-order-only-with-sizes",
    "problem-graph-profile-of-two-ranks",
    "problem-graph-profile-of-unknown-kind",
    "problem-graph-search-pp",
    "problem-graph-search-schedule",
    "problem-graph-search-tp",
    "problem-graph-tied",
    "problem-graph-too-many-layers",
    "problem-graph-two-levels",
    "problem-graph-two-profiles-of-a-kind",
    "problem-graph-unsupported-layer",
    "problem-pipeline-order-only",
    "problem-pipeline-pays-transfers",
    "problem-pipeline-phase",
    "problem-pipeline-profile-of-kind",
    "problem-pipeline-split",
}
NOT_JSON = {
    "problem-byte-order-mark",
    "problem-comment",
    "problem-empty",
    "problem-five-thousand-digits",
    "problem-infinity",
    "problem-nan",
    "problem-not-utf-8",
    "problem-truncated",
}


def kind(path: Path) -> str:
    """Return the part of a file's name that says how it fails."""
    return path.stem.partition("-")[0]


def schema_of(stem: str) -> str:
    """Return the name of the schema of a broken problem or plan."""
    if stem.startswith("plan-graph-"):
        return "graph-plan"
    return "plan" if stem.startswith("plan-") else "problem"


def stems(*kinds: str) -> set[str]:
    """Return the names of all broken files of some kinds."""
    return {path.stem for path in FILES if kind(path) in kinds}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_broken_file_gives_its_message(path: Path) -> None:
    """The message, after the path where it has one, is the expected text to the letter."""
    with pytest.raises((InstanceError, PlanError)) as caught:
        USES[kind(path)](path)
    expected = path.with_suffix(".expected.txt").read_text(encoding="utf-8")
    assert str(caught.value).removeprefix(f"{path}: ") + "\n" == expected


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_message_of_a_broken_file_is_short_and_ends_in_a_remedy(path: Path) -> None:
    """At most three faults are told, a line each, and a line has what was found and a remedy."""
    lines = path.with_suffix(".expected.txt").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 4
    for line in lines:
        assert len(line) < 300
        assert ": " in line or line.startswith("  and ")


def test_every_expected_message_has_its_file() -> None:
    """Files and expected messages pair up, and each kind of failure has some."""
    expected = {path.name.removesuffix(".expected.txt") for path in BROKEN.glob("*.expected.txt")}
    assert expected == stems(*USES)
    assert all(len(stems(use)) > 4 for use in USES)


def test_solve_and_verify_files_can_be_read() -> None:
    """What fails only in use is read without an error."""
    for path in FILES:
        if kind(path) == "solve":
            read_problem(path)
        elif kind(path) == "verify":
            read_plan(path)


@pytest.mark.parametrize(
    "stem", sorted(stems("problem", "plan") - BEYOND_SCHEMA - NOT_JSON), ids=lambda stem: stem
)
def test_schema_refuses_what_it_can_express(stem: str) -> None:
    """Schema and reader agree on a fault that shows in one value of the file."""
    name = schema_of(stem)
    data = json.loads((BROKEN / f"{stem}.json").read_text(encoding="utf-8"))
    assert not jsonschema.Draft202012Validator(file_schema(name)).is_valid(data)


@pytest.mark.parametrize("stem", sorted(BEYOND_SCHEMA), ids=lambda stem: stem)
def test_schema_cannot_express_the_rest(stem: str) -> None:
    """The list of what the reader alone finds has no entry that a schema finds too."""
    name = schema_of(stem)
    data = json.loads((BROKEN / f"{stem}.json").read_text(encoding="utf-8"))
    assert jsonschema.Draft202012Validator(file_schema(name)).is_valid(data)


def test_a_problem_that_cannot_be_found_is_an_input_error(tmp_path: Path) -> None:
    """A path that does not exist, or is a folder, gives a message and no traceback."""
    for path in (tmp_path / "none.json", tmp_path):
        with pytest.raises(NestOptError, match=r"cannot be read .*: check the path"):
            read_problem(path)


def test_a_huge_file_is_not_read_whole(tmp_path: Path) -> None:
    """A file above the limit is refused by its size."""
    path = tmp_path / "huge.json"
    with path.open("wb") as file:
        file.truncate(2**26 + 1)
    with pytest.raises(InstanceError, match=r"found more than 16777216 bytes"):
        read_problem(path)
