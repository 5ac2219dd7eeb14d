"""The checker's numbers of a group are those of the cost model."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from free_instances import free_data
from free_zero_instances import free_zero_data
from tied_instances import tied_free_data

from nest_opt import InstanceError, Problem
from nest_opt.certify import checker, dual_checked
from nest_opt.certify.checker import ENDLESS, Coverage, Group, Proofs, Space, Table
from nest_opt.certify.dual import prove
from nest_opt.certify.dual_groups import Degrees, group_numbers, groups
from nest_opt.certify.maker import make_certificate
from nest_opt.cost.table_file import table_to_json
from nest_opt.plan.evaluate import Costs
from nest_opt.problem.files import read_problem, to_json_data
from nest_opt.problem.schedule import Schedule
from nest_opt.problem.validation import build
from nest_opt.problem.zero import Zero

SMALL = Path(__file__).resolve().parent.parent / "instances" / "small"


def both(costs: Costs) -> Iterator[tuple[Proofs, Group, Degrees]]:
    """Yield the checker's groups, of one chunk, with the degrees that they are of."""
    data, table = to_json_data(costs.problem), table_to_json(costs.table)
    space = Space(data, table, "free")
    proofs = Proofs(space, Table(table, space), ENDLESS)
    known = {
        (at.microbatch, *map(tuple, at.choices), at.replicas, at.stages, at.schedule, at.zero): at
        for at in groups(costs)
    }
    for group in Coverage(space).groups:
        schedule, zero = Schedule(*space.schedules[group.schedule]), Zero(*space.zeros[group.zero])
        key = (*space.pairs[group.pair], group.replicas, group.stages, schedule, zero)
        if key in known:
            yield proofs, group, known[key]


def compare(costs: Costs) -> int:
    """Assert that all groups have equal numbers; return how many there are."""
    count = 0
    for proofs, group, at in both(costs):
        assert dual_checked.numbers(proofs, group) == group_numbers(costs, at)
        count += 1
    return count


@pytest.mark.parametrize("maker", [free_data, free_zero_data, tied_free_data])
def test_numbers_of_tiny_problems_are_equal(maker: object) -> None:
    """Of every schedule and ZeRO level, with tied parameters and constraints."""
    count = 0
    for seed in range(14):
        data = maker(seed)  # type: ignore[operator]
        data["search"]["per_stage"] = []
        if seed % 2:
            data["search"]["schedule"] = ["1f1b", "gpipe", "zb-h1"]
        if seed % 3 == 0:
            data["cluster"]["network"]["collectives"] = "ports"
        try:
            count += compare(Costs(build(Problem, data, f"seed {seed}")))
        except InstanceError:
            continue
    assert count >= 40


@pytest.mark.parametrize("name", ["experts", "replicas-in-nodes-of-their-own"])
def test_numbers_of_small_instances_are_equal(name: str) -> None:
    """With experts, and with failure domains."""
    assert compare(Costs(read_problem(SMALL / f"{name}.json"))) >= 80


def test_three_files_alone_check_a_dual(tmp_path: Path) -> None:
    """Copied out, the checker says which files it lacks; with these it proves the claim."""
    costs, least = (
        Costs(read_problem(SMALL / "replicas-of-three-in-nodes-of-eight.json")),
        8 * 10**11,
    )
    data = dict(make_certificate(costs, "free", least).data)
    space = Space(data["problem"], data["table"], "free")
    (group,) = Coverage(space).groups
    numbers = dual_checked.numbers(Proofs(space, Table(data["table"], space), least), group)
    assert numbers is not None
    box = {**data["evidence"][0]["box"], "stages": [group.stages, group.stages]}
    data["evidence"] = [{"proof": "dual", "box": box, "tree": prove(numbers, least, 20).tree}]
    (tmp_path / "proof.json").write_text(json.dumps(data))
    source = Path(checker.__file__).parent

    def check() -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-E", "checker.py", "proof.json"]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    shutil.copy(source / "checker.py", tmp_path)
    alone = check()
    assert alone.returncode == 2
    assert "dual_checked.py and dual_rows.py are needed: copy them" in alone.stderr
    for name in ("dual_checked.py", "dual_rows.py"):
        shutil.copy(source / name, tmp_path)
    beside = check()
    assert beside.returncode == 0, beside.stderr
    assert "{'dual': 1}" in beside.stdout


def test_a_bound_that_takes_more_splits_as_the_limit_is_proved() -> None:
    """One split proved it within a limit that was 5% higher; at the limit itself it takes more."""
    costs = Costs(read_problem(SMALL / "replicas-in-nodes-of-their-own.json"))
    assert make_certificate(costs, "free", 863_252_809_728, splits=1).proofs["dual"] == 1
