"""Randomly damaged files end in a valid result or a user's error, never otherwise."""

import copy
import json
import random
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from mutations import compact, mutated, mutated_text
from random_graphs import random_graph

import nest_opt
from nest_opt import InstanceError, Plan, PlanError, Problem
from nest_opt.certify.graph_brute_force import graph_brute_force
from nest_opt.cost.graph_build import build_graph_table
from nest_opt.models.dnn_partitioning import read_dnn_partitioning
from nest_opt.models.nest_artifact import read_nest_artifact
from nest_opt.plan.files import read_plan
from nest_opt.plan.graph_plan import graph_plan_from_placement
from nest_opt.problem.files import read_problem, to_json_text
from nest_opt.problem.validation import build, parse_json

TINY = Path(__file__).resolve().parent.parent / "instances" / "tiny"
LONGEST_MESSAGE = 1500

# A small input of the NEST artifact's solver: three layers, three network levels.
ARTIFACT: dict[str, Any] = {
    "ep_degree": 1,
    "cp_degree": 1,
    "maxMemoryPerDevice": 260,
    "maxDevices": 8,
    "bws": [4.0, 2.0, 0.5],
    "latency_per_level": [0.0, 0.1, 0.2],
    "devices_per_level": [2, 2, 2],
    "mbsInBatch": 4,
    "nodes": {
        degree: [
            {
                "id": place,
                "activationSize": 100,
                "parameterSize": place,
                "optimalLatencyFw": 8,
                "optimalLatencyBw": 4.5,
            }
            for place in range(3)
        ]
        for degree in ("1", "2")
    },
    "edges": {
        degree: [
            {"sourceId": 0, "destId": 1, "communicationCost": 3},
            {"sourceId": 1, "destId": 2, "communicationCost": 0},
            {"sourceId": 0, "destId": 2, "communicationCost": 2},
        ]
        for degree in ("1", "2")
    },
    "activationRecomputation": True,
    "optimizerAlgorithm": "SGD",
}


@cache
def problem_texts() -> dict[str, str]:
    """Return the tiny instances as text."""
    return {path.stem: path.read_text(encoding="utf-8") for path in sorted(TINY.glob("*.json"))}


@cache
def plan_texts() -> dict[str, str]:
    """Return the best plans of the tiny instances as text."""
    results = {
        name: nest_opt.solve(build(Problem, parse_json(text, name), name))
        for name, text in problem_texts().items()
    }
    return {name: to_json_text(result.plan) for name, result in results.items() if result.plan}


@cache
def artifact_texts() -> dict[str, str]:
    """Return inputs of the artifact's solver as text, without and with recomputation."""
    plain = copy.deepcopy(ARTIFACT) | {"activationRecomputation": False}
    return {"recompute": compact(ARTIFACT), "plain": compact(plain)}


def use(kind: str, path: Path) -> str:
    """Use a file as its kind is used, and return how that ended."""
    try:
        if kind == "plan":
            plan = read_plan(path)
            assert isinstance(plan, Plan)
            return "legal" if not nest_opt.verify(plan).violations else "illegal"
        problem = read_problem(path) if kind == "problem" else read_nest_artifact(path)
        result = nest_opt.solve(problem)
        # What is optimal was evaluated and checked inside; what was written can be read.
        if result.plan:
            again = build(Plan, parse_json(to_json_text(result.plan), "plan"), "plan")
            assert not nest_opt.verify(again).violations
        return result.status
    except (InstanceError, PlanError) as error:
        return "refused" if len(str(error)) < LONGEST_MESSAGE else "refused at length"


SOURCES = {"problem": problem_texts, "plan": plan_texts, "artifact": artifact_texts}
EXPECTED = {
    "problem": {"optimal", "infeasible", "refused"},
    "plan": {"legal", "illegal", "refused"},
    "artifact": {"optimal", "infeasible", "refused"},
}


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(("kind", "count"), [("problem", 160), ("plan", 80), ("artifact", 80)])
def test_damaged_files(kind: str, count: int, seed: int, tmp_path: Path) -> None:
    """Each of 2,560 damaged files is solved, proved infeasible, verified or refused."""
    ends = {use(kind, path) for path in damaged(SOURCES[kind](), f"{kind} {seed}", count, tmp_path)}
    assert ends <= EXPECTED[kind]
    assert len(ends) > 1


def damaged(texts: dict[str, str], seed: str, count: int, folder: Path) -> Iterator[Path]:
    """Yield the path of a file with so many damaged texts, one after the other."""
    chance = random.Random(seed)
    path = folder / "damaged.json"
    for _ in range(count):
        text = texts[chance.choice(sorted(texts))]
        if chance.random() < 0.15:
            text = mutated_text(text, chance)
        else:
            text = compact(mutated(json.loads(text), chance))
        path.write_text(text, encoding="utf-8", errors="surrogatepass")
        yield path


@cache
def graph_texts() -> dict[str, str]:
    """Return placement graphs as text."""
    return {f"graph-{seed}": to_json_text(random_graph(seed)) for seed in range(8)}


@cache
def graph_plan_texts() -> dict[str, str]:
    """Return the best plans of placement graphs as text."""
    texts = {}
    for seed in range(8):
        problem = random_graph(seed)
        best = graph_brute_force(problem)
        if best.placement and best.value_ps is not None:
            plan = graph_plan_from_placement(problem, best.placement, best.value_ps)
            texts[problem.name] = to_json_text(plan)
    return texts


@cache
def partitioning_texts() -> dict[str, str]:
    """Return a device-placement input as text: a chain, its backward pass and an orphan."""
    nodes = [
        {
            "id": place,
            "supportedOnFpga": place != 2,
            "cpuLatency": 9.25,
            "fpgaLatency": 1.5,
            "isBackwardNode": int(place > 2),
            "size": 40.0,
            **({} if place == 4 else {"colorClass": min(place, 5 - place)}),
        }
        for place in range(6)
    ]
    edges = [{"sourceId": u, "destId": u + 1, "cost": 0.125 * u} for u in range(5)]
    data = {"maxSizePerFPGA": 100.0, "maxFPGAs": 2, "maxCPUs": 1, "nodes": nodes, "edges": edges}
    return {"input": compact(data)}


def use_graph(kind: str, path: Path) -> str:
    """Use a file of a placement graph as its kind is used, and return how that ended."""
    try:
        if kind == "plan":
            return "illegal" if nest_opt.verify(read_plan(path)).violations else "legal"
        problem = read_problem(path) if kind == "problem" else read_dnn_partitioning(path)
        if not problem.is_placement_graph:
            return "pipeline"
        build_graph_table(problem)
        again = build(Problem, parse_json(to_json_text(problem), "problem"), "problem")
        assert again == problem
        return "read"
    except (InstanceError, PlanError) as error:
        return "refused" if len(str(error)) < LONGEST_MESSAGE else "refused at length"


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("kind", "texts", "expected"),
    [
        ("problem", graph_texts, {"read", "refused"}),
        ("plan", graph_plan_texts, {"legal", "illegal", "refused"}),
        ("partitioning", partitioning_texts, {"read", "refused"}),
    ],
)
def test_damaged_files_of_placement_graphs(
    kind: str,
    texts: Callable[[], dict[str, str]],
    expected: set[str],
    seed: int,
    tmp_path: Path,
) -> None:
    """Each of 1,920 damaged files is read, verified or refused."""
    ends = {use_graph(kind, path) for path in damaged(texts(), f"{kind} {seed}", 160, tmp_path)}
    assert ends <= expected
    assert len(ends) > 1
