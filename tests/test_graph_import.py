"""Device-placement inputs: what becomes of every node, and the published ones."""

import csv
import json
import re
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from cli_running import run, run_json, write
from test_formulation import resolve

from nest_opt import Problem, exact
from nest_opt.cost.graph_build import build_graph_table
from nest_opt.cost.units import to_ps
from nest_opt.models.dnn_partitioning import read_dnn_partitioning
from nest_opt.plan.files import read_plan
from nest_opt.problem.files import read_problem
from nest_opt.problem.validation import build, parse_json

PAGE = Path(__file__).resolve().parent.parent / "docs" / "placement_graphs.md"

# Layers of each input, twins among them.
INPUTS = {
    "LayerGraphs/bert24_inference": (32, 0),
    "LayerGraphs/bert24_training": (64, 0),
    "LayerGraphs/gnmt_inference": (96, 0),
    "LayerGraphs/gnmt_training": (192, 0),
    "LayerGraphs/inceptionv3_inference": (326, 0),
    "LayerGraphs/inceptionv3_training": (652, 0),
    "LayerGraphs/resnet50_inference": (177, 0),
    "LayerGraphs/resnet50_training": (354, 0),
    "OperatorGraphs/bert_L-12_training": (2044, 32),
    "OperatorGraphs/bert_l-12_inference": (783, 0),
    "OperatorGraphs/bert_l-3_inference": (235, 0),
    "OperatorGraphs/bert_l-3_training": (614, 14),
    "OperatorGraphs/bert_l-6_inference": (418, 0),
    "OperatorGraphs/bert_l-6_training": (1091, 20),
    "OperatorGraphs/resnet50_inference": (604, 0),
    "OperatorGraphs/resnet50_training": (1260, 17),
}
# Inputs whose sets closed under predecessors are few enough to count here.
COUNTED = (
    "LayerGraphs/resnet50_inference",
    "OperatorGraphs/resnet50_inference",
    "OperatorGraphs/resnet50_training",
    "OperatorGraphs/bert_l-3_inference",
    "OperatorGraphs/bert_l-3_training",
)
SOLVED = ("LayerGraphs/bert24_inference", "LayerGraphs/bert24_training")


def node(number: int, **changes: Any) -> dict[str, Any]:
    """Return a node of 1.5 ms on an accelerator and 9 ms on a CPU."""
    return {
        "id": number,
        "supportedOnFpga": 1,
        "cpuLatency": 9,
        "fpgaLatency": 1.5,
        "isBackwardNode": 0,
        "size": 40.0,
        **changes,
    }


def edge(source: int, target: int, cost: float = 0.25) -> dict[str, Any]:
    """Return an edge."""
    return {"sourceId": source, "destId": target, "cost": cost}


def imported(
    tmp_path: Path, nodes: list[dict[str, Any]], edges: list[dict[str, Any]], **changes: Any
) -> Problem:
    """Return the problem of an input with two accelerators of 100 bytes and a CPU."""
    data = {"maxSizePerFPGA": 100.0, "maxFPGAs": 2, "maxCPUs": 1, "nodes": nodes, "edges": edges}
    return read_dnn_partitioning(write(tmp_path / "input.json", {**data, **changes}))


def test_devices_come_of_two_kinds(tmp_path: Path) -> None:
    """Accelerators have memory and pay for transfers, CPUs after them do neither."""
    table = build_graph_table(imported(tmp_path, [node(1)], []))
    accelerator, cpu = table.kinds
    assert (accelerator.name, accelerator.devices, accelerator.usable_bytes) == (
        "accelerator",
        (0, 1),
        100,
    )
    assert (cpu.name, cpu.devices, cpu.pays_transfers) == ("cpu", (2,), False)
    assert (accelerator.time_ps, cpu.time_ps) == ((1_500_000_000,), (9_000_000_000,))
    assert (accelerator.size_bytes, cpu.size_bytes) == ((40,), (0,))


