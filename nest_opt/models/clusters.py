"""The catalogue of clusters. `docs/hardware.md` shows it as tables."""

from dataclasses import replace
from decimal import Decimal

from nest_opt.models.accelerator import Accelerator
from nest_opt.models.cluster_template import ClusterTemplate, LevelTemplate, build_from
from nest_opt.models.figure import Figure, guessed
from nest_opt.models.hardware import find_accelerator
from nest_opt.models.lookup import find
from nest_opt.models.shapes import dragonfly_of_nodes, rails_of_nodes, torus_of_cubes
from nest_opt.problem import Cluster

_GIGA = 10**9
_GIBI = 2**30

_STAS_NETWORK = "stas00/ml-engineering@744d01e18b network/README.md"
_SUPERPOD = "NVIDIA DGX SuperPOD reference architecture, docs.nvidia.com/dgx-superpod"
_SCALING_BOOK = "jax-ml/scaling-book@0819a7d8c5 tpus.md"
_LLAMA_3 = "Llama 3, arXiv:2407.21783 section 3.3"
_ARTIFACT = "NEST artifact (commit 3e163ad), the inputs of its solver"

# NCCL has one constant for the network, near or far, and so have all levels above the node.
_NETWORK_LATENCY = Figure(
    Decimal("14e-6"),
    "NVIDIA/nccl@5067397 src/graph/tuning.cc, hwLatencies: network, ring, Simple protocol",
)
_CLOUD_LATENCY = guessed(
    Decimal("50e-6"), "of the size that a fit to two AWS p4de nodes gives (see aws-p4d)"
)
_IB_EFFICIENCY = Figure(
    Decimal("0.9"), "calculon-ai/calculon systems/a100_80g.json, InfiniBand on A100"
)
_LIKE_IB = guessed(Decimal("0.9"), "as calculon's InfiniBand on A100")
_LIKE_EFA = guessed(Decimal("0.835"), "as the two AWS p4de nodes of aws-p4d")


def _network(
    name: str,
    bandwidth: Figure,
    size: Figure | None = None,
    latency: Figure = _NETWORK_LATENCY,
    efficiency: Figure = _IB_EFFICIENCY,
    oversubscription: Figure | None = None,
) -> LevelTemplate:
    return LevelTemplate(
        name=name,
        size=size,
        bandwidth_bytes_per_s=bandwidth,
        latency_s=latency,
        efficiency=efficiency,
        oversubscription=oversubscription,
    )


def _node(devices: int, source: str, name: str = "node") -> LevelTemplate:
    """Return the level of the accelerators' own fast link."""
    return LevelTemplate(name=name, size=Figure(devices, source))


def _superpod(
    name: str, alias: str, accelerator: str, network_gbps: int, scalable_unit: Figure
) -> ClusterTemplate:
    source = f"{_STAS_NETWORK}: one {network_gbps * 8} Gb/s port a GPU"
    efficiency = _IB_EFFICIENCY if accelerator.startswith("a100") else _LIKE_IB
    bandwidth = Figure(network_gbps * _GIGA, f"{source}; full fat tree ({_SUPERPOD})")
    return ClusterTemplate(
        name=name,
        aliases=(alias, f"{name}-superpod"),
        summary="8 GPUs a node on NVSwitch; nodes in scalable units on one set of leaf switches; "
        "spines (and cores) above, not oversubscribed. More scalable units than the reference "
        "architecture has are an extrapolation.",
        accelerator=accelerator,
        unit=Figure(8, _SUPERPOD),
        levels=(
            _node(8, f"{_SUPERPOD}: NVSwitch"),
            _network("scalable-unit", bandwidth, scalable_unit, efficiency=efficiency),
            _network("spine", bandwidth, efficiency=efficiency),
        ),
    )


_UNIT_OF_32 = Figure(32, f"{_SUPERPOD} (B200; DGX H100 RA-11333): scalable units of 32 nodes")
_DGX_A100 = _superpod(
    "dgx-a100",
    "a100-superpod",
    "a100-80",
    25,
    guessed(20, "seven scalable units to the 140 nodes of arXiv:2104.04473, from memory"),
)
_DGX_H100 = _superpod("dgx-h100", "h100-superpod", "h100", 50, _UNIT_OF_32)
_DGX_H200 = _superpod("dgx-h200", "h200-superpod", "h200", 50, _UNIT_OF_32)
_DGX_B200 = _superpod("dgx-b200", "b200-superpod", "b200", 50, _UNIT_OF_32)

