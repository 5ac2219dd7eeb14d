"""Networks read from other formats: known answers, and a line and a remedy where it is wrong."""

import io
import random
from fractions import Fraction
from pathlib import Path

import networkx as nx
import pytest

from nest_opt.errors import InstanceError
from nest_opt.network.derived import derived_hierarchy
from nest_opt.network.graph import LinkGraph, LinkKind
from nest_opt.network.graph_network import GraphNetwork
from nest_opt.network.imports import (
    FabricLevel,
    parse_edge_list,
    parse_graphml,
    parse_nvidia_topology,
    parse_slurm_topology,
    read_text,
)
from nest_opt.network.imports.host_list import host_list
from nest_opt.network.topologies import graph_of_networkx
from tests.graph_samples import SAMPLES

EDGES = """\
# two nodes of two devices, one way out of each
switches s[0-1] core
a0 -- s0  400 1e-6
a1 -- s0  400 1e-6    # a comment
b0 -- s1  400 1e-6
b1 -- s1  400 1e-6
s0 -- core  50 2e-6 100
s1 -> core  50 2e-6
core -> s1  50 2e-6
"""

TREE = """\
# two racks
SwitchName=leaf0 Nodes=tux[0-1]
switchname=leaf1 nodes=tux[2-3] LinkSpeed=100
SwitchName=spine \\
  Switches=leaf[0-1]
"""

BLOCKS = """\
BlockName=b0 Nodes=n[00-03]
BlockName=b1 Nodes=n[04-07]
BlockName=b2 Nodes=n[08-11]
BlockName=b3 Nodes=n[12-15]
BlockSizes=4,8
"""

FABRIC = (FabricLevel(900e9, 1e-6), FabricLevel(50e9, 4e-6), FabricLevel(25e9, 6e-6, 2))

NVSWITCH = (
    "\x1b[4m\tGPU0\tGPU1\tGPU2\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
    "GPU0\t X \tNV18\tNV18\tPIX\tSYS\t0-55,112-167\t0\t\tN/A\n"
    "GPU1\tNV18\t X \tNV18\tNODE\tSYS\t0-55,112-167\t0\t\tN/A\n"
    "GPU2\tNV18\tNV18\t X \tSYS\tPIX\t56-111\t1\t\tN/A\n"
    "NIC0\tPIX\tNODE\tSYS\t X \tSYS\n"
    "NIC1\tSYS\tSYS\tPIX\tSYS\t X \n"
    "\nLegend:\n\n  X    = Self\n  NV#  = Connection traversing a bonded set of # NVLinks\n"
    "\nNIC Legend:\n\n  NIC0: mlx5_0\n"
)

MESH = """\
        GPU0    GPU1    GPU2    GPU3    CPU Affinity
GPU0     X      NV1     NV2     SYS     0-19
GPU1    NV1      X      PIX     SYS     0-19
GPU2    NV2     PIX      X      SYS     0-19
GPU3    SYS     SYS     SYS      X      20-39
"""

KINDS = {
    "NV": LinkKind.of(25, 1),
    "PIX": LinkKind.of(12, 2),
    "NODE": LinkKind.of(11, 3),
    "SYS": LinkKind.of(9, 4),
}


def graphml(graph: LinkGraph) -> str:
    """Return the GraphML that networkx writes for a graph."""
    found = nx.MultiDiGraph()
    for number, name in enumerate(graph.names):
        found.add_node(name, kind="device" if number < graph.device_count else "switch")
    for link in graph.links:
        found.add_edge(
            graph.names[link.source],
            graph.names[link.target],
            bandwidth_bytes_per_s=float(link.bandwidth),
            latency_s=float(link.latency_s),
            capacity_bytes_per_s=float(link.capacity),
        )
    text = io.BytesIO()
    nx.write_graphml(found, text)
    return text.getvalue().decode()


def test_an_edge_list_is_a_graph() -> None:
    """Vertices, directions, capacities and comments of the sample."""
    graph = parse_edge_list(EDGES)
    assert graph.names == ("a0", "a1", "b0", "b1", "s0", "s1", "core")
    assert len(graph.links) == 12
    network = GraphNetwork(graph)
    assert network.transfer_s(0, 1, 400) == Fraction(2, 10**6) + 1
    assert network.transfer_s(0, 2, 50) == Fraction(6, 10**6) + 1
    assert {link.capacity for link in graph.links} == {400, 100, 50}


