"""A placement as a point of the program that bounds its group."""

from collections.abc import Iterator
from fractions import Fraction

from nest_opt.certify.dual_groups import Degrees, groups
from nest_opt.certify.dual_rows import Arc, Program
from nest_opt.cost.table import ParameterClass
from nest_opt.plan.evaluate import (
    Costs,
    Evaluation,
    StageEvaluation,
    block_groups,
    hop_ends,
    sync_group,
)
from nest_opt.plan.placement import Placement
from nest_opt.problem.profile import GROUPS

DENSE: ParameterClass = "dense"
Hops = tuple[int, int]


def degrees_of(costs: Costs, placement: Placement) -> Degrees:
    """Return the group of a placement."""
    return next(
        at
        for at in groups(costs)
        if (at.microbatch, at.replicas, at.stages, at.schedule, at.zero)
        == (placement.microbatch, placement.replicas, placement.stages, placement.schedule,
            placement.zero)
        and set(placement.configurations) <= set(at.choices)
    )  # fmt: skip


def hop_levels(costs: Costs, placement: Placement, stage: int) -> list[int]:
    """Return the level of each replica's hop after a stage."""
    return [
        max(
            costs.network.level(ends)
            for ends in hop_ends(
                placement.device_map, placement.configurations, replica, stage, stage + 1
            )
        )
        for replica in range(placement.replicas)
    ]


def torn_levels(costs: Costs, placement: Placement, stage: int) -> list[int]:
    """Return the level of the worst group of ranks in each replica's block."""
    k = placement.configurations[stage]
    return [
        max(
            costs.network.level(group)
            for kind in GROUPS
            for group in block_groups(placement.device_map.block(replica, stage), k, kind)
        )
        for replica in range(placement.replicas)
    ]


def spread_level(costs: Costs, placement: Placement, stage: int) -> int:
    """Return the level of the worst dense copies of a stage."""
    k = placement.configurations[stage]
    return max(
        costs.network.level(sync_group(placement.device_map, k, DENSE, stage, rank))
        for rank in range(k.tp)
    )


def largest_sync_ps(evaluation: Evaluation) -> int:
    """Return the largest sync that the objective knows."""
    if evaluation.objective == "bottleneck":
        return 0
    hides = evaluation.objective == "fill-drain"
    return max(found.exposed_sync_ps if hides else found.sync_ps for found in evaluation.stages)


class Point:
    """The point of a placement: an arc a stage, and values of columns.

    Of arcs that differ in the level of copies alone, whose costs are equal, the program has one.
    """

    def __init__(
        self, costs: Costs, at: Degrees, program: Program, placement: Placement,
        evaluation: Evaluation,
    ) -> None:  # fmt: skip
        last = placement.stages - 1
        hops = [hop_levels(costs, placement, stage) for stage in range(last)]
        torn = [torn_levels(costs, placement, stage) for stage in range(last + 1)]
        idle = [0] * placement.replicas
        self.arcs: list[Arc] = []
        for stage, found in enumerate(evaluation.stages):
            levels = list(
                zip(hops[stage - 1] if stage else idle, hops[stage] if stage < last else idle,
                    strict=True)
            )  # fmt: skip
            spread = spread_level(costs, placement, stage)
            self.arcs.append(
                _arc(
                    program,
                    at.choices.index(placement.configurations[stage]),
                    stage,
                    found,
                    levels,
                    max(torn[stage]),
                    spread,
                )
            )
        self.columns = {
            "load": max(arc.load_ps for arc in self.arcs),
            "sync": largest_sync_ps(evaluation),
        }
        for kind, levels_of in (("hops", hops), ("blocks", torn)):
            for stage, found_levels in enumerate(levels_of):
                for level in range(1, costs.network.level_count):
                    above = sum(found >= level for found in found_levels)
                    self.columns[f"{kind} {stage} {level}"] = above

    def broken(self, program: Program) -> Iterator[str]:
        """Yield the names of rows that the point breaks, and of columns outside their bounds."""
        for name, value in self.columns.items():
            column = program.columns.get(name)
            if column is None and value and name.split()[0] in ("load", "sync", "hops"):
                yield name
            if column is not None and not column.low <= value <= column.high:
                yield name
        for name, right in program.right.items():
            total = sum(arc.entries.get(name, 0) for arc in self.arcs) + sum(
                column.entries.get(name, 0) * self.columns[place]
                for place, column in program.columns.items()
            )
            if total < right:
                yield name
        for here, there in zip(self.arcs, self.arcs[1:], strict=False):
            if here.head != there.tail:
                yield f"node {here.head}"

    @property
    def value_ps(self) -> int:
        """The objective of the point."""
        return sum(arc.cost_ps for arc in self.arcs) + self.columns["load"] + self.columns["sync"]


def _arc(
    program: Program, choice: int, stage: int, found: StageEvaluation,
    levels: list[Hops], torn: int, spread: int,
) -> Arc:  # fmt: skip
    """Return the stage's arc: the one with the least level of copies that is not below its own."""
    ((low, high),) = found.intervals
    worst = {
        one for one in levels
        if not any(one != two and one[0] <= two[0] and one[1] <= two[1] for two in levels)
    }  # fmt: skip
    alike = [
        arc
        for arc in program.arcs[stage]
        if (arc.low, arc.high, arc.choice, arc.torn, set(arc.hops))
        == (low, high, choice, torn, worst)
        and arc.spread >= spread
    ]
    assert alike, f"stage {stage}: no arc for {low}-{high} {sorted(worst)} {torn} {spread}"
    return min(alike, key=lambda arc: arc.spread)


def some_multipliers(program: Program, seed: int) -> dict[str, Fraction]:
    """Return some multipliers, of no meaning, for every third row."""
    names = [name for place, name in enumerate(program.right) if (place + seed) % 3 == 0]
    return {name: Fraction(1 + (7 * seed + place) % 5, 4) for place, name in enumerate(names)}
