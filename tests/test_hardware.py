"""The catalogue of accelerators and clusters: sources, equality with them, legal clusters."""

import csv
import json
import re
from decimal import Decimal
from math import prod
from pathlib import Path

import pytest

from nest_opt.errors import InstanceError
from nest_opt.models.accelerator import Accelerator
from nest_opt.models.cluster_template import ClusterTemplate
from nest_opt.models.clusters import CLUSTERS, SHAPED_CLUSTERS, build_cluster, find_cluster
from nest_opt.models.figure import Figure
from nest_opt.models.hardware import ACCELERATORS, find_accelerator
from nest_opt.models.hardware_page import MARKER, tables
from nest_opt.network import planned_levels
from nest_opt.problem import Cluster

PAGE = Path(__file__).resolve().parent.parent / "docs" / "hardware.md"

# Rows of the table of public figures, by the catalogue's names.
HARDWARE_ROWS = {
    "v100-32": "V100-SXM2-16/32GB",
    "a100-40": "A100-SXM4-40GB",
    "a100-80": "A100-SXM4-80GB",
    "h100": "H100-SXM5-80GB",
    "h200": "H200-SXM",
    "h800": "H800-SXM",
    "b200": "B200-SXM",
    "gb200": "GB200 (per GPU, NVL72)",
    "mi300x": "MI300X",
    "mi250x-gcd": "MI250X (1 module = 2 GCD)",
    "tpuv4": "TPU v4",
    "tpuv5e": "TPU v5e",
    "tpuv5p": "TPU v5p",
    "tpuv6e": "TPU v6e (Trillium)",
    "trainium2": "Trainium2",
}
# Devices that share a module, of which the table's row is.
DIES = {"mi250x-gcd": 2}

# What rings on a full node attain, GB/s, as the table's cell prints it beside other figures.
FAST_LINK_MEASURED = {
    "v100-32": "136",
    "a100-40": "231-235",
    "a100-80": "231-235",
    "h100": "361-367",
    "h200": "367 (ring)",
    "b200": "682 (ring)",
    "mi300x": "312.9",
}

# Cluster, row, and for levels 0, 1, ... the column that holds their bandwidth.
CLUSTER_ROWS = [
    ("dgx-a100", "DGX A100 SuperPOD / Selene", (0, 1, 2)),
    ("dgx-h100", "DGX H100/B200 SuperPOD", (0, 1, 2)),
    ("nvl72", "GB200 NVL72 SuperPOD", (0, 1, 2)),
    ("llama3-24k", "Meta Llama-3 24K H100", (0, 1, 1, 2)),
    ("aws-p4d", "AWS p4d/p4de", (0, 1)),
    ("cloud-12.5", "GCP A3 High / A3 Mega", (0, 1)),
    ("deepseek-h800", "DeepSeek H800 cluster", (0, 1)),
]

REQUIRED_CLUSTERS = {
    "dgx-a100",
    "dgx-h100",
    "nvl72",
    "tpuv4-pod",
    "cloud-12.5",
    "paper-h100-spineleaf",
    "paper-tpuv4-fattree",
}
COUNTS = (1, 8, 64, 100, 1024, 16384, 131072)
UNITS_OF_FOUR = {"nvl72", "nvl72-64", "tpuv4-pod", "tpuv5p-pod"}
# Up to one unit any number is legal; 100 is no multiple of 8 or 16.
ILLEGAL = {(cluster.name, 100) for cluster in CLUSTERS if cluster.name not in UNITS_OF_FOUR}

ENTRIES = pytest.mark.parametrize(
    "entry", [*ACCELERATORS, *CLUSTERS], ids=lambda entry: f"{type(entry).__name__}-{entry.name}"
)
ALL_ACCELERATORS = pytest.mark.parametrize("entry", ACCELERATORS, ids=lambda entry: entry.name)


def rows(path: Path, key: str) -> dict[str, dict[str, str]]:
    """Return the rows of a table of figures by one of its columns."""
    with path.open(encoding="utf-8") as file:
        return {row[key]: row for row in csv.DictReader(file)}


def first_number(text: str) -> Decimal:
    """Return the first number of a cell that holds several, or a remark."""
    found = re.search(r"\d+(\.\d+)?", text)
    assert found is not None, text
    return Decimal(found.group())


