"""What a collective algorithm asks of each network level: steps and bytes, without constants."""

from dataclasses import dataclass
from fractions import Fraction
from math import prod
from typing import Literal

from nest_opt.errors import InstanceError

Collective = Literal[
    "all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast", "send-receive"
]
COLLECTIVES: tuple[Collective, ...] = (
    "all-reduce",
    "all-gather",
    "reduce-scatter",
    "all-to-all",
    "broadcast",
    "send-receive",
)

# Passes of reduce-scatter or all-gather that an operation consists of: an
# all-reduce is the one, then the other.
PASSES: dict[Collective, int] = {"all-reduce": 2, "all-gather": 1, "reduce-scatter": 1}

# What limits the bytes of an algorithm: neighbours that stream to each other,
# many pairs at once, or the switch that adds up.
Family = Literal["stream", "exchange", "switch"]


@dataclass(frozen=True)
class Spread:
    """How the ranks of a group lie over the levels of a network.

    Attributes
    ----------
    counts
        Innermost first: subgroups (ranks at level 0) of every group of the
        level that hold ranks. (8, 2) is two nodes of 8 ranks, (1, 16) one
        rank in each of 16 nodes. Their product is the number of ranks.

    """

    counts: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.counts or min(self.counts) < 1:
            raise InstanceError(
                f"spread: found counts {self.counts}, at least one level and at least 1 on each "
                "are needed: correct them"
            )

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return prod(self.counts)

    @property
    def below(self) -> tuple[int, ...]:
        """Ranks of one subgroup of each level: 1 at level 0, a node's at level 1."""
        return tuple(prod(self.counts[:level]) for level in range(len(self.counts)))

    @property
    def groups(self) -> tuple[int, ...]:
        """Subgroups of each level in the whole spread: ranks at level 0, nodes at level 1."""
        return tuple(self.ranks // ranks for ranks in self.below)


@dataclass(frozen=True)
class Shape:
    """Steps and bytes of an algorithm.

    Attributes
    ----------
    families
        What limits its bytes on each level.
    steps
        Steps over each level that follow each other.
    volumes
        Bytes that the busiest device of each level sends over that level, per
        byte of the buffer, its subgroup's traffic shared out over the
        subgroup's devices; of messages one after the other, the sum of each
        step's largest.
    overlapped
        Whether levels work at the same time, chunk by chunk, so that the
        slowest alone counts; otherwise one after the other.

    """

    families: tuple[Family, ...]
    steps: tuple[int, ...]
    volumes: tuple[Fraction, ...]
    overlapped: bool


def uniform(
    family: Family, steps: tuple[int, ...], volumes: tuple[Fraction, ...], *, overlapped: bool
) -> Shape:
    """Return a shape of one family on all levels."""
    return Shape((family,) * len(steps), steps, volumes, overlapped)


def ceil_log2(count: int) -> int:
    """Return the least k with 2^k >= count."""
    return (count - 1).bit_length()
