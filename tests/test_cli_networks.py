"""`nest-opt import network` and `import nccl-tests`: figures by options, problems from files."""

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import click
import pytest
from cli_running import run, run_json
from samples import problem_data
from test_nccl_tests import output
from test_network_imports import BLOCKS, EDGES, MESH, NVSWITCH, TREE

import nest_opt
from nest_opt.cli.amounts import bandwidth, duration, keyed, size
from nest_opt.models.calibrated import measured_levels, with_measured_levels
from nest_opt.models.fabrics import build_fabric
from nest_opt.network.collectives import Spread, collective_time
from nest_opt.network.planned import planned_levels
from nest_opt.problem.files import read_problem

SLURM = (
    *("--devices-per-node", 4, "--bandwidth", "node=450GB/s,switch-1=50GB/s"),
    *("--bandwidth", "switch-2=400Gbit/s", "--latency", "node=1us,switch-1=4us,switch-2=6us"),
)
NVIDIA = (
    *("--bandwidth", "NV=25GB/s,PIX=12GB/s,NODE=11GB/s,SYS=9GB/s"),
    *("--latency", "NV=1us,PIX=2us,NODE=3us,SYS=4us"),
)


def levels(data: dict[str, Any]) -> list[tuple[int, float, float]]:
    """Return (size, bytes/s, seconds) of levels in JSON."""
    return [
        (level["size"], level["bandwidth_bytes_per_s"], level["latency_s"])
        for level in data["levels"]
    ]


def file(folder: Path, text: str, name: str = "network") -> Path:
    """Write a text and return its path."""
    (folder / name).write_text(text)
    return folder / name


@pytest.mark.parametrize(
    ("text", "parse", "expected"),
    [
        ("50GB/s", bandwidth, 50 * 10**9),
        ("400Gbit/s", bandwidth, 50 * 10**9),
        ("0.1 B/s", bandwidth, Fraction(1, 10)),
        ("2.5us", duration, Fraction(5, 2 * 10**6)),
        ("3e2ns", duration, Fraction(3, 10**7)),
        ("1MiB", size, 2**20),
        ("1.5B", size, 2),
    ],
)
def test_amounts_are_exact(text: str, parse: Any, expected: Fraction) -> None:
    """A number and a unit, as a fraction of the base unit; sizes are rounded up."""
    assert parse(text) == expected


@pytest.mark.parametrize(
    "text", ["50", "50Gb/s", "50gb/s", "-1GB/s", "nan GB/s", "1e999GB/s", "9" * 30 + "B/s", ""]
)
def test_amounts_without_a_clear_unit_are_refused(text: str) -> None:
    """No unit, one that is a letter's case from eight times as much, or no such number."""
    with pytest.raises(click.BadParameter, match=r"found .*units B/s.*50GB/s"):
        bandwidth(text)


def test_keys_are_told() -> None:
    """Of KEY=VALUE, an unknown key, a repeated one and a bad value are refused by name."""
    assert keyed(("a=1s", "b=2s"), "--x", ("a", "b"), duration) == {"a": 1, "b": 2}
    for texts, message in ((("c=1s",), "'c=1s'"), (("a=1s,a=2s",), "a 2 times"), (("a",), "'a'")):
        with pytest.raises(click.BadParameter, match=message):
            keyed(texts, "--x", ("a", "b"), duration)
    with pytest.raises(click.BadParameter) as error:
        keyed(("a=1",), "--x", ("a",), duration)
    assert error.value.param_hint == "--x a"


def test_slurm_tree_becomes_levels(tmp_path: Path) -> None:
    """Two racks of two nodes of four devices: a level each, oversubscribed above."""
    path = file(tmp_path, TREE)
    data = run_json("import", "network", "slurm", path, *SLURM, "--oversubscription", "switch-2=2")
    found = [(4, 450e9, 1e-6), (2, 50e9, 4e-6), (2, 25e9, 6e-6)]
    assert levels(data) == found
    assert data["devices"][:5] == ["tux0:0", "tux0:1", "tux0:2", "tux0:3", "tux1:0"]
    blocks = run_json(
        "import",
        "network",
        "slurm",
        file(tmp_path, BLOCKS),
        *SLURM,
        *("--bandwidth", "switch-3=25GB/s", "--latency", "switch-3=8us"),
    )
    assert [each[0] for each in levels(blocks)] == [4, 4, 2, 2]


def test_table_of_nvidia_becomes_levels(tmp_path: Path) -> None:
    """Three GPUs on a switch get their 18 NVLinks each; a mesh is as slow as its worst pair."""
    data = run_json("import", "network", "nvidia-topo", file(tmp_path, NVSWITCH), *NVIDIA)
    assert levels(data) == [(3, 18 * 25e9, 1e-6)]
    mesh = run_json(
        *("import", "network", "nvidia-topo", file(tmp_path, MESH), *NVIDIA),
        *("--level-sizes", 2, "--traffic", "alone"),
    )
    assert [each[0] for each in levels(mesh)] == [2, 2]
    assert set(mesh["devices"][:2]) == {"GPU0", "GPU2"}