def test_an_edge_list_may_number_devices_and_let_them_forward() -> None:
    """`devices` lines give the order; a chain of devices that forward is connected."""
    graph = parse_edge_list("devices c a\ndevices-forward\na -- b 1 0\nb -- c 1 0\n")
    assert graph.names == ("c", "a", "b")
    assert GraphNetwork(graph).route(0, 1).rate == 1


def test_a_topology_conf_tree_is_a_graph() -> None:
    """Devices of a node, a rack and the whole are apart by the levels, and share the ways up."""
    network = GraphNetwork(parse_slurm_topology(TREE, FABRIC, devices_per_node=2))
    assert network.graph.names[:3] == ("tux0:0", "tux0:1", "tux1:0")
    found = derived_hierarchy(network, range(8), (2, 4), "any")
    assert [
        (level.size, int(level.bandwidth_bytes_per_s), float(level.latency_s))
        for level in found.levels
    ] == [(2, 900e9, 1e-6), (2, 50e9, 4e-6), (2, 12.5e9, 6e-6)]


def test_topology_conf_blocks_are_joined_as_their_sizes_say() -> None:
    """Blocks of 4 nodes, two of them joined, and all: one device a node is named as the node."""
    fabric = (FabricLevel(100, 0), FabricLevel(50, 1), FabricLevel(20, 2), FabricLevel(10, 3))
    network = GraphNetwork(parse_slurm_topology(BLOCKS, fabric))
    assert network.graph.names[:2] == ("n00", "n01")
    assert [network.route(0, other).latency_s for other in (1, 4, 8)] == [1, 2, 3]
    plain = parse_slurm_topology(BLOCKS.replace("BlockSizes=4,8\n", ""), fabric)
    assert [GraphNetwork(plain).route(0, other).latency_s for other in (1, 4, 8)] == [1, 2, 2]


def test_a_table_with_more_nvlinks_than_a_gpu_has_is_a_switch() -> None:
    """18 links to each of two others are 18 to a switch; NICs hang on the PCIe tree."""
    graph = parse_nvidia_topology(NVSWITCH, KINDS)
    assert graph.names[:6] == ("GPU0", "GPU1", "GPU2", "NIC0", "NIC1", "NVSwitch")
    network = GraphNetwork(graph)
    assert network.transfer_s(0, 1, 18 * 25) == 2
    assert network.concurrent_s([]) == 0
    nic = network.router.route(2, graph.number_of["NIC1"])
    assert (nic.rate, nic.latency_s) == (12, 2)
    far = network.router.route(2, graph.number_of["NIC0"])
    assert (far.rate, far.latency_s) == (9, 4)


def test_a_table_with_few_nvlinks_is_a_mesh() -> None:
    """NV1 and NV2 are links of their own; what has none goes over PCIe."""
    network = GraphNetwork(parse_nvidia_topology(MESH, KINDS))
    assert [network.route(0, other).rate for other in (1, 2, 3)] == [25, 50, 9]
    assert network.route(1, 2).rate == 12
    switched = GraphNetwork(parse_nvidia_topology(MESH, KINDS, nvlinks_per_device=2))
    assert switched.route(0, 1).rate == 25


@pytest.mark.parametrize("name", SAMPLES)
def test_graphml_that_networkx_writes_is_read_back(name: str) -> None:
    """Names, devices, directions and figures are those of the graph."""
    graph = SAMPLES[name]
    found = parse_graphml(graphml(graph), graph.devices_forward)
    assert found.names == graph.names
    assert found.device_count == graph.device_count

    def links(of: LinkGraph) -> list[tuple[object, ...]]:
        return sorted(
            (x.source, x.target, float(x.bandwidth), float(x.capacity), float(x.latency_s))
            for x in of.links
        )

    assert links(found) == links(graph)
    read = nx.read_graphml(io.BytesIO(graphml(graph).encode()), force_multigraph=True)
    assert links(graph_of_networkx(read)) == links(graph)