@pytest.mark.parametrize(("field", "kind"), [("maxFPGAs", "cpu"), ("maxCPUs", "accelerator")])
def test_a_kind_without_devices_is_left_out(tmp_path: Path, field: str, kind: str) -> None:
    """With no accelerators, or no CPUs, the other kind has all layers."""
    table = build_graph_table(imported(tmp_path, [node(1)], [], **{field: 0}))
    assert [found.name for found in table.kinds] == [kind]


def test_times_are_the_files_decimals_rounded_once(tmp_path: Path) -> None:
    """Half a picosecond goes up, less goes down, and the digits that a double lacks count."""
    text = json.dumps(
        {
            "maxSizePerFPGA": 100,
            "maxFPGAs": 1,
            "maxCPUs": 1,
            "nodes": [node(1, cpuLatency=11, fpgaLatency=22), node(2)],
            "edges": [edge(1, 2, 33)],
        }
    )
    for digits, number in (
        ("0.0000000005", 11),
        ("0.00000000049999999999999999999", 22),
        ("47.779999999999994", 33),
    ):
        text = text.replace(f": {number}", f": {digits}")
    path = tmp_path / "input.json"
    path.write_text(text)
    table = build_graph_table(read_dnn_partitioning(path))
    assert (table.kinds[1].time_ps[0], table.kinds[0].time_ps[0]) == (1, 0)
    assert table.transfer_ps == (47_780_000_000, 0)


def test_flags_may_be_numbers_and_nodes_unsupported(tmp_path: Path) -> None:
    """0 and false say the same; the accelerator then has no time for the node."""
    nodes = [node(1, supportedOnFpga=False), node(2, supportedOnFpga=0), node(3)]
    accelerator, cpu = build_graph_table(imported(tmp_path, nodes, [])).kinds
    assert accelerator.time_ps == (None, None, 1_500_000_000)
    assert None not in cpu.time_ps


def test_layers_are_listed_in_an_order_of_their_edges(tmp_path: Path) -> None:
    """Ids need no order; forward layers come first, else those that the file has first."""
    nodes = [node(9, isBackwardNode=1, colorClass=5), node(5, colorClass=5), node(7), node(1)]
    problem = imported(tmp_path, nodes, [edge(7, 5), edge(5, 9)])
    assert problem.model.ids == ("7", "5", "1", "9")
    assert problem.model.phases == ("forward", "forward", "forward", "backward")


def test_classes_are_colocated_and_a_node_without_one_is_alone(tmp_path: Path) -> None:
    """Missing and null classes are no class that nodes share."""
    nodes = [node(1, colorClass=4), node(2), node(3, colorClass=None), node(4, colorClass=4)]
    table = build_graph_table(imported(tmp_path, nodes, []))
    assert table.classes == ((0, 3),)


def test_a_backward_class_gets_a_twin_and_orders(tmp_path: Path) -> None:
    """Forward 1, 2 with backward 4, 3; orphans 5, 6 of one class lie between them.

    Of the edges 3 -> 5 -> 6 -> 4, that inside the class orders nothing, and
    the other two put 2 after the orphans' twin and the twin after 1.
    """
    nodes = [
        node(1, colorClass=1),
        node(2, colorClass=2),
        node(3, colorClass=2, isBackwardNode=True),
        node(4, colorClass=1, isBackwardNode=True),
        node(5, colorClass=7, isBackwardNode=True),
        node(6, colorClass=7, isBackwardNode=True),
    ]
    problem = imported(tmp_path, nodes, [edge(1, 2), edge(3, 5), edge(5, 6), edge(6, 4)])
    table = build_graph_table(problem)
    assert set(table.layers) == {"1", "2", "3", "4", "5", "6", "5.twin"}
    twin = table.layers.index("5.twin")
    assert problem.model.phases[twin] == "forward"
    assert [kind.time_ps[twin] for kind in table.kinds] == [0, 0]
    assert [kind.size_bytes[twin] for kind in table.kinds] == [0, 0]
    named = {(table.layers[u], table.layers[v]) for u, v in table.precedence}
    assert named == {("1", "2"), ("5.twin", "2"), ("1", "5.twin")}
    assert ("5", "5.twin", "6") in {
        tuple(sorted(table.layers[layer] for layer in members)) for members in table.classes
    }
    assert len(table.edges) == 4