def numbers(text: str) -> list[Decimal]:
    """Return all numbers of a cell."""
    return [Decimal(number) for number in re.findall(r"\d+(?:\.\d+)?", text)]


def middle(text: str) -> Decimal:
    """Return the middle of a cell that holds a range, or its only number."""
    low, *high = numbers(text)[:2]
    return (low + high[0]) / 2 if high else low


def in_cell(value: int | Decimal, unit: int, cell: str) -> bool:
    """Return whether a figure is the cell's first number, to the cell's decimals."""
    expected = first_number(cell)
    return round(Decimal(value) / unit, -int(expected.as_tuple().exponent)) == expected


def bandwidths(cluster: Cluster) -> list[Decimal]:
    """Return the bandwidths of a cluster's levels, innermost first."""
    return [level.bandwidth_bytes_per_s for level in cluster.network.levels]


def sizes(cluster: Cluster) -> list[int]:
    """Return the sizes of a cluster's levels, innermost first."""
    return [level.size for level in cluster.network.levels]


@ENTRIES
def test_every_number_has_a_source(entry: Accelerator | ClusterTemplate) -> None:
    """Each figure names its source, and is a guess exactly if the source says so."""
    figures = dict(entry.figures())
    assert figures
    for name, figure in figures.items():
        assert len(figure.source) >= 8, name
        assert figure.guess == figure.source.startswith("guess: "), name


@ENTRIES
def test_every_number_is_a_figure(entry: Accelerator | ClusterTemplate) -> None:
    """No entry holds a bare number beside its figures, which would have no source."""
    parts = [entry, *(entry.levels if isinstance(entry, ClusterTemplate) else ())]
    for part in parts:
        for name, value in vars(part).items():
            assert isinstance(value, Figure | str | tuple) or value is None, name


@ENTRIES
def test_numbers_are_sane(entry: Accelerator | ClusterTemplate) -> None:
    """Efficiencies and shares lie in (0, 1], all else is positive; buffers may be 0."""
    for name, figure in entry.figures():
        if name.endswith(("efficiency", "share")):
            assert 0 < figure.value <= 1, name
        elif name in ("communicator_bytes", "reserve_bytes"):
            assert figure.value >= 0, name
        else:
            assert figure.value > 0, name


def test_required_entries_are_there() -> None:
    """The accelerators and clusters that users were promised are in the catalogue."""
    assert {entry.name for entry in ACCELERATORS} == set(HARDWARE_ROWS)
    assert {entry.name for entry in CLUSTERS} >= REQUIRED_CLUSTERS


@ALL_ACCELERATORS
def test_accelerators_equal_the_public_figures(entry: Accelerator, shared_data: Path) -> None:
    """Peaks, memory, bandwidths and the fast link are the table's preferred figures."""
    row = rows(shared_data / "facts" / "hardware.csv", "accelerator")[HARDWARE_ROWS[entry.name]]
    dies = DIES.get(entry.name, 1)
    assert dies * entry.matmul_16bit_flops.value == Decimal(row["bf16_tflops"]) * 10**12
    assert dies * entry.memory_bytes.value == Decimal(row["hbm_gb"]) * 10**9
    assert dies * entry.memory_bandwidth_bytes_per_s.value == Decimal(row["hbm_gbps"]) * 10**9
    if dies == 1:
        assert entry.fast_link_bytes_per_s.value == Decimal(row["intra_gbps_uni"]) * 10**9
    else:
        cell = row["detail_intra_GBps_per_device_unidirectional"]
        assert entry.fast_link_bytes_per_s.value / 10**9 in numbers(cell)
    if entry.matmul_fp8_flops is not None:
        cell = row["detail_peak_fp8_dense_tflops"]
        assert entry.matmul_fp8_flops.value / 10**12 in numbers(cell)


