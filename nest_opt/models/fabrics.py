"""The catalogue of fabrics: what collectives attain of links, with sources.

`docs/collectives.md` has what they were fitted to and how far off they are.
Peak bandwidths are those of the catalogue of accelerators; of a network, the caller's.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from decimal import Decimal
from fractions import Fraction

from nest_opt.errors import InstanceError
from nest_opt.models.figure import Figure, guessed
from nest_opt.models.hardware import find_accelerator
from nest_opt.models.lookup import find
from nest_opt.network.collectives.fabric import NCCL_ALGORITHMS, Fabric, Link, Protocol
from nest_opt.network.collectives.mesh import mesh_bandwidths
from nest_opt.network.collectives.shape import Family

_TUNING = "NVIDIA/nccl@5067397 src/graph/tuning.cc"
_FITTED = "fitted by benchmarks/collectives.py --fit to"
_LL128_STEP = Figure(Decimal("1.9e-6"), f"{_TUNING}, hwLatencies: NVLink, ring, LL128")
_SIMPLE_STEP = Figure(Decimal("3.4e-6"), f"{_TUNING}, hwLatencies: NVLink, ring, Simple")
_A100_SWEEPS = "vTrain, Azure, stas00 and Hetu-Galvatron sweeps"
_H100_SWEEPS = "AWS p5, DGX H100, Azure H100 and H200, stas00 H200 sweeps"
_B200_SWEEPS = "stas00 sweeps on AWS p6-b200"
_V100_SWEEPS = "vTrain sweeps"
_NVL72_SWEEPS = "CoreWeave's NVL72 sweep, 512 MiB and more"


@dataclass(frozen=True, kw_only=True)
class LevelFigures:
    """What one level's links give.

    Attributes
    ----------
    stream_share, exchange_share, switch_share
        Attained share of the peak, with large buffers, by neighbours that
        stream to each other, by many pairs at once, and by switches that add up
        (None: they do not).
    low_latency_share
        Share of what the links attain that the low-latency protocol gets.
    low_latency_step_s, bulk_step_s
        Seconds of a step under each of the two protocols.
    ports
        Most devices of a subgroup whose ways out one call uses; None: all.
    """

    stream_share: Figure
    exchange_share: Figure
    switch_share: Figure | None = None
    low_latency_share: Figure
    low_latency_step_s: Figure
    bulk_step_s: Figure
    ports: Figure | None = None


@dataclass(frozen=True, kw_only=True)
class NodeFabric:
    """The fast links of a kind of accelerator, and what a call costs there.

    Attributes
    ----------
    accelerator
        Whose fast link it is.
    low_latency_call_s, bulk_call_s
        Seconds of a call under each of the two protocols.
    mesh
        Links between pairs of devices where they are not a switch: one row a device.
    link_bytes_per_s
        One link of the mesh, per direction.
    """

    name: str
    aliases: tuple[str, ...] = ()
    accelerator: str
    level: LevelFigures
    low_latency_call_s: Figure
    bulk_call_s: Figure
    mesh: tuple[tuple[int, ...], ...] | None = None
    link_bytes_per_s: Figure | None = None

    def figures(self) -> Iterator[tuple[str, Figure]]:
        """Yield every number with its field's name."""
        yield from level_figures(self.level)
        yield "low_latency_call_s", self.low_latency_call_s
        yield "bulk_call_s", self.bulk_call_s
        if self.link_bytes_per_s is not None:
            yield "link_bytes_per_s", self.link_bytes_per_s


@dataclass(frozen=True, kw_only=True)
class NetworkFabric:
    """A kind of network between nodes."""

    name: str
    aliases: tuple[str, ...] = ()
    level: LevelFigures

    def figures(self) -> Iterator[tuple[str, Figure]]:
        """Yield every number with its field's name."""
        yield from level_figures(self.level)


def level_figures(level: LevelFigures) -> Iterator[tuple[str, Figure]]:
    """Yield the numbers of a level with their fields' names."""
    for field in fields(level):
        figure = getattr(level, field.name)
        if figure is not None:
            yield field.name, figure