def test_orders_may_form_a_cycle(tmp_path: Path) -> None:
    """An orphan between two backward nodes of one class must be where that class is."""
    nodes = [
        node(1, colorClass=1),
        node(2, colorClass=1, isBackwardNode=1),
        node(3, isBackwardNode=1),
        node(4, colorClass=1, isBackwardNode=1),
    ]
    problem = imported(tmp_path, nodes, [edge(2, 3), edge(3, 4)])
    table = build_graph_table(problem)
    named = {(table.layers[u], table.layers[v]) for u, v in table.precedence}
    assert named == {("1", "3.twin"), ("3.twin", "1")}
    result = exact(problem)
    assert result.status == "optimal"
    assert result.plan is not None
    assert len(result.plan.stages) == 1


@pytest.mark.parametrize("name", INPUTS)
def test_published_inputs_lose_nothing(shared_data: Path, name: str) -> None:
    """Nodes, edges, times, sizes and classes of the problem are those of the file."""
    path = shared_data / "dnn-partitioning" / f"{name}.json"
    data = parse_json(path.read_text(), name)
    table = build_graph_table(read_dnn_partitioning(path))
    layers, twins = INPUTS[name]
    assert len(table.layers) == layers == len(data["nodes"]) + twins
    assert sum(layer.endswith(".twin") for layer in table.layers) == twins
    ids = {layer: place for place, layer in enumerate(table.layers)}
    accelerator, cpu = table.kinds
    assert len(accelerator.devices) == data["maxFPGAs"]
    for item in data["nodes"]:
        place = ids[str(item["id"])]
        assert accelerator.time_ps[place] == ps(item["fpgaLatency"])
        assert cpu.time_ps[place] == ps(item["cpuLatency"])
        assert accelerator.size_bytes[place] == item["size"]
    assert sum(accelerator.size_bytes) == sum(item["size"] for item in data["nodes"])
    assert len(table.edges) == len(data["edges"])
    for item in data["edges"]:
        assert table.transfer_ps[ids[str(item["sourceId"])]] == ps(item["cost"])


def ps(milliseconds: int | Decimal) -> int:
    """Return whole picoseconds of milliseconds."""
    return to_ps(Fraction(milliseconds) / 1000)


@pytest.mark.parametrize("name", COUNTED)
def test_the_forward_order_is_the_authors(shared_data: Path, name: str) -> None:
    """Classes, twins and orders leave as many sets closed under predecessors as the authors say."""
    folder = shared_data / "dnn-partitioning"
    with (folder / "reference.csv").open() as file:
        expected = {row["input"]: int(row["downsets"]) for row in csv.DictReader(file)}
    assert closed_sets(folder / f"{name}.json") == expected[f"{name}.json"]


def closed_sets(path: Path) -> int:
    """Return how many sets of classes with a forward layer have all that comes before them."""
    problem = read_dnn_partitioning(path)
    table = build_graph_table(problem)
    class_of = list(range(len(table.layers)))
    for members in table.classes:
        for layer in members:
            class_of[layer] = members[0]
    forward = {
        class_of[layer] for layer, phase in enumerate(problem.model.phases) if phase == "forward"
    }
    before: dict[int, set[int]] = {name: {name} for name in forward}
    for u, v in table.precedence:
        before[class_of[v]].add(class_of[u])
    while True:
        wider = {v: set().union(*(before[u] for u in us)) for v, us in before.items()}
        if wider == before:
            break
        before = wider
    # What comes before each other is one element.
    elements = {frozenset(w for w in us if v in before[w]): us for v, us in before.items()}
    masks = {element: 1 << place for place, element in enumerate(elements)}
    needs = [
        (
            masks[element],
            sum(m for other, m in masks.items() if other <= us and other != element),
        )
        for element, us in elements.items()
    ]
    seen, open_sets = {0}, [0]
    while open_sets:
        found = open_sets.pop()
        for mask, need in needs:
            larger = found | mask
            if not found & mask and not need & ~found and larger not in seen:
                seen.add(larger)
                open_sets.append(larger)
    return len(seen)


