"""The downsets of an order of blocks, each after all that it contains.

A downset is a set of blocks that has all that is before any of them. Their
tree has the empty set as its root, and a downset's parent is the downset
without its last (highest) block, which nothing in it is after. Depth first,
highest child first, is the order of the downsets as binary numbers with block
0 as the highest bit: a set comes after its subsets.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol


class Precedence(Protocol):
    """What comes before what, of blocks of which i is before none of 0, ..., i - 1."""

    @property
    def before(self) -> Sequence[int]:
        """Per block, the set of its direct predecessors, as bits."""
        ...

    @property
    def after(self) -> Sequence[Sequence[int]]:
        """Per block, its direct successors."""
        ...


@dataclass(frozen=True)
class Downset:
    """A downset in the tree.

    Attributes
    ----------
    members
        Its blocks, as bits.
    last
        The highest one; -1 in the empty set.
    addable
        Blocks above `last` each of which gives a child, ascending.
    """

    members: int
    last: int
    addable: tuple[int, ...]

    def child(self, blocks: Precedence, block: int) -> "Downset":
        """Return the downset with one of its addable blocks added."""
        inside = self.members | 1 << block
        remaining = [other for other in self.addable if other > block]
        ready = [other for other in blocks.after[block] if not blocks.before[other] & ~inside]
        return Downset(inside, block, tuple(sorted(remaining + ready)))


def empty_set(blocks: Precedence) -> Downset:
    """Return the root of the tree."""
    return Downset(0, -1, tuple(n for n, before in enumerate(blocks.before) if not before))


def downsets(blocks: Precedence) -> Iterator[int]:
    """Yield every downset, as bits."""
    waiting = [empty_set(blocks)]
    while waiting:
        downset = waiting.pop()
        yield downset.members
        waiting.extend(downset.child(blocks, block) for block in downset.addable)


def count_downsets(blocks: Precedence, most: int) -> int:
    """Return the number of downsets, or `most` + 1 if there are more than `most`."""
    return sum(1 for _ in islice(downsets(blocks), most + 1))


def members(bits: int) -> Iterator[int]:
    """Yield what is in a set, ascending."""
    while bits:
        least = bits & -bits
        yield least.bit_length() - 1
        bits ^= least