GRAPHML = """\
<?xml version="1.0"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
<key id="k" for="node" attr.name="kind" attr.type="string"/>
<key id="b" for="edge" attr.name="bandwidth_bytes_per_s"><default>10</default></key>
<key id="l" for="edge" attr.name="latency_s" attr.type="double"/>
<key id="c" for="all" attr.name="colour"/>
<graph edgedefault="undirected">
<node id="a"><data key="c">red</data></node>
<node id="b"/>
<node id="s"><data key="k">switch</data></node>
<edge source="a" target="s"><data key="l">0.5</data></edge>
<edge source="b" target="s"><data key="l">1</data><data key="b">20</data></edge>
</graph>
</graphml>
"""


def test_graphml_defaults_and_foreign_data() -> None:
    """A key's default counts where an item says nothing; other data is passed over."""
    network = GraphNetwork(parse_graphml(GRAPHML))
    assert network.transfer_s(0, 1, 10) == Fraction(3, 2) + 1
    directed = GRAPHML.replace('<edge source="a"', '<edge directed="true" source="a"')
    assert len(parse_graphml(directed).links) == 3


def test_host_lists_keep_their_zeros() -> None:
    """Ranges, lists and several brackets, in the order of Slurm."""
    assert host_list("tux[0-2,12],x", "t", 1) == ["tux0", "tux1", "tux2", "tux12", "x"]
    assert host_list("r[1-2]n[08-10]", "t", 1)[:4] == ["r1n08", "r1n09", "r1n10", "r2n08"]