@pytest.mark.parametrize("name", SOLVED)
def test_optima_of_published_inputs_are_the_authors(shared_data: Path, name: str) -> None:
    """The best contiguous split is worth what the authors' dynamic program printed."""
    folder = shared_data / "dnn-partitioning"
    with (folder / "reference.csv").open() as file:
        printed = {row["input"]: row["max_load_contiguous"] for row in csv.DictReader(file)}
    result = exact(read_dnn_partitioning(folder / f"{name}.json"))
    assert result.status == "optimal"
    assert result.evaluation is not None
    assert f"{result.evaluation.value_ps / 1e9:.6g}" == printed[f"{name}.json"]


def test_import_writes_a_problem_that_exact_solves(tmp_path: Path) -> None:
    """Import, exact, verify, show and export go through the command line."""
    data = {
        "maxSizePerFPGA": 100.0,
        "maxFPGAs": 2,
        "maxCPUs": 1,
        "nodes": [node(1), node(2), node(3, supportedOnFpga=0, cpuLatency=3)],
        "edges": [edge(1, 2), edge(1, 3), edge(2, 3, 0.5)],
    }
    source = write(tmp_path / "input.json", data)
    problem, plan = tmp_path / "problem.json", tmp_path / "plan.json"
    told = run("import", "dnn-partitioning", source, "--split", "any", "-o", problem)
    assert told.exit_code == 0
    assert "3 layers, 3 devices" in told.stdout
    assert read_problem(problem).job.split == "any"
    told = run("exact", problem, "-o", plan)
    assert told.exit_code == 0
    assert told.stdout.startswith("optimal: 0.00300000 s per batch (objective bottleneck)")
    assert "no split is faster" in told.stdout
    assert read_plan(plan).problem == read_problem(problem)
    for command in ("verify", "show"):
        told = run(command, plan)
        assert told.exit_code == 0
        assert "1 of 1 of kind 'cpu' used" in told.stdout
    assert "optimum    optimal, 0.00300000 s" in run("verify", plan, "--exact").stdout
    program = tmp_path / "program.lp"
    assert run("export", "lp", problem, "-o", program).exit_code == 0
    assert "objective:" in program.read_text()


