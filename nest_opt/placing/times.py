"""What every term of a plan's stages takes at each network level, its layers given."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from nest_opt.cost.sharding import (
    CopyLevels,
    Sharding,
    between_sync,
    exchange_time,
    round_times,
    run_sync,
)
from nest_opt.cost.table import CLASSES, SyncCosts
from nest_opt.placing.meetings import Kind, between_kind
from nest_opt.plan.evaluate import Costs, evaluate, placement_cell
from nest_opt.plan.placement import AnyCell, Placement
from nest_opt.problem.profile import GROUPS


@dataclass(frozen=True)
class StageTimes:
    """One stage.

    Attributes
    ----------
    plain_ps
        What of F no level has to do with.
    load_ps, round_ps, sync_ps
        Per kind of meeting, its time at each level: in F of a replica, in F of
        a rank's copies, and in Y.
    weight_gradient_ps, backward_before_ps
        As of `StageEvaluation`.
    """

    plain_ps: int
    load_ps: Mapping[Kind, Sequence[int]]
    round_ps: Mapping[Kind, Sequence[int]]
    sync_ps: Mapping[Kind, Sequence[int]]
    weight_gradient_ps: int
    backward_before_ps: int


def stage_times(costs: Costs, placement: Placement) -> tuple[StageTimes, ...]:
    """Return the times of every stage of a placement, whatever its devices."""
    cell = placement_cell(costs.problem, placement)
    known = evaluate(costs, placement)
    own_costs = costs.ordered(placement.layer_order)
    return tuple(
        _times(
            own_costs,
            cell,
            placement,
            stage,
            found.weight_gradient_ps,
            found.backward_before_ps,
        )
        for stage, found in enumerate(known.stages)
    )


def _times(
    costs: Costs, cell: AnyCell, placement: Placement, stage: int, gradient: int, before: int
) -> StageTimes:
    table, levels = costs.table, range(costs.table.level_count)
    k, mode = cell.configurations[stage], placement.recompute[stage]
    key, intervals = (cell.microbatch, k), placement.intervals[stage]
    pair, sharding = table.pairs[key], Sharding(cell.zero, cell.device_map.replicas, cell.rounds)
    rows = [row for low, high in intervals for row in table.layer_rows[low:high]]
    own = table.own_rows(*intervals[0]) if len(intervals) == 1 else tuple(rows)
    forward = sum(pair.forward_ps[row] for row in rows)
    repeated = {"full": forward, "selective": sum(pair.repeated_forward_ps[row] for row in rows)}
    load: dict[Kind, list[int]] = {}
    for group in GROUPS:
        if k.degree(group) > 1:
            load[group] = [
                (1 + (mode == "full"))
                * sum(pair.forward_collective_ps[group][level][row] for row in rows)
                + sum(pair.backward_collective_ps[group][level][row] for row in rows)
                for level in levels
            ]
    last = len(table.layer_rows)
    for kind, cuts in (
        ("hop in", [low for low, _ in intervals if low > 0]),
        ("hop out", [high for _, high in intervals if high < last]),
    ):
        load[cast(Kind, kind)] = [sum(pair.hop_ps[level][cut] for cut in cuts) for level in levels]
    rounds: dict[Kind, list[int]] = {}
    syncs: dict[Kind, list[int]] = {}
    for name in CLASSES:
        if sharding.round_operations(name):
            at = (
                round_times(table, key, sharding, [CopyLevels(level)] * 2, classes=(name,))
                for level in levels
            )
            rounds[name] = [sum(_row(times, rows)) for times in at]
        if any(pair.parameters[name][row] for row in own):
            inside = (run_sync(table, k, name, sharding, level) for level in levels)
            syncs[name] = [_sync(cost, own) for cost in inside]
            between = (between_sync(table, k, name, sharding, level) for level in levels)
            syncs[between_kind(name)] = [_sync(cost, own) for cost in between]
    if table.tied is not None and len(cell.configurations) > 1:
        syncs["tied"] = [exchange_time(table, k, sharding, level) for level in levels]
    return StageTimes(
        forward + sum(pair.backward_ps[row] for row in rows) + repeated.get(mode, 0),
        load,
        rounds,
        syncs,
        gradient,
        before,
    )


def _row(times: Sequence[int] | None, rows: Sequence[int]) -> list[int]:
    return [] if times is None else [times[row] for row in rows]


def _sync(cost: SyncCosts | None, rows: Sequence[int]) -> int:
    return 0 if cost is None else cost.fixed_ps + sum(cost.row_ps[row] for row in rows)