WRONG = [
    ("edges", "a -- b 1 0\na -- a 1 0\n", "line 2: found a link from 'a' to itself"),
    ("edges", "a -- b nan 0\n", "line 1: bandwidth: found 'nan'"),
    ("edges", "a -- b -1 0\n", "line 1: bandwidth: found -1"),
    ("edges", "a -- b 0 0\n", "line 1: bandwidth: found 0"),
    ("edges", "a -- b 1 -1\n", "line 1: latency"),
    ("edges", "a -- b 2 0 1\n", "line 1: found capacity 1, at least 2"),
    ("edges", "a -- b 1e999999999 0\n", "line 1: bandwidth"),
    ("edges", "a - b 1 0\n", "line 1: found 'a - b 1 0'"),
    ("edges", "switches s s\n", "line 1: found 's', which line 1 names already"),
    ("edges", "switches a b\na -- b 1 0\n", "no device"),
    ("edges", "switches s[0-999999999]\n", "line 1: found 1,000,000,000 names"),
    ("edges", "switches s[0-\n", "line 1: found 's\\[0-'"),
    ("edges", "switches a[0-200000]\nswitches b[0-200000]\n", "line 2: found more than 262,144"),
    ("edges", "# nothing\n\n", "no line that says anything"),
    ("edges", "a" * 300 + " -- b 1 0\n", "300 characters"),
    ("tree", "SwitchName=a Nodes=n0\nSwitchName=a Nodes=n1\n", "line 2: found 'a', which line 1"),
    ("tree", "SwitchName=a Nodes=n0\nSwitchName=b Nodes=n0\n", "line 2: found node 'n0' again"),
    (
        "tree",
        "SwitchName=a Nodes=n[0-1]\nSwitchName=b Nodes=n2\n",
        "line 2: found 'b' in no switch",
    ),
    ("tree", "SwitchName=a Switches=b\n", "line 1: found switch 'b', which no line has"),
    ("tree", "SwitchName=a Switches=a\n", "line 1: found 'a' inside itself"),
    ("tree", "SwitchName=a Nodes=n\nSwitchName=b Switches=c\nSwitchName=c Switches=b\n", "itself"),
    ("tree", "SwitchName=a\n", "line 1: found nothing in 'a'"),
    ("tree", "SwitchName=a Nodes=a\n", "line 1: found node 'a', which is a switch"),
    ("tree", "SwitchName=a Nodes=n[3-1]\n", "line 1: found the range 3-1, which falls"),
    ("tree", "SwitchName=a Nodes=n[0-1][0-1][0-1][0-1][0-1]\n", "line 1: found 5 brackets"),
    ("tree", "SwitchName=a Nodes=n[0-999][0-999]\n", "line 1: found 1,000,000 names"),
    ("tree", "SwitchName=a Nodes=n,,m\n", "line 1: found an empty name"),
    ("tree", "SwitchName=a Nodes=n Nodes=m\n", "line 1: found Nodes 2 times"),
    ("tree", "SwitchName=a Node=n\n", "line 1: found 'SwitchName=a Node=n'"),
    ("tree", "SwitchName=s[0-9999] Nodes=n[0-199999]\n", "line 1: found 400,000 nodes"),
    ("tree", "SwitchName=a Nodes=n[0-99999],n5\n", "line 1: found node 'n5' again"),
    ("tree", "Include other.conf\n", "line 1: found 'Include'"),
    ("tree", "SwitchName=a Nodes=n\nBlockName=b Nodes=m\n", "line 2: found both"),
    ("tree", "BlockName=b Nodes=m\nBlockSizes=2\n", "line 1: found 1 nodes in 'b'"),
    ("tree", "BlockName=b Nodes=m\nBlockSizes=2,3\n", "line 2: found BlockSizes='2,3'"),
    ("tree", "BlockName=b Nodes=m\nBlockSizes=0\n", "line 2: found BlockSizes='0'"),
    ("tree", "BlockSizes=1\nBlockSizes=1\n", "line 2: found BlockSizes again"),
    ("tree", "BlockSizes=1\n", "no switch or block"),
    (
        "tree",
        "".join(f"SwitchName=s{n + 1} Switches=s{n}\n" for n in range(3))
        + "SwitchName=s0 Nodes=n\n",
        "4 heights of switches, and 3 levels",
    ),
    ("nvidia", "nothing here\n", "no line of columns"),
    ("nvidia", "GPU0 GPU0\n", "line 1: found the column GPU0 2 times"),
    ("nvidia", "NIC0\nNIC0 X\n", "line 1: found no GPU"),
    ("nvidia", "GPU0 GPU1\nGPU0 X SYS\n", "no row of 'GPU1'"),
    ("nvidia", "GPU0 GPU1\nGPU0 X\n", "line 2: found 1 cells"),
    ("nvidia", "GPU0 GPU1\nGPU0 X SYSX\n", "line 2: found 'SYSX' in column GPU1"),
    ("nvidia", "GPU0 GPU1\nGPU0 SYS X\n", "line 2: found 'SYS' in column GPU0"),
    ("nvidia", "GPU0 GPU1\nGPU0 X NV0\n", "line 2: found 'NV0'"),
    ("nvidia", "GPU0 GPU1\nGPU0 X SYS\nGPU0 X SYS\n", "line 3: found the row GPU0 again"),
    ("nvidia", "GPU0\nGPU7 X\n", "line 2: found the row 'GPU7'"),
    ("nvidia", "GPU0 GPU1\nGPU0 X SYS\nGPU1 PIX X\n", "line 3: found PIX from GPU1 to GPU0"),
    ("nvidia", "GPU0 GPU1\nGPU0 X PHB\nGPU1 PHB X\n", "no figures for PHB"),
    (
        "nvidia",
        "GPU0 GPU1 GPU2\nGPU0 X PIX SYS\nGPU1 PIX X PIX\nGPU2 SYS PIX X\n",
        "SYS between GPU0 and GPU2, which others join by PIX",
    ),
    ("graphml", "<graphml>", "line 1: not XML"),
    ("graphml", "<graphml/>", "no graph"),
    ("graphml", "<!DOCTYPE a [<!ENTITY b 'c'>]><graphml/>", "line 1: found a document type"),
    ("graphml", "<graphml><graph><node/></graph></graphml>", "line 1: found id='' of node"),
    ("graphml", GRAPHML.replace('id="b"/>', 'id="a"/>'), "line 9: found node 'a' again"),
    ("graphml", GRAPHML.replace('target="s"', 'target="z"'), "line 11: found node 'z'"),
    ("graphml", GRAPHML.replace('target="s"', 'target="a"', 1), "line 11: found an edge from 'a'"),
    ("graphml", GRAPHML.replace(">0.5<", ">-1<"), "line 11: latency"),
    ("graphml", GRAPHML.replace(">0.5<", ">NaN<"), "line 11: latency"),
    ("graphml", GRAPHML.replace(">0.5<", "><"), "line 11: found no latency_s"),
    ("graphml", GRAPHML.replace(">switch<", ">gpu<"), "line 10: found kind 'gpu'"),
    ("graphml", GRAPHML.replace('key="l"', 'key="m"'), "line 11: found data of key 'm'"),
    ("graphml", GRAPHML.replace("</node>", "<graph/></node>"), "found a second graph"),
    ("graphml", GRAPHML.replace("</graph>", "<hyperedge/></graph>"), "element 'hyperedge'"),
    ("graphml", GRAPHML.replace("red", "<x>" * 99 + "</x>" * 99), "deeper than 64"),
    ("graphml", GRAPHML.replace("<node", "<port").replace("/node", "/port"), "element 'port'"),
    ("graphml", "<graphml><graph></graph></graphml>", "no device"),
]

