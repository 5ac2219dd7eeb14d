"""One pass of the dynamic program: the best plan whose loads all are within a limit."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from nest_opt.dp.chain import INFINITE, Array
from nest_opt.dp.graph.blocks import Blocks
from nest_opt.dp.graph.cuts import Columns, CutChanges, Flags, word_count, words_of
from nest_opt.dp.graph.devices import DeviceCounts, Relaxation
from nest_opt.problem.downsets import Downset, empty_set


@dataclass(frozen=True)
class Found:
    """A plan: the largest load, and per stage (kind, blocks as bits), in order."""

    value_ps: int
    stages: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class _Amount:
    """What the blocks on a device may add up to: `most`, `each` being what one of them adds."""

    each: tuple[int, ...]
    most: int


@dataclass
class _Starts:
    """Downsets at which stages may start that end at some downset E, or above it in the tree.

    Attributes
    ----------
    indices
        Their numbers; inside E's first blocks, those up to its last, they
        have none that E has not.
    cut_ps
        Transfers of the blocks of E that are not in each.
    known
        Downsets of greater numbers came later.
    """

    indices: Array
    cut_ps: Array
    known: int

    def catch_up(self, count: int) -> None:
        """Take in the downsets that came since: all contain E, so that nothing is cut."""
        self.indices = np.concatenate([self.indices, np.arange(self.known, count)])
        self.cut_ps = np.concatenate([self.cut_ps, np.zeros(count - self.known, np.int64)])
        self.known = count


@dataclass
class _Node:
    """A downset on the way from the root, its blocks' amounts and what is left to do."""

    downset: Downset
    starts: _Starts
    totals: tuple[int, ...]
    work_left: tuple[int, ...]
    remaining: list[int]