def _fast(
    *, stream: Figure, exchange: Figure, low_latency: Figure, switch: Figure | None = None
) -> LevelFigures:
    return LevelFigures(
        stream_share=stream,
        exchange_share=exchange,
        switch_share=switch,
        low_latency_share=low_latency,
        low_latency_step_s=_LL128_STEP,
        bulk_step_s=_SIMPLE_STEP,
    )


def _fit(value: str, rows: str) -> Figure:
    return Figure(Decimal(value), f"{_FITTED} {rows}")


def _like(value: str, basis: str) -> Figure:
    return guessed(Decimal(value), basis)


_LIKE_A100_EXCHANGE = _like("0.55", "as fitted on A100")

_A100 = NodeFabric(
    name="a100-nvswitch",
    aliases=("a100",),
    accelerator="a100-80",
    level=_fast(
        stream=_fit("0.75", _A100_SWEEPS),
        exchange=_fit("0.55", "Hetu-Galvatron's all-to-all sweeps"),
        low_latency=_fit("0.85", _A100_SWEEPS),
    ),
    low_latency_call_s=_fit("53e-6", _A100_SWEEPS),
    bulk_call_s=_fit("72e-6", _A100_SWEEPS),
)
_H100 = NodeFabric(
    name="h100-nvswitch",
    aliases=("h100", "h200", "h20"),
    accelerator="h100",
    level=_fast(
        stream=_fit("0.81", _H100_SWEEPS),
        exchange=_LIKE_A100_EXCHANGE,
        switch=_fit("0.67", _H100_SWEEPS),
        low_latency=_fit("0.59", _H100_SWEEPS),
    ),
    low_latency_call_s=_fit("27e-6", _H100_SWEEPS),
    bulk_call_s=_fit("62e-6", _H100_SWEEPS),
)
_H800 = NodeFabric(
    name="h800-nvswitch",
    aliases=("h800",),
    accelerator="h800",
    level=_fast(
        stream=_like("0.81", "as fitted on H100"),
        exchange=_LIKE_A100_EXCHANGE,
        switch=_like("0.67", "as fitted on H100"),
        low_latency=_like("0.59", "as fitted on H100"),
    ),
    low_latency_call_s=_like("27e-6", "as fitted on H100"),
    bulk_call_s=_like("62e-6", "as fitted on H100"),
)
_B200 = NodeFabric(
    name="b200-nvswitch",
    aliases=("b200",),
    accelerator="b200",
    level=_fast(
        stream=_fit("0.76", _B200_SWEEPS),
        exchange=_LIKE_A100_EXCHANGE,
        switch=_fit("0.56", _B200_SWEEPS),
        low_latency=_fit("0.16", _B200_SWEEPS),
    ),
    low_latency_call_s=_fit("31e-6", _B200_SWEEPS),
    bulk_call_s=_fit("91e-6", _B200_SWEEPS),
)
_NVL72 = NodeFabric(
    name="gb200-nvl72",
    aliases=("nvl72", "gb200"),
    accelerator="gb200",
    level=_fast(
        stream=_like("0.76", "as fitted on B200"),
        exchange=_LIKE_A100_EXCHANGE,
        switch=_fit("0.49", _NVL72_SWEEPS),
        low_latency=_like("0.16", "as fitted on B200"),
    ),
    low_latency_call_s=_like("31e-6", "as fitted on B200"),
    bulk_call_s=_fit("600e-6", _NVL72_SWEEPS),
)
# NVLinks between the GPUs of a DGX-1 with V100: two quads, and a pair across for each GPU.
_CUBE_MESH = (
    (0, 1, 1, 2, 2, 0, 0, 0),
    (1, 0, 2, 1, 0, 2, 0, 0),
    (1, 2, 0, 2, 0, 0, 1, 0),
    (2, 1, 2, 0, 0, 0, 0, 1),
    (2, 0, 0, 0, 0, 1, 1, 2),
    (0, 2, 0, 0, 1, 0, 2, 1),
    (0, 0, 1, 0, 1, 2, 0, 2),
    (0, 0, 0, 1, 2, 1, 2, 0),
)
_V100 = NodeFabric(
    name="v100-cube-mesh",
    aliases=("v100", "dgx-1"),
    accelerator="v100-32",
    level=_fast(
        stream=_fit("0.91", _V100_SWEEPS),
        exchange=_LIKE_A100_EXCHANGE,
        low_latency=_fit("0.64", _V100_SWEEPS),
    ),
    low_latency_call_s=_fit("31e-6", _V100_SWEEPS),
    bulk_call_s=_fit("28e-6", _V100_SWEEPS),
    mesh=_CUBE_MESH,
    link_bytes_per_s=Figure(
        25 * 10**9,
        "NVIDIA V100: NVLink2, 25 GB/s a link and direction; which pairs have how many: the "
        "topology file of NVIDIA/nccl issue 671",
    ),
)
_V100_QUAD = NodeFabric(
    name="v100-quad",
    accelerator="v100-32",
    level=_fast(
        stream=_like("0.91", "as fitted on the cube mesh"),
        exchange=_LIKE_A100_EXCHANGE,
        low_latency=_like("0.64", "as fitted on the cube mesh"),
    ),
    low_latency_call_s=_like("31e-6", "as fitted on the cube mesh"),
    bulk_call_s=_like("28e-6", "as fitted on the cube mesh"),
    mesh=((0, 2, 2, 2), (2, 0, 2, 2), (2, 2, 0, 2), (2, 2, 2, 0)),
    link_bytes_per_s=Figure(
        25 * 10**9, "NVIDIA V100: six NVLink2 of 25 GB/s, two for each of three peers"
    ),
)
_MI300X = NodeFabric(
    name="mi300x-mesh",
    aliases=("mi300x",),
    accelerator="mi300x",
    level=_fast(
        stream=_fit("0.72", "two RCCL rows of stas00, 2 and 8 GPUs at 4 GiB"),
        exchange=_LIKE_A100_EXCHANGE,
        low_latency=_like("0.85", "as fitted on A100"),
    ),
    low_latency_call_s=_like("53e-6", "as fitted on A100"),
    bulk_call_s=_like("72e-6", "as fitted on A100"),
    mesh=tuple(tuple(int(one != other) for other in range(8)) for one in range(8)),
    link_bytes_per_s=Figure(
        64 * 10**9,
        "stas00/ml-engineering@744d01e18b network/README.md: xGMI, 64 GB/s between any two",
    ),
)
NODE_FABRICS: tuple[NodeFabric, ...] = (
    _A100,
    _H100,
    _H800,
    _B200,
    _NVL72,
    _V100,
    _V100_QUAD,
    _MI300X,
)