@ALL_ACCELERATORS
def test_cited_efficiencies_follow_from_the_measurements(
    entry: Accelerator, shared_data: Path
) -> None:
    """An efficiency that is no guess is measured over peak, to three digits."""
    row = rows(shared_data / "facts" / "hardware.csv", "accelerator")[HARDWARE_ROWS[entry.name]]
    if not entry.matmul_efficiency.guess:
        measured = first_number(row["detail_measured_max_bf16_gemm_tflops(MAMF)"])
        expected = round(measured * 10**12 / entry.matmul_16bit_flops.value, 3)
        assert entry.matmul_efficiency.value == expected
    if not entry.memory_efficiency.guess:
        measured = middle(row["detail_measured_stream_GBps"])
        expected = round(measured * 10**9 / entry.memory_bandwidth_bytes_per_s.value, 3)
        assert entry.memory_efficiency.value == expected
    if not entry.fast_link_efficiency.guess:
        cell = row["detail_measured_intra_allreduce_busbw_GBps(large)"]
        ring = FAST_LINK_MEASURED[entry.name]
        assert ring in cell
        expected = round(middle(ring) * 10**9 / entry.fast_link_bytes_per_s.value, 3)
        assert entry.fast_link_efficiency.value == expected


@pytest.mark.parametrize(("name", "row_name", "columns"), CLUSTER_ROWS)
def test_clusters_equal_the_public_figures(
    name: str, row_name: str, columns: tuple[int, ...], shared_data: Path
) -> None:
    """Each level's bandwidth is the one of the table's row, to the table's digits."""
    row = rows(shared_data / "facts" / "clusters.csv", "cluster")[row_name]
    levels = build_cluster(name, 65536).network.levels
    assert len(levels) == len(columns)
    for level, column in zip(levels, columns, strict=True):
        cell = row[f"level{column}_GBps_per_device_uni"]
        assert in_cell(level.bandwidth_bytes_per_s, 10**9, cell), level.name


def test_latencies_equal_the_public_constants(shared_data: Path) -> None:
    """NVLink's and the network's latency are NCCL's, p4d's follows from the fitted sweep."""
    constants = rows(shared_data / "facts" / "model_constants.csv", "parameter")
    microsecond = Decimal("1e-6")
    nvlink, network = (
        Decimal(constants[f"hwLatency {kind} Ring"]["value"].split("/")[2]) * microsecond
        for kind in ("NVLink", "NET")
    )
    base = Decimal(constants["baseLatency Ring LL/LL128/Simple"]["value"].split("/")[2])
    node, unit, spine = build_cluster("dgx-h100", 1024).network.levels
    assert node.latency_s == nvlink
    assert unit.latency_s == spine.latency_s == network
    fit = rows(shared_data / "facts" / "nccl_alpha_beta_fits.csv", "sweep")["aws-2xp4de"]
    # A ring over 16 GPUs in 2 nodes: 30 steps, 2 of them between the nodes.
    derived = (Decimal(fit["t0_us"]) - 28 * nvlink / microsecond - base) / 2
    fabric = build_cluster("aws-p4d", 16).network.levels[1]
    assert fabric.latency_s == round(derived) * microsecond


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("entry", CLUSTERS, ids=lambda entry: entry.name)
def test_every_cluster_builds_at_every_size(entry: ClusterTemplate, count: int) -> None:
    """It validates, has the devices, and no level or group more than they need."""
    if (entry.name, count) in ILLEGAL:
        with pytest.raises(InstanceError, match=r"found 100 devices, a multiple of (8|16) is"):
            build_cluster(entry.name, count)
        return
    cluster = build_cluster(entry.name, count)
    *inner, outermost = sizes(cluster)
    assert cluster.device_count == count
    assert prod(inner) * (outermost - 1) < count or not inner
    assert 1 not in [*inner[1:], outermost]
    assert cluster.device_kind.reserve_bytes < cluster.device_kind.usable_bytes


@pytest.mark.parametrize(
    ("name", "devices", "levels"),
    [
        ("dgx-h100", 3, [8]),
        ("dgx-h100", 8, [8]),
        ("dgx-h100", 16, [8, 2]),
        ("dgx-h100", 256, [8, 32]),
        ("dgx-h100", 264, [8, 32, 2]),
        ("dgx-h100", 16384, [8, 32, 64]),
        ("dgx-a100", 1120, [8, 20, 7]),
        ("nvl72", 64, [72]),
        ("nvl72", 576, [72, 8]),
        ("nvl72", 9216, [72, 8, 16]),
        ("nvl72-64", 1024, [64, 8, 2]),
        ("tpuv4-pod", 4096, [64, 64]),
        ("tpuv4-pod", 8192, [64, 64, 2]),
        ("tpuv5p-pod", 8960, [64, 140]),
        ("tpuv6e-pod", 256, [256]),
        ("llama3-24k", 24576, [8, 2, 192, 8]),
        ("trn2", 8, [16]),
    ],
)
def test_levels_have_the_sizes_of_the_machines(name: str, devices: int, levels: list[int]) -> None:
    """Known machines and parts of them have the levels that their descriptions say."""
    assert sizes(build_cluster(name, devices)) == levels


