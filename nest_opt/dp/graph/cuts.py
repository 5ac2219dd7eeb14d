"""How the transfers of a stage change when it gets one block more, for many stages at once.

A stage pays for an output if it has some, but not all, of the layers that
produce or consume it: as sender if the producer is inside, as a receiver
otherwise. Its transfers are the cut of a hypergraph.
"""

from collections import Counter
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nest_opt.dp.chain import Array
from nest_opt.dp.graph.blocks import Blocks
from nest_opt.problem.downsets import members

Words = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]
_WORD = 64
_ALL = (1 << _WORD) - 1


def word_count(blocks: int) -> int:
    """Return how many words a set of blocks takes."""
    return -(-blocks // _WORD)


def words_of(members: int, count: int) -> list[int]:
    """Return a set as words, block 0 in the lowest bit of the first."""
    return [members >> _WORD * word & _ALL for word in range(count)]


class Columns:
    """Many downsets at once, a word at a time.

    Attributes
    ----------
    words
        Their members, shape (words, all downsets).
    indices
        Which of them are meant.
    """

    def __init__(self, words: Words, indices: Array) -> None:
        self.words = words
        self.indices = indices
        self._taken: dict[int, Words] = {}

    def __len__(self) -> int:
        return len(self.indices)

    def _masked(self, blocks: int) -> list[tuple[Words, np.uint64]]:
        found = []
        for number, mask in enumerate(words_of(blocks, len(self.words))):
            if mask:
                if number not in self._taken:
                    self._taken[number] = self.words[number].take(self.indices)
                found.append((self._taken[number] & np.uint64(mask), np.uint64(mask)))
        return found

    def contain(self, blocks: int) -> Flags:
        """Return whether each contains all of a set."""
        found = np.ones(len(self), np.bool_)
        for word, mask in self._masked(blocks):
            found &= word == mask
        return found

    def meet(self, blocks: int) -> Flags:
        """Return whether each contains some of a set."""
        found = np.zeros(len(self), np.bool_)
        for word, _ in self._masked(blocks):
            found |= word != 0
        return found


@dataclass(frozen=True)
class CutChange:
    """What one block more adds to a cut, as a function of the downset D that the stage starts from.

    It is `always_ps`, plus each time of `if_contained_ps` where D contains
    its set, plus each of `if_met_ps` where D contains some of it.
    """

    always_ps: int
    if_contained_ps: tuple[tuple[int, int], ...]
    if_met_ps: tuple[tuple[int, int], ...]

    def of(self, starts: Columns) -> Array:
        """Return the change for each of many downsets."""
        change = np.full(len(starts), self.always_ps, np.int64)
        for blocks, time in self.if_contained_ps:
            change += time * starts.contain(blocks)
        for blocks, time in self.if_met_ps:
            change += time * starts.meet(blocks)
        return change


class CutChanges:
    """The changes of a graph, each worked out once."""

    def __init__(self, blocks: Blocks) -> None:
        self._blocks = blocks
        self._near = [
            sum(1 << other for other in {o for others, _ in touching for o in members(others)})
            for touching in blocks.touching
        ]
        self._known: dict[tuple[int, int], CutChange] = {}

    def adding(self, block: int, end: int) -> CutChange:
        """Return the change from stages that end with a downset to those with a block more.

        With D the start, B = `end` without D the stage, and P those of the
        tensor's other blocks that are in `end`, the tensor is cut

        - before, if P is not inside D;
        - after, if some of its other blocks are not in B: always if they are
          not all in `end`, and if P meets D otherwise.
        """
        key = block, end & self._near[block]
        if key not in self._known:
            self._known[key] = self._adding(block, end)
        return self._known[key]

    def _adding(self, block: int, end: int) -> CutChange:
        always = 0
        contained, met = Counter[int](), Counter[int]()
        for others, time in self._blocks.touching[block]:
            inside = others & end
            # The change is (after) - (before): 1 or "P meets D", less 1, plus "D contains P".
            contained[self._highest(inside)] += time
            if inside == others:
                met[self._lowest(inside)] += time
                always -= time
        always += contained.pop(0, 0)
        for blocks in [blocks for blocks in met if not blocks & (blocks - 1)]:
            contained[blocks] += met.pop(blocks)
        return CutChange(always, tuple(contained.items()), tuple(met.items()))

    def _highest(self, blocks: int) -> int:
        """Return the maximal blocks of a set: downsets that contain them contain all of it."""
        for block in members(blocks):
            blocks &= ~self._blocks.below[block]
        return blocks

    def _lowest(self, blocks: int) -> int:
        """Return the minimal blocks of a set: downsets that meet it have one of them."""
        for block in members(blocks):
            blocks &= ~self._blocks.above[block]
        return blocks