def test_json_of_a_placement_graph(tmp_path: Path) -> None:
    """Commands give family, objective, loads and gap; a violation changes status and exit code."""
    nodes = [node(1), node(2)]
    data = {
        "maxSizePerFPGA": 50,
        "maxFPGAs": 2,
        "maxCPUs": 0,
        "nodes": nodes,
        "edges": [edge(1, 2)],
    }
    source, problem = write(tmp_path / "input.json", data), tmp_path / "problem.json"
    assert run_json("import", "dnn-partitioning", source, "-o", problem)["status"] == "imported"
    found = run_json("exact", problem)
    assert (found["status"], found["family"], found["gap"]) == ("optimal", "contiguous", 0)
    assert found["objective"]["value_ps"] == found["bound_ps"] == "1750000000"
    assert found["devices"] == {"used": 2, "total": 2, "idle": 0}
    plan = write(tmp_path / "plan.json", found["plan"])
    checked = run_json("verify", plan, "--exact")
    assert (checked["status"], checked["formula"], checked["violations"]) == ("legal", "max F", [])
    assert checked["exact"]["plan_gap"] == 0
    assert [stage["time_terms_ps"]["sent"] for stage in checked["stages"]] == ["250000000", "0"]
    found["plan"]["stages"].reverse()
    broken = write(tmp_path / "broken.json", found["plan"])
    assert run("verify", broken, "--exact").exit_code == 1
    checked = run_json("verify", broken, "--exact")
    assert checked["exact"] is None
    assert [violation["rule"] for violation in checked["violations"]] == ["contiguous"]
    shown = run_json("show", broken)
    assert "exact" not in shown
    assert shown["stages"] == checked["stages"]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            {"nodes": [{"id": number} for number in range(4001)]},
            "nodes: found 4,001, at most 4,000 are allowed: merge nodes that are never split",
        ),
        ({"edges": [{}] * 1000}, "edges[0].sourceId: found nothing, a value is needed"),
        (
            {"nodes": [node(7, supportedOnFpga=0)], "maxCPUs": 0},
            "maxCPUs: found 0, 1 at least is needed by node 7, of which supportedOnFpga is false",
        ),
    ],
)
def test_what_cannot_be_imported_is_told_in_the_files_words(
    tmp_path: Path, changes: dict[str, Any], told: str
) -> None:
    """A refusal names fields of the file, at once however many of its items are wrong."""
    data = {"maxSizePerFPGA": 30, "maxFPGAs": 1, "maxCPUs": 1, "nodes": [node(1)], "edges": []}
    source = write(tmp_path / "input.json", {**data, **changes})
    answer = run("import", "dnn-partitioning", source)
    assert answer.exit_code == 2
    assert told in " ".join(answer.stderr.split())
    assert len(answer.stderr.splitlines()) < 6


def test_infeasible_and_broken_are_told(tmp_path: Path) -> None:
    """A layer that fits nowhere is infeasible with exit code 1; a broken form is not evaluated."""
    data = {"maxSizePerFPGA": 30, "maxFPGAs": 1, "maxCPUs": 0, "nodes": [node(1)], "edges": []}
    source, problem = write(tmp_path / "input.json", data), tmp_path / "problem.json"
    run("import", "dnn-partitioning", source, "-o", problem)
    reason = (
        "layer '1' fits on no device: 40 bytes on one of kind 'accelerator', 30 bytes are "
        "usable there"
    )
    for command in ("exact", "solve"):
        told = run(command, problem)
        assert told.exit_code == 1
        assert " ".join(told.stdout.split()).startswith(f"infeasible: {reason}")
        answer = run_json(command, problem)
        assert answer["bound_ps"] is None
        assert answer["diagnosis"] == {"reason": reason}
    plan = {
        "format": "nest-opt-plan",
        "version": 1,
        "problem": json.loads(problem.read_text()),
        "stages": [{"device": 1, "layers": ["1"]}],
    }
    for command in ("verify", "show"):
        told = run(command, write(tmp_path / "plan.json", plan))
        assert told.exit_code == 1
        assert "not evaluated" in told.stdout
        assert "device 1 in use" in told.stdout


def test_the_page_shows_what_exact_prints(tmp_path: Path) -> None:
    """The example on the page is valid, and its answer is the one below it."""
    blocks = dict(
        re.findall(
            r"<!-- example: (\w+) -->\n```\w+\n(.*?)^```$",
            PAGE.read_text(encoding="utf-8"),
            re.DOTALL | re.MULTILINE,
        )
    )
    build(Problem, parse_json(blocks["problem"], "page"), "page")
    path = tmp_path / "problem.json"
    path.write_text(blocks["problem"])
    assert run("exact", path).stdout.startswith(blocks["answer"])


def test_the_page_names_what_exists() -> None:
    """Every module and function that the page names is there."""
    names = set(re.findall(r"`(nest_opt\.[\w.]+)`", PAGE.read_text(encoding="utf-8")))
    assert len(names) >= 4
    for name in names:
        assert resolve(name) is not None