def test_a_dgx_h100_is_what_its_users_know() -> None:
    """One cluster in full: memory, reserve, peaks, levels."""
    cluster = build_cluster("dgx-h100", 1024)
    kind = cluster.device_kind
    assert kind.memory_bytes == kind.usable_bytes == 80 * 10**9
    assert kind.reserve_bytes == 1_600_000_000 + 3 * 688_000_000
    assert kind.peak_flops == 989 * 10**12
    assert kind.memory_bandwidth_bytes_per_s == 3_350 * 10**9
    assert [level.name for level in cluster.network.levels] == ["node", "scalable-unit", "spine"]
    assert bandwidths(cluster) == [450 * 10**9, 50 * 10**9, 50 * 10**9]


def test_another_accelerator_brings_its_memory_and_link() -> None:
    """A100 in the cloud cluster: its NVLink inside the node, the cluster's network outside."""
    cluster = build_cluster("cloud-12.5", 64, accelerator="A100-40GB")
    assert list(cluster.device_kinds) == ["a100-40"]
    assert cluster.device_kind.memory_bytes == 40 * 10**9
    assert bandwidths(cluster) == [300 * 10**9, Decimal(12_500_000_000)]
    paper = build_cluster("paper-h100-spineleaf", 64, accelerator="h100")
    assert paper == build_cluster("paper-h100-spineleaf", 64)
    assert build_cluster("paper-h100-spineleaf", 64, "h200").device_kind.memory_bytes == 141 * 10**9


def test_achievable_bandwidths_are_peaks_times_efficiencies() -> None:
    """On request the levels hold what collectives attain; the paper's stay as they are."""
    cluster = build_cluster("dgx-a100", 512, achievable=True)
    assert bandwidths(cluster) == [
        300 * 10**9 * Decimal("0.777"),
        25 * 10**9 * Decimal("0.9"),
        25 * 10**9 * Decimal("0.9"),
    ]
    for name in ("paper-h100-spineleaf", "paper-tpuv4-fattree"):
        assert build_cluster(name, 64, achievable=True) == build_cluster(name, 64)


@pytest.mark.parametrize(
    ("devices", "message"),
    [
        (0, r"found 0 devices, 1 to 1048576 are allowed"),
        (2**20 + 8, r"found 1048584 devices, 1 to 1048576 are allowed"),
        (9, r"found 9 devices, a multiple of 8 is needed beyond 8 .*: ask for 8 or 16"),
        (1020, r"found 1020 devices, a multiple of 8 is needed .*: ask for 1016 or 1024"),
    ],
)
def test_impossible_numbers_of_devices_are_refused(devices: int, message: str) -> None:
    """Parts of nodes beyond the first are refused with the nearest numbers that are allowed."""
    with pytest.raises(InstanceError, match=message):
        build_cluster("dgx-h100", devices)


@ENTRIES
def test_names_are_found_in_any_case(entry: Accelerator | ClusterTemplate) -> None:
    """Name and aliases lead to their own entry whatever their case and punctuation."""
    for name in (entry.name, *entry.aliases):
        for spelled in (name, name.upper(), name.replace("-", "_"), name.replace("-", " ")):
            if isinstance(entry, Accelerator):
                assert find_accelerator(spelled) is entry
            else:
                assert find_cluster(spelled) is entry


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("h10", r"accelerator: found 'h10', one of v100-32, .* is needed: did you mean h100"),
        ("A100-90", r"did you mean a100-80 or a100-40\?|did you mean a100-40 or a100-80\?"),
        ("abacus", r"is needed: correct the name"),
    ],
)
def test_unknown_accelerators_are_answered_with_the_nearest(name: str, message: str) -> None:
    """The error names what was found, what there is, and the nearest of it."""
    with pytest.raises(InstanceError, match=message):
        find_accelerator(name)