_CALCULON_SHARE = Figure(
    Decimal("0.9"), "calculon-ai/calculon systems/a100_80g.json, InfiniBand on A100"
)
_LL128_SHARE = Figure(Decimal("0.92"), f"{_TUNING}: bandwidth factor of LL128")
_LL128_NET_STEP = Figure(Decimal("4e-6"), f"{_TUNING}, hwLatencies: network, ring, LL128")
_SIMPLE_NET_STEP = Figure(Decimal("14e-6"), f"{_TUNING}, hwLatencies: network, ring, Simple")
_INFINIBAND = NetworkFabric(
    name="infiniband",
    aliases=("ib", "roce"),
    level=LevelFigures(
        stream_share=_CALCULON_SHARE,
        exchange_share=_like("0.6", "two thirds of what streams attain, as inside A100 nodes"),
        low_latency_share=_LL128_SHARE,
        low_latency_step_s=_LL128_NET_STEP,
        bulk_step_s=_SIMPLE_NET_STEP,
    ),
)
_EFA_SWEEPS = "AWS p4de, p5 and p6-b200 sweeps over 2 and 4 nodes"
_EFA = NetworkFabric(
    name="efa",
    level=LevelFigures(
        stream_share=_fit("0.88", _EFA_SWEEPS),
        exchange_share=_like("0.6", "as InfiniBand"),
        low_latency_share=_fit("0.34", _EFA_SWEEPS),
        low_latency_step_s=_fit("64e-6", _EFA_SWEEPS),
        bulk_step_s=_fit("170e-6", _EFA_SWEEPS),
    ),
)
_NVL72_ROWS = "CoreWeave's sweeps over 2 and 20 racks, 512 MiB and more"
_NVL72_NETWORK = NetworkFabric(
    name="nvl72-infiniband",
    level=LevelFigures(
        stream_share=_CALCULON_SHARE,
        exchange_share=_like("0.6", "as InfiniBand"),
        low_latency_share=_LL128_SHARE,
        low_latency_step_s=_LL128_NET_STEP,
        bulk_step_s=_fit("390e-6", _NVL72_ROWS),
        ports=_fit("10", f"{_NVL72_ROWS}; no source states that 10 of 72 ports are used"),
    ),
)
NETWORK_FABRICS: tuple[NetworkFabric, ...] = (_INFINIBAND, _EFA, _NVL72_NETWORK)