def test_edges_and_graphml_need_no_figures(tmp_path: Path) -> None:
    """Both carry their own bandwidths; the same network gives the same levels."""
    edges = run_json("import", "network", "edges", file(tmp_path, EDGES))
    assert levels(edges) == [(2, 400, 2e-6), (2, 25, 6e-6)]
    graphml = tmp_path / "two.graphml"
    graphml.write_text(
        '<graphml><key id="b" for="edge" attr.name="bandwidth_bytes_per_s"/>'
        '<key id="l" for="edge" attr.name="latency_s"/><graph edgedefault="undirected">'
        '<node id="x"/><node id="y"/><edge source="x" target="y">'
        '<data key="b">400</data><data key="l">1e-6</data></edge></graph></graphml>'
    )
    assert levels(run_json("import", "network", "graphml", graphml)) == [(2, 400, 1e-6)]


def test_a_graph_is_planned_on_the_levels_that_were_told(tmp_path: Path) -> None:
    """The graph's problem has the levels of --as levels, and its ranks are on the named hosts."""
    problem = file(tmp_path, json.dumps(problem_data(sizes=(4, 2, 2))), "problem.json")
    path = file(tmp_path, TREE)
    both = {}
    for form in ("graph", "levels"):
        written = tmp_path / f"{form}.json"
        run(
            *("import", "network", "slurm", path, *SLURM, "--as", form),
            *("--oversubscription", "switch-2=3", "--into", problem, "-o", written),
        )
        both[form] = read_problem(written)
    assert [both[form].cluster.network.type for form in both] == ["graph", "hierarchical"]
    told, derived = (planned_levels(each.cluster) for each in both.values())
    assert [level.size for level in told.levels] == [4, 2, 2]
    pairs = list(zip(told.levels, derived.levels, strict=True))
    assert all(one.latency_s == other.latency_s for one, other in pairs)
    rates = [[float(level.bandwidth_bytes_per_s) for level in pair] for pair in pairs]
    assert all(one == pytest.approx(other, rel=1e-25) for one, other in rates)
    plan = nest_opt.solve(both["graph"]).plan
    assert plan is not None
    found = nest_opt.rank_map(plan)
    assert found.devices_per_host is None
    assert {host.name for host in found.hosts} <= {"tux0", "tux1", "tux2", "tux3"}
    for rank in found.ranks:
        assert rank.device_name == f"{rank.host}:{rank.local_device}"
    numbered = nest_opt.rank_map(plan, hosts=["a", "b", "c", "d"])
    assert {rank.host for rank in numbered.ranks} <= {"a", "b", "c", "d"}


def test_a_network_goes_into_a_problem(tmp_path: Path) -> None:
    """--into writes the problem with that network; one with more devices is refused."""
    problem = file(tmp_path, json.dumps(problem_data(sizes=(4,))), "problem.json")
    written = tmp_path / "new.json"
    path = file(tmp_path, EDGES)
    result = run("import", "network", "edges", path, "--into", problem, "-o", written)
    assert "4 devices, level-0 2 at 400 B/s and 2 us; level-1 2 at 25 B/s" in result.stdout
    assert read_problem(written).cluster.network.device_count == 4
    large = file(tmp_path, json.dumps(problem_data(sizes=(8,))), "large.json")
    refused = run("import", "network", "edges", path, "--into", large)
    assert refused.exit_code == 2
    assert "found 8, at most 4 are allowed" in refused.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("slurm", TREE, *SLURM[2:]), "--devices-per-node"),
        (("slurm", TREE, *SLURM[:4], "--latency", "node=1us"), "add --latency switch-1=2us"),
        (("slurm", TREE, *SLURM[:2]), "add --bandwidth node=50GB/s"),
        (
            ("slurm", TREE, *SLURM[:4], "--latency", "node=1us,switch-1=4us"),
            "add bandwidth and latency of switch-2",
        ),
        (("slurm", TREE, "--devices-per-node", 4, "--bandwidth", "leaf=1GB/s"), "'leaf=1GB/s'"),
        (("slurm", "Nodes=a", *SLURM), "line 1: found 'Nodes=a'"),
        (("nvidia-topo", NVSWITCH, *NVIDIA[2:]), "add --bandwidth NV=25GB/s"),
        (("nvidia-topo", MESH, "--bandwidth", "NV=1GB/s", "--latency", "NV=1us"), "for PIX"),
        (("edges", "a -- b 1 1\nc -- d 1 1"), "no route"),
        (("edges", "a -- b nan 1"), "line 1"),
        (("edges", EDGES, "--level-sizes", "5"), "found 5"),
        (("graphml", "<!DOCTYPE x><graphml/>"), "document type"),
    ],
)
def test_what_is_missing_or_wrong_is_refused_by_name(
    options: tuple[Any, ...], message: str, tmp_path: Path
) -> None:
    """Exit code 2, and a message that names option or line."""
    name, text, *rest = options
    result = run("import", "network", name, file(tmp_path, text), *rest)
    assert result.exit_code == 2
    assert message in result.stderr