def test_unknown_clusters_are_answered_with_the_nearest() -> None:
    """The same for clusters, and for an accelerator asked of a cluster."""
    with pytest.raises(InstanceError, match=r"cluster: found 'dgx-h10', .*did you mean dgx-h100"):
        build_cluster("dgx-h10", 8)
    with pytest.raises(InstanceError, match=r"accelerator: found 'b20', .*did you mean b200"):
        build_cluster("dgx-h100", 8, accelerator="b20")


@pytest.mark.parametrize(
    ("setup", "name"),
    [("h100_spineLeaf", "paper-h100-spineleaf"), ("tpuv4_fatTree", "paper-tpuv4-fattree")],
)
def test_the_papers_clusters_equal_the_artifacts_inputs(
    setup: str, name: str, shared_data: Path
) -> None:
    """Sizes, bandwidths, latencies and memory agree with every input, at every size."""
    paths = sorted((shared_data / "nest" / "inputs").glob(f"{setup}*.json"))
    inputs = [json.loads(path.read_text(), parse_float=Decimal) for path in paths]
    assert {data["maxDevices"] for data in inputs} == {64, 128, 256, 512, 1024}
    for data in inputs:
        cluster = build_cluster(name, data["maxDevices"])
        assert sizes(cluster) == data["devices_per_level"]
        assert bandwidths(cluster) == data["bws"]
        latencies = [level.latency_s for level in cluster.network.levels]
        assert latencies == data["latency_per_level"]
        kind = cluster.device_kind
        assert (kind.memory_bytes, kind.usable_bytes, kind.reserve_bytes) == (
            data["maxMemoryPerDevice"],
            data["maxMemoryPerDevice"],
            0,
        )


def test_the_page_shows_the_catalogue() -> None:
    """docs/hardware.md ends in the tables of the catalogue as it is."""
    _, marker, generated = PAGE.read_text(encoding="utf-8").partition(MARKER)
    assert marker
    assert generated == f"\n\n{tables()}"


def test_a_cluster_survives_its_file() -> None:
    """A built cluster written as JSON and read back is the same."""
    for entry in CLUSTERS:
        cluster = build_cluster(entry.name, 1024, achievable=True)
        assert Cluster.model_validate_json(cluster.model_dump_json()) == cluster


@pytest.mark.parametrize(
    ("name", "devices", "kind", "levels"),
    [
        ("dgx-h100-rails", 8, "hierarchical", [8]),
        ("dgx-h100-rails", 512, "rails", [8, 32, 2]),
        ("tpuv4-torus", 64, "torus", [8, 8]),
        ("tpuv4-torus", 256, "torus", [8, 8, 4]),
        ("frontier", 1024, "dragonfly", [8, 4, 32]),
        ("llama3-24k-tree", 6144, "hierarchical", [8, 2, 192, 2]),
    ],
)
def test_shapes_have_the_levels_of_the_machines(
    name: str, devices: int, kind: str, levels: list[int]
) -> None:
    """Rails, a slice of a torus, a dragonfly of nodes and a tree, as the planner sees them."""
    cluster = build_cluster(name, devices)
    assert cluster.network.type == kind
    assert cluster.network.device_count >= cluster.device_count == devices
    assert [level.size for level in planned_levels(cluster).levels] == levels


def test_an_oversubscribed_level_has_its_full_links() -> None:
    """The tree of Llama 3 and its flat twin give a device the same, all sending at once."""
    tree, flat = (build_cluster(name, 6144) for name in ("llama3-24k-tree", "llama3-24k"))
    assert bandwidths(tree)[-1] == 50 * 10**9
    found, worst = (planned_levels(cluster).levels[-1] for cluster in (tree, flat))
    assert int(found.bandwidth_bytes_per_s) == worst.bandwidth_bytes_per_s


@pytest.mark.parametrize("entry", SHAPED_CLUSTERS, ids=lambda entry: entry.name)
def test_every_number_of_a_shape_has_a_source(entry: ClusterTemplate) -> None:
    """Shapes are figures with sources too, and found by all their names."""
    for name, figure in entry.figures():
        assert figure.guess == figure.source.startswith("guess: "), name
    assert all(find_cluster(name) is entry for name in (entry.name, *entry.aliases))