_V100_DGX1 = ClusterTemplate(
    name="v100-dgx1",
    aliases=("dgx-1", "dgx-v100"),
    summary="8 V100 a node on an NVLink cube mesh, taken for a switch of 150 GB/s; four 100 Gb/s "
    "ports a node.",
    accelerator="v100-32",
    unit=Figure(8, "NVIDIA DGX-1"),
    levels=(
        _node(8, "NVIDIA DGX-1"),
        _network(
            "fabric",
            guessed(6_250_000_000, "4 ports of 100 Gb/s for 8 GPUs, from memory"),
            efficiency=_LIKE_IB,
        ),
    ),
)


def _nvl72(name: str, aliases: tuple[str, ...], domain: Figure, summary: str) -> ClusterTemplate:
    bandwidth = Figure(
        50 * _GIGA, f"{_SUPERPOD} (GB200): one 400 Gb/s port a GPU, rail-optimised, 1:1"
    )
    return ClusterTemplate(
        name=name,
        aliases=aliases,
        summary=f"{summary} Scalable units of 8 racks; the reference architecture ends at 128 "
        "racks.",
        accelerator="gb200",
        unit=Figure(4, "NVIDIA GB200 NVL72: trays of 4 GPUs"),
        levels=(
            LevelTemplate(name="rack", size=domain),
            _network(
                "scalable-unit",
                bandwidth,
                Figure(8, f"{_SUPERPOD} (GB200): scalable units of 8 racks"),
                efficiency=_LIKE_IB,
            ),
            _network("spine", bandwidth, efficiency=_LIKE_IB),
        ),
    )


_NVL72 = _nvl72(
    "nvl72",
    ("gb200-nvl72", "nvl-72"),
    Figure(72, "NVIDIA GB200 NVL72"),
    "GB200, 72 GPUs a rack on NVLink switches, InfiniBand above.",
)
_NVL72_64 = _nvl72(
    "nvl72-64",
    ("nvl64", "gb200-nvl64"),
    Figure(64, "64 of a rack's 72, so that powers of two fill racks: a way of using it"),
    "As nvl72 with 64 GPUs of every rack in use.",
)


def _tpu_pod(
    generation: str, axis_gbps: int, dcn: Figure, ici: tuple[LevelTemplate, ...], host: int
) -> ClusterTemplate:
    return ClusterTemplate(
        name=f"{generation}-pod",
        aliases=(f"{generation}-superpod",),
        summary="A torus, as a hierarchy: an approximation. Every level inside a pod gets the two "
        f"links of one axis ({axis_gbps} GB/s) and the latency of one hop, which is exact for a "
        "ring along one wrapped axis, too slow by up to 2 or 3 for collectives over all axes, and "
        "too fast by 2 for a hop over one link and for axes without wraparound. Pods are joined by "
        "the data-centre network.",
        accelerator=generation,
        unit=Figure(host, f"{_SCALING_BOOK}: chips of a host"),
        levels=(
            *ici,
            _network(
                "data-centre",
                dcn,
                latency=_CLOUD_LATENCY,
                efficiency=_LIKE_EFA,
            ),
        ),
    )


def _ici(name: str, size: Figure, axis_gbps: int) -> LevelTemplate:
    link = axis_gbps // 2
    return LevelTemplate(
        name=name,
        size=size,
        bandwidth_bytes_per_s=Figure(
            axis_gbps * _GIGA, f"{_SCALING_BOOK}: two links of {link} GB/s along one axis"
        ),
    )


_CUBE = Figure(64, f"{_SCALING_BOOK}: cubes of 4x4x4 chips")
_HOST_OF_4_DCN = Figure(6_250_000_000, f"{_SCALING_BOOK}: 25 GB/s for a host of 4 chips")
_HOST_OF_8_DCN = Figure(3_125_000_000, f"{_SCALING_BOOK}: 25 GB/s for a host of 8 chips")
_POD_OF_256 = Figure(256, f"{_SCALING_BOOK}: a torus of 16x16")

