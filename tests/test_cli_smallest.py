"""`--smallest`: the smallest number of devices on which something fits."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from cli_running import run, run_json

from nest_opt import InstanceError, Problem, api
from nest_opt.cli import smallest
from nest_opt.cli.progress import SearchProgress
from nest_opt.cli.smallest import (
    MOST_DEVICES,
    Smallest,
    find_smallest,
    next_number,
    next_smaller,
)
from nest_opt.models.cluster_template import ClusterTemplate, check_device_count
from nest_opt.models.clusters import CLUSTERS, build_cluster, find_cluster
from nest_opt.models.request import Request, derive_problem

# Fits on 4 devices of 80 GB but not on 3.
OPTIONS = ("--model", "llama-2-13b", "--cluster", "dgx-a100", "--smallest", "--global-batch", 64)
# A layer of 1e12 parameters fits nowhere, however many devices there are.
HOPELESS = ("--model", "linear-1x1000000", *OPTIONS[2:])


def problems_of(request: Request) -> Callable[[int], Problem]:
    """Return the function from a number of devices to the request's problem."""
    return lambda devices: derive_problem(replace(request, devices=devices)).problem


def by_trial(problem_at: Callable[[int], Problem], template: ClusterTemplate) -> int:
    """Return the smallest number by searching every number from 1 on."""
    devices = 1
    while api.solve(problem_at(devices)).plan is None:
        devices = next_number(template, devices + 1)
    return devices


@pytest.mark.parametrize(
    ("model", "cluster", "global_batch", "length"),
    [
        ("llama-2-13b", "dgx-a100", 64, 4096),
        ("gpt-neox-20b", "tpuv5e-pod", 32, 2048),
        # Few microbatches: more replicas hold fewer stashes.
        ("megatron-22b", "v100-dgx1", 2, 2048),
        ("llama-3-70b", "nvl72", 7, 8192),
        # Experts: more devices allow configurations that fewer do not.
        ("mixtral-8x7b", "dgx-h100", 8, 4096),
        ("mixtral-8x7b", "aws-p4d", 1, 4096),
        ("deepseek-v2-lite", "tpuv4-pod", 3, 4096),
        # The least number of all.
        ("gpt2", "dgx-h100", 8, 1024),
    ],
)
def test_it_is_the_smallest_of_all(
    model: str, cluster: str, global_batch: int, length: int
) -> None:
    """The number is the first, of all that the cluster can have, on which a search finds a plan."""
    request = Request(
        model=model, cluster=cluster, devices=1, global_batch=global_batch, sequence_length=length
    )
    template = find_cluster(cluster)
    found = find_smallest(problems_of(request), template)
    assert isinstance(found, Smallest)
    assert found.devices == by_trial(problems_of(request), template)
    assert found.result.plan is not None
    assert found.result.problem.cluster.device_count == found.devices
    assert found.below == next_smaller(template, found.devices)
    assert (found.below_result is None) == (found.devices == 1)


@pytest.mark.parametrize("template", CLUSTERS, ids=lambda template: template.name)
def test_numbers_of_devices_of_a_kind_of_cluster(template: ClusterTemplate) -> None:
    """Next numbers up and down are the nearest that the catalogue allows."""
    unit = int(template.unit.value)

    def allowed(devices: int) -> bool:
        try:
            check_device_count(template, devices)
        except InstanceError:
            return False
        return True

    legal = [devices for devices in range(1, 4 * unit + 1) if allowed(devices)]
    for devices in range(1, 3 * unit + 1):
        assert next_number(template, devices) == min(k for k in legal if k >= devices)
    for place, devices in enumerate(legal):
        assert next_smaller(template, devices) == (legal[place - 1] if place else None)
    most = MOST_DEVICES - MOST_DEVICES % unit
    assert build_cluster(template.name, most).device_count == most


def test_new_writes_the_smallest_problem(tmp_path: Path) -> None:
    """The problem has the smallest number of devices; number and shortage below it are said."""
    path = tmp_path / "problem.json"
    result, data = run("new", *OPTIONS, "-o", path), run_json("new", *OPTIONS)
    assert result.exit_code == 0
    assert run("solve", path).exit_code == 0
    text = " ".join(result.stdout.split())
    assert "smallest 4 devices of dgx-a100" in text
    assert data["smallest"]["devices"] == data["derived_from"]["cluster"]["devices"] == 4
    below = data["smallest"]["below"]
    assert below["devices"] == 3
    needed = below["diagnosis"]["needed_bytes"]
    assert needed > below["diagnosis"]["usable_bytes"]
    assert f"below on 3 devices: stage {below['diagnosis']['stage']} of 3 needs" in text
    assert f"({needed:,} bytes) on each device" in text


