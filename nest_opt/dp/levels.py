"""Level vectors: what each stage of a cell sees of the network.

A stage sees a set, over replicas, of (tp, cp, ep, hop in, hop out) levels.
All times grow with each of these levels, so only the maximal members of the
set matter; what is left is a key by which cells share their work. Levels come
from residues: the level of x and x + delta depends on x modulo the largest
proper group only, so the number of replicas hardly matters.
"""

from collections.abc import Iterable
from math import gcd
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from nest_opt.network.spread import Spreads
from nest_opt.plan.placement import DeviceMap
from nest_opt.problem import Configuration
from nest_opt.problem.zero import NOT_SHARDED, Zero

Levels: TypeAlias = tuple[int, ...]
LevelSet: TypeAlias = frozenset[Levels]
Array: TypeAlias = npt.NDArray[np.int64]

NO_HOP = -1


def maximal(members: Iterable[Levels]) -> LevelSet:
    """Return the members that no other one dominates in every component."""
    distinct = set(members)
    return frozenset(
        member
        for member in distinct
        if not any(
            other != member and all(o >= m for o, m in zip(other, member, strict=True))
            for other in distinct
        )
    )


class LevelVectors:
    """Level sets of the stages of any cell with one configuration.

    Parameters
    ----------
    spreads
        Those of the network, with its groups.
    configuration
        The degrees of a block.
    """

    def __init__(self, spreads: Spreads, configuration: Configuration) -> None:
        self._spreads, group_sizes = spreads, spreads.group_sizes
        self._proper = group_sizes[:-1]
        self._modulus = self._proper[-1] if self._proper else 1
        self._configuration = configuration
        self._radix = len(group_sizes) + 1
        self._intra = self._intra_codes()
        self._sets: dict[tuple[int, ...], LevelSet] = {}
        self._worst: dict[tuple[DeviceMap, bool], tuple[int, int]] = {}
        self._runs: dict[tuple[int, int, int, Zero], LevelSet] = {}
        self._rates = [np.array(rates, np.int64) for rates in spreads.rates]

    def level_of_span(self, span: int) -> int:
        """Return the least level that a set of devices can have if last - first = span."""
        return sum(span >= size for size in self._proper)

    def _span_levels(self, first: Array, span: int) -> Array:
        """Return the levels of the sets {first, ..., first + span}, elementwise."""
        levels = np.zeros(first.shape, np.int64)
        for size in self._proper:
            levels += first % size + span >= size
        return levels

    def _intra_codes(self) -> Array:
        """Return the code of the worst tp, cp and ep levels, by residue of the block's start.

        Groups of n ranks at stride s come in runs of s: together a run spans
        s n devices, and some group of it leaves a network group exactly if
        the run does.
        """
        tp, cp, ep, _ = self._configuration
        start = np.arange(self._modulus, dtype=np.int64)
        code = np.zeros(self._modulus, np.int64)
        for stride, degree in ((1, tp), (tp, cp), (tp * cp, ep)):
            worst = np.zeros(self._modulus, np.int64)
            run = stride * degree
            if degree > 1:
                for first in range(0, tp * cp * ep, run):
                    np.maximum(worst, self._span_levels(start + first, run - 1), out=worst)
            code = code * self._radix + worst
        return code

    def stage_sets(self, device_map: DeviceMap, goes_round: bool = False) -> list[LevelSet]:
        """Return, for each stage, the maximal (tp, cp, ep, in, out) levels over replicas.

        A hop that a stage does not have is `NO_HOP`. If the pipeline goes round,
        the last stage passes on to the first.
        """
        a, pitch = device_map.block_size, device_map.pitch
        replica_step, stage_step = (pitch, a) if device_map.order == "pp-inner" else (a, pitch)
        period = self._modulus // gcd(replica_step, self._modulus)
        replicas = np.arange(min(device_map.replicas, period), dtype=np.int64)
        stages = np.arange(device_map.stages, dtype=np.int64)
        start = replicas[:, None] * replica_step + stages[None, :] * stage_step
        hop = np.zeros((len(replicas), device_map.stages + 1), np.int64)
        hop[:, 1:-1] = 1 + self._hop_levels(start[:, :-1], stage_step)
        if goes_round:
            around = 1 + self._hop_levels(start[:, 0], (device_map.stages - 1) * stage_step)
            hop[:, 0] = hop[:, -1] = around
        code = (self._intra[start % self._modulus] * self._radix + hop[:, :-1]) * self._radix
        code += hop[:, 1:]
        return [self._decode(column) for column in code.T]

    def worst_levels(self, device_map: DeviceMap, goes_round: bool = False) -> tuple[int, int]:
        """Return the highest levels of a tp group and of a hop (`NO_HOP` if there is none)."""
        key = device_map, goes_round
        if key not in self._worst:
            sets = self.stage_sets(*key)
            members = [member for stage in sets for member in stage]
            self._worst[key] = (
                max(member[0] for member in members),
                max(max(member[3:]) for member in members),
            )
        return self._worst[key]

    def _hop_levels(self, start: Array, distance: int) -> Array:
        """Return the worst level, over the ranks of a block, of a hop by `distance`.

        Some rank q < a leaves its group of G devices exactly if one of the
        residues start, ..., start + a - 1 is at least G - distance.
        """
        levels = np.zeros(start.shape, np.int64)
        reach = self._configuration.block_size - 1 + distance
        for size in self._proper:
            levels += start % size + reach >= size
        return levels

    def _decode(self, codes: Array) -> LevelSet:
        """Return the maximal levels among codes; equal sets are one object."""
        key = tuple(np.unique(codes).tolist()) if len(codes) > 1 else (int(codes[0]),)
        if key not in self._sets:
            self._sets[key] = maximal(self._levels_of(code) for code in key)
        return self._sets[key]

    def _levels_of(self, code: int) -> Levels:
        digits = []
        for _ in range(5):
            code, digit = divmod(code, self._radix)
            digits.append(digit)
        out, inward, ep, cp, tp = digits
        return tp, cp, ep, inward - 1, out - 1

    def stage_set(self, start: Array, before: Array | None, after: Array | None) -> LevelSet:
        """Return the maximal (tp, cp, ep, in, out) levels of one stage over replicas.

        Its neighbours may have other configurations. Of each hop the first
        ranks of both blocks and the last ranks take part, so some hop leaves
        a group exactly if the blocks are not in it together.

        Parameters
        ----------
        start
            First device of each replica's block.
        before, after
            First device of the stage before's block, and last device of the
            stage after's, None where there is no such stage.
        """
        code = self._intra[start % self._modulus]
        last = start + self._configuration.block_size - 1
        for first, final in ((before, last), (start, after)):
            hop = 0 if first is None or final is None else 1 + self._levels_between(first, final)
            code = code * self._radix + hop
        return self._decode(code)

    def exchange_level(self, device_map: DeviceMap) -> int:
        """Return the highest level of equal ranks of the first and the last block, over replicas.

        The last block lies behind the first, so that some pair leaves a group
        exactly if the two blocks are not in it together.
        """
        last = device_map.stages - 1
        step = device_map.pitch if device_map.order == "pp-inner" else device_map.block_size
        period = self._modulus // gcd(step, self._modulus)
        start = np.arange(min(device_map.replicas, period), dtype=np.int64) * step
        reach = device_map.block_start(0, last) + device_map.block_size - 1
        return self.level_between(start, start + reach)

    def level_between(self, first: Array, last: Array) -> int:
        """Return the highest level of the sets {first, ..., last}."""
        return int(self._levels_between(first, last).max())

    def _levels_between(self, first: Array, last: Array) -> Array:
        """Return the levels of the sets {first, ..., last}, elementwise."""
        levels = np.zeros(first.shape, np.int64)
        for size in self._proper:
            levels += first // size != last // size
        return levels

    def sync_sets(self, device_map: DeviceMap, zero: Zero = NOT_SHARDED) -> list[LevelSet]:
        """Return, for each stage, the maximal (dense, expert) spreads of copies over ranks.

        Of several runs of replicas, the spreads inside the worst run, and after
        those the (dense, expert) spreads between the worst equals of all runs.
        """
        step = device_map.pitch if device_map.order == "pp-inner" else device_map.block_size
        return [
            self.copy_set(device_map.block_start(0, stage), step, device_map.replicas, zero)
            for stage in range(device_map.stages)
        ]

    def copy_set(self, first: int, step: int, replicas: int, zero: Zero = NOT_SHARDED) -> LevelSet:
        """Return the same of one stage: where its first replica starts, how far the next is."""
        if zero.instances > 1 or not self._spreads.is_flat:
            return self._run_set(first % self._modulus, step, replicas, zero)
        return self._sync_set(first, first + (replicas - 1) * step)

    def _sync_set(self, first: int, final: int) -> LevelSet:
        tp, cp, ep, _ = self._configuration
        return maximal(
            (
                self._level(first + t, final + t + tp * (cp * ep - 1)),
                self._level(first + t + tp * cp * e, final + t + tp * cp * e + tp * (cp - 1)),
            )
            for t in range(tp)
            for e in range(ep)
        )

    def _run_set(self, start: int, step: int, replicas: int, zero: Zero) -> LevelSet:
        """Return the spreads of one stage's copies in runs of replicas.

        `start` is where its first replica starts, and `step` leads to the next one.
        """
        tp, cp, ep, _ = self._configuration
        key = (start, step, replicas, zero)
        if key not in self._runs:
            of = self._copy_levels if self._spreads.is_flat else self._copy_spreads
            # In a block, the dense copies of a rank are its tp index, those of experts tp and ep.
            dense = [of(start + t, step, replicas, zero.runs("dense"), cp * ep) for t in range(tp)]
            expert = {
                (t, e): of(start + t + tp * cp * e, step, replicas, zero.runs("expert"), cp)
                for t in range(tp)
                for e in range(ep)
            }
            members = (
                (dense[t][0], inside, dense[t][1], between)
                for (t, _), (inside, between) in expert.items()
            )
            # Without runs there is nothing between them.
            self._runs[key] = self._spreads.maximal(
                member if zero.instances > 1 else member[:2] for member in members
            )
        return self._runs[key]

    def _copy_levels(
        self, first: int, step: int, replicas: int, runs: int, in_block: int
    ) -> tuple[int, int]:
        """Return the levels of copies inside the worst of some runs, and between equals.

        Each replica has `in_block` copies tp devices apart, the first replica's
        from `first` on. Where a set starts matters modulo the largest proper group.
        """
        stride = self._configuration.tp
        length = replicas // runs
        starts = first + self._steps(step * length, runs)
        inside = self._span_levels(starts, (length - 1) * step + (in_block - 1) * stride)
        if runs == 1:
            return int(inside.max()), 0
        places = self._steps(step, length)[:, None] + self._steps(stride, in_block)[None, :]
        between = self._span_levels(first + places, (runs - 1) * length * step)
        return int(inside.max()), int(between.max())

    def _copy_spreads(
        self, first: int, step: int, replicas: int, runs: int, in_block: int
    ) -> tuple[int, int]:
        """Return the spreads of the same: (77)."""
        length = replicas // runs
        block = np.arange(in_block, dtype=np.int64) * self._configuration.tp
        starts = first + self._steps(step * length, runs)
        copies = self._places(step, length)[:, None] + block[None, :]
        inside = self._worst_spread(starts[:, None] + copies.reshape(1, -1))
        if runs == 1:
            return inside, 0
        places = self._steps(step, length)[:, None] + self._steps(self._configuration.tp, in_block)
        equals = self._places(step * length, runs)
        return inside, self._worst_spread(first + places.reshape(-1, 1) + equals[None, :])

    def _worst_spread(self, sets: Array) -> int:
        """Return the spread that sets of devices, one a row and rising, count as together."""
        level = slowest = 0
        for size, rates in zip(self._proper, self._rates, strict=True):
            groups = sets // size
            begins = np.ones(sets.shape, np.bool_)
            begins[:, 1:] = groups[:, 1:] != groups[:, :-1]
            leaves = begins[:, 1:].any(axis=1)
            if not leaves.any():
                break
            level += 1
            # A set inside one group has nothing to do with the levels above.
            where = np.flatnonzero(begins[leaves])
            least = int(np.diff(where, append=begins[leaves].size).min())
            slowest = max(slowest, int(rates[min(least, len(rates)) - 1]))
        return level + self._spreads.levels * slowest

    def _places(self, step: int, count: int) -> Array:
        """Return multiples of a step with the least counts of them all, in every group.

        Counts repeat with the period of `_steps`. Beside the first and the last one, which
        may begin or end inside a group, one period has all counts that there are.
        """
        period = self._modulus // gcd(step, self._modulus)
        few = min(count, 3 * period + count % period)
        return np.arange(few, dtype=np.int64) * step

    def _steps(self, step: int, count: int) -> Array:
        """Return the multiples of a step, as many as differ modulo the largest proper group."""
        period = self._modulus // gcd(step, self._modulus)
        return np.arange(min(count, period), dtype=np.int64) * step

    def _level(self, first: int, last: int) -> int:
        return sum(first // size != last // size for size in self._proper)
