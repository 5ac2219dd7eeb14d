"""The command line on networks that are more than levels."""

import json
from pathlib import Path

import pytest
from cli_running import run, run_json
from test_planned_networks import GRAPH, TORUS, on

from nest_opt.problem.files import to_json_text

NEW = ("new", "--model", "bert-large", "--cluster", "dgx-h100", "--global-batch", "64")


def test_new_takes_a_network_from_a_file(tmp_path: Path) -> None:
    """The problem has the file's network as it stands, and the cluster's devices."""
    path = tmp_path / "network.json"
    path.write_text(json.dumps(TORUS))
    problem = run_json(*NEW, "--devices", "8", "--network", str(path))["problem"]
    assert problem["cluster"]["network"]["type"] == "torus"
    assert list(problem["cluster"]["device_kinds"]) == ["h100"]
    assert "a network of its own" in problem["note"]


@pytest.mark.parametrize(
    ("text", "options", "wrong"),
    [
        (json.dumps(TORUS), ("--devices", "9"), "found 9, at most 8"),
        (json.dumps(TORUS), ("--smallest",), "--smallest: found --network beside it"),
        ('{"type": "ring"}', ("--devices", "8"), "'torus', 'dragonfly', 'rails', 'graph'"),
        ("[]", ("--devices", "8"), "an object is needed"),
    ],
)
def test_new_refuses_a_network_that_does_not_fit(
    text: str, options: tuple[str, ...], wrong: str, tmp_path: Path
) -> None:
    """Too many devices, a search for the fewest, and a file that is no network: exit code 2."""
    path = tmp_path / "network.json"
    path.write_text(text)
    result = run(*NEW, "--network", str(path), *options)
    assert result.exit_code == 2
    assert wrong in result.output


def test_solve_and_verify_say_what_a_plan_takes_on_its_network(tmp_path: Path) -> None:
    """Levels, the value on the links and its terms are in the text and in the objects."""
    problem, plan = tmp_path / "problem.json", tmp_path / "plan.json"
    problem.write_text(to_json_text(on(GRAPH, memory_bytes=2 * 10**8)))
    told = run("solve", str(problem), "-o", str(plan)).output
    assert "graph, levels for rings:" in told
    assert "level-0: 4 devices, 45 GB/s, 2 us" in told
    assert "per batch with its own transfers on the links" in told
    assert told.count("on network") == run("verify", str(plan)).output.count("on network") == 1
    # What is proved is about levels, and says so.
    about = "those of the graph's levels"
    assert about in run("bound", str(problem)).output
    assert about in run("verify", str(plan)).output
    solved, verified = run_json("solve", str(problem)), run_json("verify", str(plan))
    for data in (solved, verified):
        assert data["network"]["type"] == "graph"
        assert [level["size"] for level in data["network"]["levels"]] == [4, 2]
        assert data["on_network"]["planned_ps"] == data["objective"]["value_ps"]
        assert {term["term"] for term in data["on_network"]["terms"]} >= {"hop in", "hop out"}


def test_certificates_are_refused_by_the_name_of_the_field(tmp_path: Path) -> None:
    """A bound holds for a torus's levels, and no certificate of it is made."""
    problem = tmp_path / "problem.json"
    problem.write_text(to_json_text(on(TORUS)))
    data = run_json("bound", str(problem))
    assert "cluster.network.type: found 'torus'" in json.dumps(data)


def test_a_certificate_on_oversubscribed_levels_checks(tmp_path: Path) -> None:
    """Such levels are a hierarchy: the checker accepts, also with the costs computed anew."""
    levels = [
        {"name": name, "size": 4, **figures}
        for name, figures in (
            ("node", {"bandwidth_bytes_per_s": 1e11, "latency_s": 1e-6}),
            ("rack", {"bandwidth_bytes_per_s": 5e10, "latency_s": 2e-6, "oversubscription": 3}),
        )
    ]
    problem, certificate = tmp_path / "problem.json", tmp_path / "certificate.json"
    problem.write_text(to_json_text(on({"type": "hierarchical", "levels": levels}, 16)))
    assert run("bound", problem, "-o", certificate).exit_code == 0
    assert run("check", certificate, "--recompute-costs").exit_code == 0