def measured(folder: Path, slower: float, least: int = 24) -> Path:
    """Write a run over two nodes of 8 H100, so many times slower than the catalogue says."""
    fabric = build_fabric("h100", "infiniband", 25 * 10**9)
    rows = [
        (
            2**power,
            slower
            * 10**6
            * float(collective_time(fabric, "all-reduce", Spread((8, 2)), 2**power).time_s),
        )
        for power in range(least, 34)
    ]
    return file(folder, output(rows, hosts=(8, 8)), "run.txt")


NETWORK = ("--accelerator", "h100", "--network", "infiniband", "--bandwidth", "200Gbit/s")


def test_measurements_calibrate_a_problem(tmp_path: Path) -> None:
    """A network measured 1.3 times slower has 1 / 1.3 of the bandwidth; the problem gets it."""
    path = measured(tmp_path, 1.3)
    problem = file(tmp_path, json.dumps(problem_data(sizes=(8, 2))), "problem.json")
    data = run_json("import", "nccl-tests", path, *NETWORK, "--fit", "network", "--into", problem)
    assert (data["rows"], data["problem"]["format"]) == (10, "nest-opt-problem")
    assert data["median_error"] < 0.01
    assert all("level 1" in constant["name"] for constant in data["constants"])
    inside, between = data["levels"]
    fabric = build_fabric("h100", "infiniband", 25 * 10**9)
    start = measured_levels(fabric)
    assert inside["bandwidth_bytes_per_s"] == float(start[0].bandwidth_bytes_per_s)
    ratio = float(start[1].bandwidth_bytes_per_s) / between["bandwidth_bytes_per_s"]
    assert ratio == pytest.approx(1.3, rel=0.01)
    found = levels(data["problem"]["cluster"]["network"])
    assert found[1][1] == int(between["bandwidth_bytes_per_s"])
    assert found[1][2] == pytest.approx(between["latency_s"])
    fewer = run_json("import", "nccl-tests", path, *NETWORK, "--from", "1GiB", "--fit", "network")
    assert fewer["rows"] == 4
    printed = run("import", "nccl-tests", path, *NETWORK, "--fit", "network").stdout
    assert "fitted to 10 rows" in printed


def test_a_fabric_without_figures_for_all_levels_is_refused(tmp_path: Path) -> None:
    """One level in the problem, or an outer level quicker than what was measured inside it."""
    fabric = build_fabric("h100", "infiniband", 25 * 10**9)
    path = measured(tmp_path, 1.0, least=32)
    for sizes, message in (((8,), "at least 2 is needed"), ((8, 2, 2), "raise it in the problem")):
        problem = file(tmp_path, json.dumps(problem_data(sizes=sizes)), "problem.json")
        result = run("import", "nccl-tests", path, *NETWORK, "--into", problem)
        assert (result.exit_code, message in result.stderr) == (2, True)
    good = read_problem(file(tmp_path, json.dumps(problem_data(sizes=(8, 2))), "problem.json"))
    changed = with_measured_levels(good, fabric).cluster.network
    assert [level.size for level in changed.levels] == [8, 2]


def test_one_node_may_be_said_to_be_one(tmp_path: Path) -> None:
    """--ranks 8,1 is --ranks 8."""
    rows = [(2**power, 2**power / 3e5) for power in range(24, 30)]
    path = file(tmp_path, output(rows, hosts=(8,)), "run.txt")
    run_of = ("import", "nccl-tests", path, "--accelerator", "h100", "--ranks")
    assert run_json(*run_of, "8,1") == run_json(*run_of, "8")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--accelerator", "h100"), "add --network and --bandwidth"),
        (("--accelerator", "h100", "--network", "infiniband"), "both or neither"),
        (("--accelerator", "none"), "none"),
        ((*NETWORK[:5], "200Gb/s"), "'--bandwidth': found '200Gb/s'"),
        ((*NETWORK, "-o", "x"), "--into PROBLEM is needed"),
        ((*NETWORK, "--operation", "all-gather"), "found a run of all-reduce"),
        ((*NETWORK, "--ranks", "8,4"), "16 ranks in the list of devices"),
        ((*NETWORK, "--from", "1TB"), "at least 1 is needed"),
    ],
)
def test_measurements_that_do_not_fit_are_refused(
    options: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    """Exit code 2, and a message that names what is missing."""
    result = run("import", "nccl-tests", measured(tmp_path, 1.0, least=32), *options)
    assert result.exit_code == 2
    assert message in result.stderr