class Sweep:
    """One pass over the tree of downsets.

    Parameters
    ----------
    blocks, counts, bounds
        The graph, its counts of devices in use, and its relaxations.
    limit_ps
        Plans with a larger load do not count.
    """

    def __init__(
        self, blocks: Blocks, counts: DeviceCounts, bounds: Sequence[Relaxation], limit_ps: int
    ) -> None:
        self._blocks, self._counts, self._bounds = blocks, counts, bounds
        self._limit = limit_ps
        self._changes = CutChanges(blocks)
        # Per kind, the numbers of its amounts; the first is the time.
        self._amounts: list[_Amount] = []
        self._of_kind: list[range] = []
        for kind in blocks.kinds:
            first = len(self._amounts)
            self._amounts.append(_Amount(kind.time_ps, limit_ps))
            if kind.memory_binds:
                self._amounts.append(_Amount(kind.size_bytes, kind.usable_bytes))
            if not all(kind.supported):
                self._amounts.append(_Amount(tuple(int(not s) for s in kind.supported), 0))
            self._of_kind.append(range(first, len(self._amounts)))
        # The downsets that some legal stages end at, in the order of the tree.
        self._members: list[int] = []
        self._words = np.zeros((word_count(len(blocks)), 64), np.uint64)
        self._last = np.zeros(64, np.int64)
        self._totals = np.zeros((len(self._amounts), 64), np.int64)
        # Per count of devices and downset: the least largest load, the start and
        # the kind of the last stage.
        self._values = np.zeros((counts.total, 64), np.int64)
        self._origin = np.zeros((counts.total, 64), np.int32)
        self._kind = np.zeros((counts.total, 64), np.int16)

    def run(self, step: Callable[[], None] = lambda: None) -> Found | None:
        """Return the best plan within the limit, or None; `step` is called at each downset."""
        root = empty_set(self._blocks)
        nothing = np.full(self._counts.total, INFINITE, np.int64)
        nothing[0] = 0
        self._record(root, (0,) * len(self._amounts), nothing, nothing * 0, nothing * 0)
        starts = _Starts(np.zeros(1, np.int64), np.zeros(1, np.int64), 1)
        totals = (0,) * len(self._amounts)
        work = tuple(sum(bound.work) for bound in self._bounds)
        way = [_Node(root, starts, totals, work, list(root.addable))]
        while way:
            if way[-1].remaining:
                step()
                child = self._child(way[-1], way[-1].remaining.pop())
                if child is not None:
                    way.append(child)
            else:
                way.pop()
        return self._plan()

    def _child(self, parent: _Node, block: int) -> _Node | None:
        """Return the node with a block more, None if no stage can end there or above."""
        parent.starts.catch_up(len(self._members))
        totals = tuple(
            total + amount.each[block]
            for total, amount in zip(parent.totals, self._amounts, strict=True)
        )
        starts = self._starts(parent, block, totals)
        if not len(starts.indices):
            return None
        downset = parent.downset.child(self._blocks, block)
        work = tuple(
            left - bound.work[block]
            for left, bound in zip(parent.work_left, self._bounds, strict=True)
        )
        self._end_stages(downset, starts, totals, work)
        return _Node(downset, starts, totals, work, list(downset.addable))

    def _starts(self, parent: _Node, block: int, totals: Sequence[int]) -> _Starts:
        """Return the parent's starts that remain with a block more, and their cuts."""
        indices = parent.starts.indices
        keep = np.zeros(len(indices), np.bool_)
        for kind in range(len(self._of_kind)):
            keep |= self._fit(kind, indices, totals)
        skipped = (1 << block) - (1 << parent.downset.last + 1)
        if skipped:
            keep &= ~Columns(self._words, indices).meet(skipped)
        indices = indices[keep]
        columns = Columns(self._words, indices)
        change = self._changes.adding(block, parent.downset.members).of(columns)
        change[columns.contain(1 << block)] = 0
        return _Starts(indices, parent.starts.cut_ps[keep] + change, parent.starts.known)

    def _fit(self, kind: int, indices: Array, totals: Sequence[int]) -> Flags:
        """Return which starts leave amounts that a device of a kind may have, transfers apart."""
        fit = np.ones(len(indices), np.bool_)
        for number in self._of_kind[kind]:
            least = totals[number] - self._amounts[number].most
            if least > 0:
                fit &= self._totals[number].take(indices) >= least
        return fit

    def _end_stages(
        self, end: Downset, starts: _Starts, totals: Sequence[int], work_left: Sequence[int]
    ) -> None:
        """Find the best plans of a downset, and record it if there are any."""
        inside = self._last.take(starts.indices) <= end.last
        indices, cut = starts.indices[inside], starts.cut_ps[inside]
        best = np.full(self._counts.total, INFINITE, np.int64)
        origin, kind_of = np.zeros_like(best), np.zeros_like(best)
        for kind, numbers in enumerate(self._of_kind):
            load = totals[numbers[0]] - self._totals[numbers[0]].take(indices)
            if self._blocks.kinds[kind].pays_transfers:
                load += cut
            fit = (load <= self._limit) & self._fit(kind, indices, totals)
            fitting, load = indices[fit], load[fit]
            before = self._counts.extendable[kind]
            if not len(fitting) or not len(before):
                continue
            values = np.maximum(self._values.take(fitting, axis=1)[before], load)
            place = values.argmin(axis=1)
            least = values[np.arange(len(before)), place]
            after = before + self._counts.step[kind]
            better = least < best[after]
            after = after[better]
            best[after] = least[better]
            origin[after] = fitting[place[better]]
            kind_of[after] = kind
        for left, bound in zip(work_left, self._bounds, strict=True):
            best[bound.hopeless(left, self._limit)] = INFINITE
        if best.min() < INFINITE:
            self._record(end, totals, best, origin, kind_of)

    def _record(
        self, downset: Downset, totals: Sequence[int], best: Array, origin: Array, kind: Array
    ) -> None:
        """Let stages start at a downset."""
        place = len(self._members)
        if place == len(self._last):
            self._grow()
        self._members.append(downset.members)
        self._words[:, place] = words_of(downset.members, len(self._words))
        self._last[place] = downset.last
        self._totals[:, place] = totals
        self._values[:, place] = best
        self._origin[:, place] = origin
        self._kind[:, place] = kind

    def _grow(self) -> None:
        self._words = np.concatenate([self._words, np.zeros_like(self._words)], axis=1)
        self._last = np.concatenate([self._last, np.zeros_like(self._last)])
        self._totals = np.concatenate([self._totals, np.zeros_like(self._totals)], axis=1)
        self._values = np.concatenate([self._values, np.zeros_like(self._values)], axis=1)
        self._origin = np.concatenate([self._origin, np.zeros_like(self._origin)], axis=1)
        self._kind = np.concatenate([self._kind, np.zeros_like(self._kind)], axis=1)

    def _plan(self) -> Found | None:
        """Return the plan of the whole graph: it is the last downset, if it has one."""
        place = len(self._members) - 1
        if self._members[place] != (1 << len(self._blocks)) - 1:
            return None
        count = int(self._values[:, place].argmin())
        value = int(self._values[count, place])
        stages = []
        while place:
            before = int(self._origin[count, place])
            kind = int(self._kind[count, place])
            stages.append((kind, self._members[place] & ~self._members[before]))
            count, place = count - self._counts.step[kind], before
        return Found(value, tuple(stages[::-1]))