def test_solve_finds_the_plan_on_the_smallest_number() -> None:
    """The plan is that of the same options with the number found, and the number is said."""
    data = run_json("solve", *OPTIONS)
    there = run_json("solve", *OPTIONS[:4], "--devices", 4, *OPTIONS[5:])
    assert data["smallest"]["devices"] == 4
    assert data["plan"] == there["plan"]
    assert "smallest" not in there
    assert "smallest   4 devices of dgx-a100" in run("solve", *OPTIONS).stdout


def test_there_is_no_number_below_one() -> None:
    """What fits on one device has nothing below it."""
    options = ("--model", "gpt2", *OPTIONS[2:])
    data = run_json("new", *options)
    assert data["smallest"] == {"cluster": "dgx-a100", "devices": 1, "below": None}
    assert "below      there is no smaller number" in run("new", *options).stderr


def test_fixed_degrees_count() -> None:
    """With tp fixed at 8 no fewer than 8 devices will do, and the reason is the degree."""
    data = run_json("solve", *OPTIONS, "--fix", "tp=8")
    assert data["smallest"]["devices"] == 8
    assert data["smallest"]["below"]["devices"] == 7
    assert data["smallest"]["below"]["diagnosis"] is None
    assert "tp=8 has no profile" in data["smallest"]["below"]["error"]
    text = run("solve", *OPTIONS, "--fix", "tp=8", width=200).stdout
    assert "on 7 devices: --fix: tp=8 has no profile" in text


def test_fixed_degrees_that_never_work() -> None:
    """A degree without profiles on any number of devices is a wrong input."""
    result = run("solve", *OPTIONS, "--fix", "tp=3")
    assert result.exit_code == 2
    assert "--fix: tp=3 has no profile" in result.stderr


def test_a_pitch_that_wants_gaps_is_refused() -> None:
    """A pitch of whole groups alone would make the number depend on gaps."""
    result = run("solve", *OPTIONS, "--fix", "pitch=level")
    assert result.exit_code == 2
    assert "--smallest: found --fix pitch=level beside it" in result.stderr
    assert run("solve", *OPTIONS, "--fix", "pitch=level,tight").exit_code == 0


@pytest.mark.parametrize("command", ["new", "solve"])
def test_nothing_fits_on_any_number(command: str, tmp_path: Path) -> None:
    """Exit code 1 with the closest placement on the largest number, and no file."""
    path = tmp_path / "out.json"
    result = run(command, *HOPELESS, "-o", path)
    assert result.exit_code == 1
    assert result.stdout.startswith("infeasible: stage 0 of 1 needs")
    text = " ".join(result.stdout.split())
    assert "(nothing fits on any number of devices of dgx-a100 up to 131,072)" in text
    assert not path.exists()
    data = run_json(command, *HOPELESS)
    assert data["status"] == "infeasible"
    assert data["smallest"]["devices"] is None
    assert data["smallest"]["below"]["devices"] == MOST_DEVICES
    terms = data["diagnosis"]["memory_terms_bytes"]
    assert terms["states"] == 10**12 // 8 * 18


def test_a_wrong_diagnosis_is_a_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    """A number that the searches contradict, above or below, exits with 3."""
    true = smallest.diagnose_all
    for error in (1, -1):
        monkeypatch.setattr(
            smallest,
            "diagnose_all",
            lambda *arguments, error=error: replace(
                found := true(*arguments), devices=(found.devices or 0) + error
            ),
        )
        result = run("new", *OPTIONS)
        assert result.exit_code == 3
        assert "should be" in result.stderr


def test_interruption(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C before there is a plan ends `solve` with 1 and `new` with 130, in few words."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(SearchProgress, "__call__", stop)
    solved, new = run("solve", *OPTIONS), run("new", *OPTIONS)
    assert (solved.exit_code, solved.stdout) == (1, "interrupted: no plan yet\n")
    assert (new.exit_code, new.stdout, new.stderr) == (130, "", "interrupted\n")


def test_interruption_of_the_remedy_keeps_the_diagnosis(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing fits, Ctrl-C while the number is sought leaves the rest of the report."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("nest_opt.cli.smallest.find_smallest", stop)
    options = (*OPTIONS[:4], "--devices", 3, *OPTIONS[5:])
    result = run("solve", *options, "--json")
    data = json.loads(result.stdout)
    assert result.exit_code == 1
    assert data["status"] == "infeasible"
    assert "smallest" not in data
    assert data["diagnosis"]["smallest_change"]["devices"] == 4
