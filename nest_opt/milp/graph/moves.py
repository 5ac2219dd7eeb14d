"""Any split improved by moves of single parts off the device of the largest load. No Pyomo here."""

import time

from nest_opt.milp.graph.heuristic import Stages, is_past
from nest_opt.milp.graph.parts import Parts


class Loads:
    """Loads and memory of an assignment, kept up to date as parts move."""

    def __init__(self, parts: Parts, start: Stages) -> None:
        self.parts = parts
        self.kinds = [parts.kinds[kind] for kind in start.kinds]
        self.stage_of = list(start.stage_of)
        self.touched: list[list[int]] = [[] for _ in range(parts.count)]
        for number, tensor in enumerate(parts.tensors):
            for part in (tensor.source, *tensor.targets):
                self.touched[part].append(number)
        stages = range(len(self.kinds))
        self.loads = [0] * len(self.kinds)
        self.free = [kind.usable_bytes for kind in self.kinds]
        for part, stage in enumerate(self.stage_of):
            self.loads[stage] += self.kinds[stage].time_ps[part] or 0
            self.free[stage] -= self.kinds[stage].size_bytes[part]
        for number in range(len(parts.tensors)):
            for stage in self.movers(number):
                self.loads[stage] += parts.tensors[number].transfer_ps
        self.stages = stages

    def movers(self, number: int) -> set[int]:
        """Return the stages that pay for a tensor: sender and receivers."""
        tensor = self.parts.tensors[number]
        stages = {self.stage_of[tensor.source], *(self.stage_of[part] for part in tensor.targets)}
        if len(stages) == 1:
            return set()
        return {stage for stage in stages if self.kinds[stage].pays_transfers}

    def move(self, part: int, stage: int) -> None:
        """Move a part."""
        self._count(part, -1)
        self.stage_of[part] = stage
        self._count(part, 1)

    def _count(self, part: int, sign: int) -> None:
        stage = self.stage_of[part]
        self.loads[stage] += sign * (self.kinds[stage].time_ps[part] or 0)
        self.free[stage] -= sign * self.kinds[stage].size_bytes[part]
        for number in self.touched[part]:
            for mover in self.movers(number):
                self.loads[mover] += sign * self.parts.tensors[number].transfer_ps

    def may_take(self, part: int, stage: int) -> bool:
        """Whether a stage supports a part and has memory for it."""
        kind = self.kinds[stage]
        return kind.time_ps[part] is not None and kind.size_bytes[part] <= self.free[stage]


def improve(parts: Parts, start: Stages, time_limit_s: float | None = None) -> Stages:
    """Return a legal assignment improved until no move of one part helps, or time is up.

    A part of a stage of the largest load moves to where the loads, the
    largest first, become least.
    """
    end = None if time_limit_s is None else time.perf_counter() + time_limit_s
    state = Loads(parts, start)
    rank = sorted(state.loads, reverse=True)
    while True:
        best: tuple[list[int], int, int] | None = None
        top = state.loads.index(rank[0])
        for part in [part for part, stage in enumerate(state.stage_of) if stage == top]:
            if is_past(end):
                return Stages(start.kinds, tuple(state.stage_of))
            for stage in state.stages:
                if stage != top and state.may_take(part, stage):
                    state.move(part, stage)
                    found = sorted(state.loads, reverse=True)
                    if found < (best[0] if best else rank):
                        best = found, part, stage
                    state.move(part, top)
        if best is None:
            return Stages(start.kinds, tuple(state.stage_of))
        rank, part, stage = best
        state.move(part, stage)
