"""Measured collectives as their sources print them: a few for each fabric, typed by hand.

GB/s are bus bandwidths of nccl-tests.
"""

from dataclasses import dataclass

from nest_opt.network.collectives import AlgorithmName, Collective

GIBI = 2**30
STAS = "stas00/ml-engineering@744d01e18b network/README.md"
VTRAIN = "VIA-Research/vTrain@f8dda8473a trace"


@dataclass(frozen=True)
class Published:
    """A measured bus bandwidth.

    Attributes
    ----------
    network
        Name, and GB/s per device and direction, of what joins the nodes.
    """

    source: str
    node: str
    counts: tuple[int, ...]
    operation: Collective
    size_bytes: int
    bus_gigas: float
    network: tuple[str, int] | None = None
    algorithms: tuple[AlgorithmName, ...] | None = None


PUBLISHED = (
    Published(STAS, "a100", (8,), "all-reduce", 16 * GIBI, 234.9),
    Published(STAS, "h200", (8,), "all-reduce", 16 * GIBI, 480.0),
    Published(STAS, "h200", (8,), "all-reduce", 16 * GIBI, 367.2, algorithms=("ring",)),
    Published(STAS, "h200", (8,), "all-gather", 16 * GIBI, 361.4),
    Published(STAS, "h200", (8,), "reduce-scatter", 16 * GIBI, 362.9),
    Published(STAS, "h200", (4,), "all-reduce", 8 * GIBI, 363.3),
    Published(STAS, "h200", (6,), "all-reduce", 8 * GIBI, 435.6),
    Published(STAS, "b200", (8,), "all-reduce", 8 * GIBI, 838.0),
    Published(STAS, "b200", (5,), "all-reduce", 8 * GIBI, 677.8),
    Published(STAS, "b200", (8,), "all-reduce", 8 * GIBI, 682.2, algorithms=("ring",)),
    Published(STAS, "b200", (8, 4), "all-reduce", 16 * GIBI, 381.8, ("efa", 50)),
    Published(STAS, "mi300x", (2,), "all-reduce", 4 * GIBI, 47.7),
    Published(STAS, "mi300x", (8,), "all-reduce", 4 * GIBI, 312.9),
    Published(VTRAIN, "v100", (2,), "all-reduce", GIBI, 22.55),
    Published(VTRAIN, "v100", (3,), "all-reduce", GIBI, 45.14),
    Published(VTRAIN, "v100", (4,), "all-reduce", GIBI, 85.36),
    Published(VTRAIN, "v100", (5,), "all-reduce", GIBI, 37.17),
    Published(VTRAIN, "v100", (6,), "all-reduce", GIBI, 45.74),
    Published(VTRAIN, "v100", (7,), "all-reduce", GIBI, 87.01),
    Published(VTRAIN, "v100", (8,), "all-reduce", GIBI, 134.5),
    Published(
        "aws-samples/awsome-distributed-training@7217859f67 micro-benchmarks/nccl-tests/README.md",
        "h100",
        (8, 2),
        "all-reduce",
        16 * GIBI,
        487.1,
        ("efa", 50),
    ),
    Published(
        "aigatech/vpbenchmarking (Voltage Park)",
        "h100",
        (8, 4),
        "all-reduce",
        8 * GIBI,
        330.9,
        ("infiniband", 50),
    ),
    Published(
        "coreweave/nccl-tests@cb86553328 README.md",
        "nvl72",
        (72,),
        "all-reduce",
        8 * GIBI,
        834.6,
    ),
    Published(
        "coreweave/nccl-tests@cb86553328 README.md",
        "nvl72",
        (72, 20),
        "all-reduce",
        8 * GIBI,
        381.5,
        ("nvl72-infiniband", 50),
    ),
    # Of none of these were constants fitted: two A3 Mega nodes, 200 GB/s a node.
    Published(
        "lessizzmore/create-a3mega-ztan-fork@02dd8f455c ztan-NCCL-test-result",
        "h100",
        (8, 2),
        "all-reduce",
        8 * GIBI,
        338.8,
        ("infiniband", 25),
    ),
    Published(
        "lessizzmore/create-a3mega-ztan-fork@02dd8f455c ztan-NCCL-test-result",
        "h100",
        (8, 2),
        "all-reduce",
        GIBI,
        297.9,
        ("infiniband", 25),
    ),
)
