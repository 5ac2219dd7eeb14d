"""What a state costs: its value by the evaluator, stage by stage, and a guide among equals."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

from nest_opt.placing.state import State
from nest_opt.plan.check import check
from nest_opt.plan.evaluate import (
    Costs,
    StageEvaluation,
    block_groups,
    evaluate_stage,
    evaluated_objective,
    hop_ends,
    placement_cell,
    stages_value_ps,
    sync_group,
    with_backward_before,
)
from nest_opt.plan.placement import Placement
from nest_opt.problem.profile import GROUPS

# Value, and the guide: less is better.
Score = tuple[int, int]

# Bytes of the transfers that the guide adds up.
_GUIDE_BYTES = 10_000_000
_MAX_KNOWN = 200_000


class Valuer:
    """Scores of states; a stage that did not change is not evaluated again."""

    def __init__(self, costs: Costs) -> None:
        self._costs = costs
        self._known: dict[object, StageEvaluation] = {}
        network = costs.network
        unit = 10**12
        self._weights = [
            round(unit * network.hop_s(_GUIDE_BYTES, level))  # type: ignore[arg-type]
            for level in range(network.level_count)
        ]
        self.evaluations = 0

    def score(self, state: State) -> Score:
        """Return the value in ps of a state whose stages fit, and its guide."""
        self.evaluations += 1
        placement = state.listed()
        cell = placement_cell(self._costs.problem, placement)
        costs = self._costs.ordered(placement.layer_order)
        blocks = state.blocks.devices
        ends = (blocks[0], blocks[-1]) if costs.table.tied else ()
        stages = []
        for stage, (intervals, mode) in enumerate(
            zip(placement.intervals, placement.recompute, strict=True)
        ):
            near = blocks[max(0, stage - 1) : stage + 2]
            if placement.schedule.is_interleaved:
                near = blocks
            key = (stage, intervals, mode, near, ends)
            if key not in self._known:
                if len(self._known) >= _MAX_KNOWN:
                    self._known.clear()
                self._known[key] = evaluate_stage(costs, cell, stage, intervals, mode)
            stages.append(self._known[key])
        if not placement.is_uniform:
            stages = list(with_backward_before(stages, cell.schedule))
        objective = evaluated_objective(self._costs.problem)
        return stages_value_ps(objective, cell, stages), self._guide(state)

    def _guide(self, state: State) -> int:
        """Return the time of one transfer between any two ranks that meet, all added up."""
        placement, blocks, total = state.placement, state.blocks, 0
        level, weights = self._costs.network.level, self._weights
        for stage, own in enumerate(placement.configurations):
            for replica in range(placement.replicas):
                block = blocks.block(replica, stage)
                for kind in GROUPS:
                    if own.degree(kind) > 1:
                        total += sum(weights[level(g)] for g in block_groups(block, own, kind))
                if stage + 1 < placement.stages:
                    pairs = hop_ends(blocks, placement.configurations, replica, stage, stage + 1)
                    total += sum(weights[level(pair)] for pair in pairs)
            if placement.replicas > 1:
                for rank in range(own.tp):
                    group = sync_group(blocks, own, "dense", stage, rank)
                    total += sum(weights[level(pair)] for pair in pairwise(group))
        return total

    def fitting(self, state: State, placement: Placement) -> State | None:
        """Return a state with other ends, each stage in its first mode that fits; None if illegal.

        Memory does not depend on devices, nor do rules that a network of pairs may have.
        """
        listed = replace(state.listed(), ends=placement.ends)
        cell = placement_cell(self._costs.problem, listed)
        costs = self._costs.ordered(listed.layer_order)
        modes: list[Any] = []
        for stage, intervals in enumerate(listed.intervals):
            fits: Callable[[StageEvaluation], bool] = lambda e: e.memory_bytes <= e.usable_bytes
            pair = costs.table.pairs[cell.microbatch, cell.configurations[stage]]
            found = (
                mode
                for mode in pair.stash_bytes
                if fits(evaluate_stage(costs, cell, stage, intervals, mode))
            )
            mode = next(found, None)
            if mode is None:
                return None
            modes.append(mode)
        listed = replace(listed, recompute=tuple(modes))
        if check(self._costs, listed):
            return None
        return State(listed, state.devices)