PARSERS = {
    "edges": parse_edge_list,
    "tree": lambda text: parse_slurm_topology(text, FABRIC),
    "nvidia": lambda text: parse_nvidia_topology(text, KINDS),
    "graphml": parse_graphml,
}


@pytest.mark.parametrize(("parser", "text", "message"), WRONG, ids=[row[2][:40] for row in WRONG])
def test_what_is_wrong_is_refused_with_its_line(parser: str, text: str, message: str) -> None:
    """The message has the line where there is one, what was found, and what to do."""
    with pytest.raises(InstanceError, match=message) as error:
        PARSERS[parser](text)
    assert ": " in str(error.value)


@pytest.mark.parametrize(
    ("parser", "text"),
    [
        ("edges", EDGES),
        ("tree", TREE),
        ("tree", BLOCKS),
        ("nvidia", NVSWITCH),
        ("graphml", GRAPHML),
    ],
)
def test_broken_texts_never_fail_otherwise(parser: str, text: str) -> None:
    """Pieces removed, doubled or exchanged at random leave a graph, or an error of ours."""
    chance = random.Random(7)
    refused = 0
    for _ in range(300):
        broken = text
        for _ in range(chance.randint(1, 4)):
            one, other = sorted(chance.randrange(len(broken) + 1) for _ in range(2))
            other = min(other, one + chance.choice([1, 5, 60]))
            piece = chance.choice(["", broken[one:other] * 2, chance.choice('-[],=<>"9 \n\x1b')])
            broken = broken[:one] + piece + broken[other:]
        try:
            PARSERS[parser](broken)
        except InstanceError:
            refused += 1
    assert refused > 50


@pytest.mark.parametrize(
    ("levels", "devices", "message"),
    [
        (FABRIC, 0, "0 devices a node"),
        (FABRIC, 2**17, "524,288 devices"),
        ((FabricLevel(1, 2), FabricLevel(1, 1), FabricLevel(1, 3)), 1, "level 1: found latency 1"),
        ((FabricLevel(1, 0), FabricLevel(1, 1, 0), FabricLevel(1, 3)), 1, "oversubscription"),
        ((FabricLevel(1, 0), FabricLevel("x", 1), FabricLevel(1, 3)), 1, "level 1: bandwidth"),
    ],
)
def test_bad_levels_of_a_topology_conf_are_refused(
    levels: tuple, devices: int, message: str
) -> None:
    """The message names the level or the number."""
    with pytest.raises(InstanceError, match=message):
        parse_slurm_topology(TREE, levels, devices)


def test_files_are_read_within_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is absent, too large or no text is refused; a byte order mark is passed over."""
    path = tmp_path / "edges"
    with pytest.raises(InstanceError, match="cannot be read"):
        read_text(path)
    path.write_bytes(b"\xff\xfea")
    with pytest.raises(InstanceError, match="byte 0 is not UTF-8"):
        read_text(path)
    path.write_text("\ufeffa -- b 1 0\n", encoding="utf-8")
    assert parse_edge_list(read_text(path)).names == ("a", "b")
    monkeypatch.setattr("nest_opt.problem.validation.MAX_FILE_BYTES", 5)
    with pytest.raises(InstanceError, match="more than 5 bytes"):
        read_text(path)