_TPU_V4_POD = _tpu_pod(
    "tpuv4",
    90,
    _HOST_OF_4_DCN,
    (
        _ici("cube", _CUBE, 90),
        _ici("pod", Figure(64, f"{_SCALING_BOOK}: 16x16x16 chips are 64 cubes"), 90),
    ),
    host=4,
)
_TPU_V5P_POD = _tpu_pod(
    "tpuv5p",
    180,
    _HOST_OF_4_DCN,
    (
        _ici("cube", _CUBE, 180),
        _ici("pod", Figure(140, f"{_SCALING_BOOK}: 16x20x28 chips are 140 cubes"), 180),
    ),
    host=4,
)
_TPU_V5E_POD = _tpu_pod("tpuv5e", 90, _HOST_OF_8_DCN, (_ici("pod", _POD_OF_256, 90),), host=8)
_TPU_V6E_POD = _tpu_pod("tpuv6e", 180, _HOST_OF_8_DCN, (_ici("pod", _POD_OF_256, 180),), host=8)

_CLOUD = ClusterTemplate(
    name="cloud-12.5",
    aliases=("cloud", "gcp-a3-high", "a3-high"),
    summary="8 GPUs a node and 100 GB/s of Ethernet a node, as GCP A3 High (TCPX).",
    accelerator="h100",
    unit=Figure(8, f"{_STAS_NETWORK}: GCP A3 High"),
    levels=(
        _node(8, f"{_STAS_NETWORK}: GCP A3 High"),
        _network(
            "fabric",
            Figure(12_500_000_000, f"{_STAS_NETWORK}: GCP A3 High, 100 GB/s for 8 GPUs"),
            latency=_CLOUD_LATENCY,
            efficiency=_LIKE_EFA,
        ),
    ),
)

_AWS_P4D = ClusterTemplate(
    name="aws-p4d",
    aliases=("p4d",),
    summary="8 A100 a node, four 100 Gb/s EFA ports a node. For p4de ask for a100-80.",
    accelerator="a100-40",
    unit=Figure(8, f"{_STAS_NETWORK}: AWS p4d"),
    levels=(
        _node(8, f"{_STAS_NETWORK}: AWS p4d"),
        _network(
            "fabric",
            Figure(6_250_000_000, f"{_STAS_NETWORK}: AWS p4d, 4 ports of 100 Gb/s for 8 GPUs"),
            latency=Figure(
                Decimal("52e-6"),
                "derived: two p4de nodes' all-reduce (aws-samples/awsome-distributed-training) "
                "fits t0 = 208.08 us; NCCL's ring model, t0 = 28 * 3.4 + 2 * latency + 8.4 us",
            ),
            efficiency=Figure(
                Decimal("0.835"),
                "derived: the same sweep reaches 78.3 of 93.8 GB/s of bus bandwidth",
            ),
        ),
    ),
)


def _a100_nodes(
    name: str,
    aliases: tuple[str, ...],
    summary: str,
    bandwidth: int,
    source: str,
    efficiency: Figure = _IB_EFFICIENCY,
) -> ClusterTemplate:
    """Return nodes of 8 A100 that have fewer ports than GPUs."""
    return ClusterTemplate(
        name=name,
        aliases=aliases,
        summary=summary,
        accelerator="a100-80",
        unit=Figure(8, source),
        levels=(
            _node(8, source),
            _network("fabric", Figure(bandwidth, source), efficiency=efficiency),
        ),
    )