_SCALING_BOOK = "jax-ml/scaling-book@0819a7d8c5 sharding.md: about 1 us a hop"
ICI_SHARE = guessed(Decimal("0.85"), "within the 0.70 to 0.91 measured on GPUs")
ICI_STEP_S = Figure(Decimal("1e-6"), _SCALING_BOOK)


def build_fabric(
    node: str, network: str | None = None, network_bytes_per_s: Fraction | int | None = None
) -> Fabric:
    """Return the fabric of nodes, and of the network between them if one is named.

    Parameters
    ----------
    node, network
        Names or aliases of the catalogue.
    network_bytes_per_s
        The network's peak per device and direction.

    Raises
    ------
    InstanceError
        If a name is unknown, or one of network and its bandwidth is missing.
    """
    found = find("fabric", node, NODE_FABRICS)
    levels = [(found.level, _bandwidths(found))]
    if (network is None) != (network_bytes_per_s is None):
        raise InstanceError(
            f"fabric {node}: found network {network} and bandwidth {network_bytes_per_s}, both or "
            "neither are needed: give the other"
        )
    if network is not None and network_bytes_per_s is not None:
        between = find("network", network, NETWORK_FABRICS)
        levels.append((between.level, (Fraction(network_bytes_per_s),)))
    return Fabric(
        name=found.name if network is None else f"{found.name} + {network}",
        links=tuple(_link(level, bandwidths) for level, bandwidths in levels),
        protocols=(
            Protocol(
                "low-latency",
                _exact(found.low_latency_call_s),
                tuple(_exact(level.low_latency_step_s) for level, _ in levels),
                tuple(_exact(level.low_latency_share) for level, _ in levels),
            ),
            Protocol(
                "bulk",
                _exact(found.bulk_call_s),
                tuple(_exact(level.bulk_step_s) for level, _ in levels),
                (Fraction(1),) * len(levels),
            ),
        ),
        algorithms=NCCL_ALGORITHMS,
    )


def build_torus_fabric(link_bytes_per_s: Fraction | int) -> Fabric:
    """Return the fabric of a TPU's links: one protocol; what a call costs is not known."""
    share = _exact(ICI_SHARE)
    return Fabric(
        name="ici",
        links=(Link((Fraction(link_bytes_per_s),), {"stream": share, "exchange": share}),),
        protocols=(Protocol("bulk", Fraction(0), (_exact(ICI_STEP_S),), (Fraction(1),)),),
        algorithms=(),
    )


def _link(level: LevelFigures, bandwidths: tuple[Fraction, ...]) -> Link:
    shares: dict[Family, Fraction] = {
        "stream": _exact(level.stream_share),
        "exchange": _exact(level.exchange_share),
    }
    if level.switch_share is not None:
        shares["switch"] = _exact(level.switch_share)
    ports = None if level.ports is None else int(level.ports.value)
    return Link(bandwidths, shares, ports)


def _bandwidths(node: NodeFabric) -> tuple[Fraction, ...]:
    if node.mesh is not None and node.link_bytes_per_s is not None:
        return mesh_bandwidths(node.mesh, _exact(node.link_bytes_per_s))
    return (_exact(find_accelerator(node.accelerator).fast_link_bytes_per_s),)


def _exact(figure: Figure) -> Fraction:
    return Fraction(figure.value)