_A100_HDR_4 = _a100_nodes(
    "a100-12.5",
    ("vtrain-a100",),
    "8 A100 a node, four 200 Gb/s HDR InfiniBand ports a node, as vTrain's.",
    12_500_000_000,
    "vTrain (MICRO 2024), evaluation: 8 A100 and 800 Gb/s a node",
)
_JEAN_ZAY = _a100_nodes(
    "jean-zay-a100",
    ("bloom",),
    "8 A100 a node, four 100 Gb/s Omni-Path ports a node, as BLOOM was trained on.",
    6_250_000_000,
    "BigScience, tr11-176B-ml chronicles: 8 A100 and four 100 Gb/s Omni-Path ports a node",
    efficiency=_LIKE_IB,
)
_DGX_2 = ClusterTemplate(
    name="v100-dgx2",
    aliases=("dgx-2",),
    summary="16 V100 a node on NVSwitch; eight 100 Gb/s ports a node.",
    accelerator="v100-32",
    unit=Figure(16, "NVIDIA DGX-2"),
    levels=(
        _node(16, "NVIDIA DGX-2"),
        _network(
            "fabric",
            guessed(6_250_000_000, "8 ports of 100 Gb/s for 16 GPUs, from memory"),
            efficiency=_LIKE_IB,
        ),
    ),
)

_LLAMA_3_24K = ClusterTemplate(
    name="llama3-24k",
    aliases=("meta-24k",),
    summary="Meta's 24,576 H100 on 400 Gb/s RoCE: 2 servers a rack, 192 racks a pod, 8 pods, 1:7 "
    "oversubscribed between pods. The bandwidth between pods is the worst case, all devices "
    "sending at once.",
    accelerator="h100",
    unit=Figure(8, _LLAMA_3),
    levels=(
        _node(8, f"{_LLAMA_3}: NVSwitch"),
        _network(
            "rack",
            Figure(50 * _GIGA, f"{_LLAMA_3}: 400 Gb/s RoCE"),
            Figure(2, f"{_LLAMA_3}: 2 servers a rack"),
            efficiency=_LIKE_IB,
        ),
        _network(
            "pod",
            Figure(50 * _GIGA, f"{_LLAMA_3}: full bisection in a pod"),
            Figure(192, f"{_LLAMA_3}: 192 racks a pod"),
            efficiency=_LIKE_IB,
        ),
        _network(
            "pods",
            Figure(50 * _GIGA // 7, f"{_LLAMA_3}: 400 Gb/s, oversubscribed 1:7"),
            latency=guessed(Decimal("30e-6"), f"{_LLAMA_3}: tens of microseconds"),
            efficiency=_LIKE_IB,
        ),
    ),
)

_DEEPSEEK_H800 = ClusterTemplate(
    name="deepseek-h800",
    aliases=("h800-ib",),
    summary="8 H800 a node, one 400 Gb/s InfiniBand port a GPU, as DeepSeek-V3's 2,048.",
    accelerator="h800",
    unit=Figure(8, "DeepSeek-V3, arXiv:2412.19437"),
    levels=(
        _node(8, "DeepSeek-V3, arXiv:2412.19437"),
        _network(
            "fabric",
            Figure(50 * _GIGA, "DeepSeek-V3, arXiv:2412.19437: 8 x 400 Gb/s a node"),
            efficiency=_LIKE_IB,
        ),
    ),
)

_MI300X = ClusterTemplate(
    name="mi300x",
    aliases=("mi300x-node",),
    summary="8 MI300X a node, fully connected by xGMI and taken for a switch; one 400 Gb/s port a "
    "GPU.",
    accelerator="mi300x",
    unit=Figure(8, f"{_STAS_NETWORK}: MI300X"),
    levels=(
        _node(8, f"{_STAS_NETWORK}: MI300X"),
        _network(
            "fabric",
            Figure(50 * _GIGA, f"{_STAS_NETWORK}: 8 x 400 Gb/s a node"),
            latency=guessed(Decimal("14e-6"), "as NCCL's network constant"),
            efficiency=_LIKE_IB,
        ),
    ),
)

_NEURON = "awsdocs-neuron: Amazon EC2 Trn2 architecture"
_TRN2 = ClusterTemplate(
    name="trn2",
    aliases=("trainium2",),
    summary="16 Trainium2 an instance in a 4x4 torus, taken for a switch; EFA between instances. "
    "UltraServers (four instances in rings) are not modelled: no bandwidth was found.",
    accelerator="trainium2",
    unit=Figure(16, f"{_NEURON}: trn2.48xlarge"),
    levels=(
        _node(16, f"{_NEURON}: trn2.48xlarge", name="instance"),
        _network(
            "fabric",
            Figure(25 * _GIGA, f"{_NEURON}: EFAv3, 3.2 Tb/s for 16 chips"),
            latency=_CLOUD_LATENCY,
            efficiency=_LIKE_EFA,
        ),
    ),
)


def _paper(
    name: str, alias: str, accelerator: str, memory_gib: int, gib_per_s: tuple[Decimal, ...]
) -> ClusterTemplate:
    """Return one of the paper's clusters, every number as the artifact's inputs carry it."""
    groups = (
        ("node", Figure(8, _ARTIFACT), Decimal("1e-4")),
        ("leaf", Figure(4, _ARTIFACT), Decimal("2e-4")),
        ("spine", None, Decimal("3e-4")),
    )
    return ClusterTemplate(
        name=name,
        aliases=(alias,),
        summary="Network and device memory as the inputs of the NEST paper's artifact carry them, "
        "not as the hardware has them; no reserve. Peak compute and memory bandwidth, which "
        "those inputs do not carry, are the catalogue's.",
        accelerator=accelerator,
        unit=Figure(8, _ARTIFACT),
        memory_bytes=Figure(memory_gib * _GIBI, f"{_ARTIFACT}: {memory_gib} GiB"),
        reserve_bytes=Figure(0, f"{_ARTIFACT}: none"),
        # The artifact's own cost model has one port a group, too.
        collectives="flat",
        levels=tuple(
            _network(
                level,
                Figure(int(bandwidth * _GIBI), f"{_ARTIFACT}: {bandwidth} x 2^30 bytes/s"),
                size,
                latency=Figure(latency, _ARTIFACT),
                efficiency=Figure(1, f"{_ARTIFACT}: its cost model attains the bandwidth"),
            )
            for (level, size, latency), bandwidth in zip(groups, gib_per_s, strict=True)
        ),
    )


_PAPER_H100 = _paper(
    "paper-h100-spineleaf",
    "h100-spineleaf",
    "h100",
    90,
    (Decimal(900), Decimal("12.5"), Decimal(50)),
)
_PAPER_TPU_V4 = _paper(
    "paper-tpuv4-fattree",
    "tpuv4-fattree",
    "tpuv4",
    64,
    (Decimal(900), Decimal(100), Decimal(400)),
)

_DGX_H100_RAILS = replace(
    _DGX_H100,
    name="dgx-h100-rails",
    aliases=("h100-rails",),
    summary="dgx-h100 with the 8 leaf switches of a scalable unit as rails: GPU i of every node "
    "has switch i. Plans see its levels, and are timed on its links.",
    shape=rails_of_nodes,
)

_TPU_V4_TORUS = ClusterTemplate(
    name="tpuv4-torus",
    aliases=("tpu-v4-slice", "tpuv4-slice"),
    summary="A slice as the torus that it is: cubes of 4x4x4 chips joined on every axis, with "
    "wraparound, up to 16x16x16. The fewest cubes that have the chips, as cubic as can be.",
    accelerator="tpuv4",
    unit=_CUBE,
    levels=(
        LevelTemplate(
            name="link",
            bandwidth_bytes_per_s=Figure(
                45 * _GIGA, f"{_SCALING_BOOK}: ICI, 45 GB/s a link and direction"
            ),
        ),
    ),
    shape=torus_of_cubes,
)

_FRONTIER_SITE = "glennklockwood.com/garden/systems/frontier"
_SLINGSHOT = guessed(Decimal("0.35e-6"), "a switch of Slingshot, De Sensi et al. SC20, from memory")
_FRONTIER = ClusterTemplate(
    name="frontier",
    aliases=("frontier-dragonfly", "olcf-frontier"),
    summary="Nodes of 8 GCDs (halves of MI250X) on a dragonfly: 4 nodes a router, 32 routers a "
    "group, all joined, 4 links between every two groups (the size of level system). Minimal "
    "routes alone, so that what two groups exchange takes their own 4 links; the machine also "
    "goes round by others. xGMI inside a node is taken for a switch.",
    accelerator="mi250x-gcd",
    unit=Figure(8, f"{_FRONTIER_SITE}: 4 MI250X a node"),
    levels=(
        _node(8, f"{_FRONTIER_SITE}: 4 MI250X a node"),
        _network(
            "router",
            Figure(12_500_000_000, f"{_FRONTIER_SITE}: 4 ports of 200 Gb/s for 8 GCDs"),
            Figure(4, f"{_FRONTIER_SITE}: 128 nodes on 32 switches a group"),
            latency=guessed(Decimal("7e-6"), "half of NCCL's constant for the network"),
            efficiency=_LIKE_IB,
        ),
        _network(
            "group",
            guessed(25 * _GIGA, "one port of 200 Gb/s between every two of the 32 switches"),
            Figure(32, f"{_FRONTIER_SITE}: 32 switches a group"),
            latency=_SLINGSHOT,
            efficiency=_LIKE_IB,
        ),
        _network(
            "system",
            Figure(25 * _GIGA, f"{_FRONTIER_SITE}: links of 200 Gb/s"),
            Figure(4, f"{_FRONTIER_SITE}: 4 links between every pair of groups"),
            latency=_SLINGSHOT,
            efficiency=_LIKE_IB,
        ),
    ),
    shape=dragonfly_of_nodes,
)

_LLAMA_3_TREE = replace(
    _LLAMA_3_24K,
    name="llama3-24k-tree",
    aliases=("meta-24k-tree",),
    summary="llama3-24k with full links between pods that are oversubscribed 1:7, so that plans "
    "are timed with what they send there and not as if all did.",
    levels=(
        *_LLAMA_3_24K.levels[:3],
        _network(
            "pods",
            Figure(50 * _GIGA, f"{_LLAMA_3}: 400 Gb/s"),
            latency=guessed(Decimal("30e-6"), f"{_LLAMA_3}: tens of microseconds"),
            efficiency=_LIKE_IB,
            oversubscription=Figure(7, f"{_LLAMA_3}: oversubscribed 1:7"),
        ),
    ),
)

# Clusters whose network is more than levels.
SHAPED_CLUSTERS = (_DGX_H100_RAILS, _TPU_V4_TORUS, _FRONTIER, _LLAMA_3_TREE)

CLUSTERS: tuple[ClusterTemplate, ...] = (
    _DGX_A100,
    _DGX_H100,
    _DGX_H200,
    _DGX_B200,
    _V100_DGX1,
    _NVL72,
    _NVL72_64,
    _MI300X,
    _TPU_V4_POD,
    _TPU_V5E_POD,
    _TPU_V5P_POD,
    _TPU_V6E_POD,
    _TRN2,
    _CLOUD,
    _AWS_P4D,
    _LLAMA_3_24K,
    _DEEPSEEK_H800,
    _A100_HDR_4,
    _JEAN_ZAY,
    _DGX_2,
    _PAPER_H100,
    _PAPER_TPU_V4,
)


def find_cluster(name: str) -> ClusterTemplate:
    """Return the kind of cluster of that name; case and punctuation do not count.

    Raises
    ------
    InstanceError
        If the catalogue has none; the message proposes the nearest names.
    """
    return find("cluster", name, (*CLUSTERS, *SHAPED_CLUSTERS))


def build_cluster(
    name: str,
    devices: int,
    accelerator: str | Accelerator | None = None,
    *,
    achievable: bool = False,
) -> Cluster:
    """Build a cluster of the catalogue with a number of devices.

    Levels outside the first one whose group holds all devices are left out;
    the outermost of the rest is no larger than needed. Devices take the first
    places; the last group of a level may be partly filled.

    Parameters
    ----------
    name
        Name or alias of a kind of cluster.
    devices
        How many devices: any number up to one unit (a node, a tray, a host),
        whole units beyond.
    accelerator
        Accelerator, or name or alias of one, to take in place of the cluster's own;
        its fast link and memory come with it.
    achievable
        Whether bandwidths are what large collectives attain (peak times the
        stated efficiency) rather than the peak.

    Raises
    ------
    InstanceError
        If a name is unknown or the number of devices not allowed.
    """
    template = find_cluster(name)
    own = find_accelerator(template.accelerator)
    chosen = own if accelerator is None else find_accelerator(accelerator)
    return build_from(template, devices, chosen, own_memory=chosen is own, achievable=achievable)
