"""Why nothing fits where stages may differ: what they can do better than equal ones."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from nest_opt.dp.chain import INFINITE, UNLIMITED, Array, suffix_start
from nest_opt.dp.default_source import DefaultSource
from nest_opt.dp.infeasible import Diagnosis, diagnose, least_memory_bytes
from nest_opt.dp.source import CellSource, MemoryCase
from nest_opt.dp.staged_chain import StagePath, extend
from nest_opt.dp.staged_search import by_first_size
from nest_opt.dp.staged_source import ClassCell, StagedGroup, StagedSource, may_neighbour
from nest_opt.plan.evaluate import Costs, StageEvaluation, evaluate_stage
from nest_opt.plan.placement import StagedCell, uneven_map
from nest_opt.problem.profile import RECOMPUTE_MODES


@dataclass
class _Closest:
    """The least bytes of a heaviest stage so far, the stages that have it, the least devices."""

    need_bytes: int
    devices: int | None
    cell: ClassCell | None = None
    path: StagePath = ()


def diagnose_all(costs: Costs, source: CellSource) -> Diagnosis:
    """Find the placement that needs the least memory, whether or not its stages may differ."""
    uniform = diagnose(costs, source)
    if not costs.problem.search.per_stage or not isinstance(source, DefaultSource):
        return uniform
    staged = StagedSource(costs, source)
    least = INFINITE if uniform.heaviest is None else uniform.heaviest.memory_bytes
    best = _Closest(least, uniform.devices)
    for group in staged.memory_groups():
        _improve(costs, staged, group, best)
    if best.cell is None:
        return replace(uniform, devices=best.devices)
    return _diagnosis(costs, best)


def _improve(costs: Costs, source: StagedSource, group: StagedGroup, best: _Closest) -> None:
    """Look for less memory, or fewer devices, among the plans of a class and d, for any S."""
    of, room = group.stage_class, costs.problem.cluster.device_count
    usable = costs.table.usable_bytes
    rows = min(room // group.replicas, source.layers * of.most)
    found: list[tuple[int, int, int]] = []
    for stages, need in _needs(source, group, rows, best.need_bytes - 1):
        fitting = np.flatnonzero(need < INFINITE).tolist()
        found += [(int(need[unit]), stages, unit) for unit in fitting]
        if fitting:
            found.append((int(need.min()), stages, 0))
    for need_bytes, stages, unit in sorted(found):
        if need_bytes >= best.need_bytes:
            break
        of_stages = replace(group, stages=stages)
        for cell in source.rows_of(of_stages, unit) if unit else source.columns_of(of_stages):
            _take(source, cell, best)
    if source.any_map_will_do:
        _lower_devices(source, group, usable, best)


def _lower_devices(
    source: StagedSource, group: StagedGroup, usable_bytes: int, best: _Closest
) -> None:
    """Look for fewer devices on which something fits.

    Replicas in a row take what their blocks do; stages in a row take the
    widest block each.
    """
    of, replicas = group.stage_class, group.replicas

    def limit(devices_a_step: int, steps: int) -> int:
        most = devices_a_step * steps
        return most if best.devices is None else min(most, (best.devices - 1) // replicas)

    if source.replicas_in_a_row:
        for _, need in _needs(source, group, limit(of.most, source.layers), usable_bytes):
            for unit in np.flatnonzero(need < INFINITE).tolist()[:1]:
                best.devices = min(best.devices or INFINITE, replicas * unit)
        return
    for widest in of.sizes:
        narrow = tuple(k for k in of.configurations if k.block_size <= widest)
        part = replace(group, stage_class=replace(of, configurations=narrow))
        rows = limit(widest, source.layers)
        for stages, need in _needs(source, part, rows, usable_bytes) if narrow else ():
            if (need < INFINITE).any():
                best.devices = min(best.devices or INFINITE, replicas * stages * widest)


def _needs(
    source: StagedSource, group: StagedGroup, rows: int, cap: int
) -> Iterator[tuple[int, Array]]:
    """Yield, for each S that is allowed, the least bytes of the heaviest stage by devices."""
    layers = source.layers
    if not source.numbers_matter:
        for stages, need in enumerate(_pass(source, group, rows, cap, None), start=1):
            if stages > 1 and source.allows_stages(stages):
                yield stages, need
        return
    for stages in filter(source.allows_stages, range(2, layers + 1)):
        passes = list(_pass(source, group, rows, cap, stages))
        if len(passes) == stages:
            yield stages, passes[-1]


def _pass(
    source: StagedSource, group: StagedGroup, rows: int, cap: int, stages: int | None
) -> Iterator[Array]:
    """Yield, for 1, 2, ... stages, the least bytes of the heaviest one by devices up to `rows`.

    It ends where nothing is left. Bytes above `cap` are as good as infinite.
    Layers that pins want in a stage are heeded if the number of stages is known.
    """
    layers, of = source.layers, group.stage_class
    start = np.full((rows + 1, layers + 1), INFINITE)
    start[0] = suffix_start(layers)
    behind = dict.fromkeys(of.configurations, start)
    for count in range(1, (stages or layers) + 1):
        whole = np.full(rows + 1, INFINITE)
        longer = {}
        for k in of.configurations:
            size = k.block_size
            cost = source.memory(of.microbatch, k, min(count, group.rounds), stages, count)
            cost = np.where(cost <= cap, cost, INFINITE)
            near = [suffix for other, suffix in behind.items() if may_neighbour(k, other)]
            suffixes = start if count == 1 else np.minimum.reduce(near)
            longer[k] = np.full_like(start, INFINITE)
            used = np.flatnonzero((suffixes[: max(0, rows + 1 - size)] < INFINITE).any(axis=1))
            if len(used):
                longer[k][used + size] = extend(cost, suffixes[used], np.maximum)
                first = np.maximum(cost[0], suffixes[used]).min(axis=1)
                whole[used + size] = np.minimum(whole[used + size], first)
        yield whole
        if not any((suffix < INFINITE).any() for suffix in longer.values()):
            return
        behind = longer


def _take(source: StagedSource, cell: ClassCell, best: _Closest) -> None:
    """Take the plan of least memory of a cell if it needs less than the closest so far."""
    chain = source.chain(cell, memory=True)
    need = INFINITE if chain is None else chain.least_max_time(UNLIMITED)
    if chain is None or need >= best.need_bytes:
        return
    _, path = chain.least_sum_time(need, UNLIMITED)
    if source.allows_path(cell, [step.configuration for step, _, _ in path]):
        best.need_bytes, best.cell, best.path = need, cell, path
        return
    for part in by_first_size(cell):
        _take(source, part, best)


def _diagnosis(costs: Costs, best: _Closest) -> Diagnosis:
    """Return the closest placement's heaviest stage, term by term."""
    assert best.cell is not None
    group, path = best.cell.group, best.path
    of = group.stage_class
    configurations = tuple(step.configuration for step, _, _ in path)
    sizes = [k.block_size for k in configurations]
    blocks = uneven_map(sizes, group.replicas, best.cell.order, best.cell.pitch)
    cell = StagedCell(of.microbatch, configurations, group.rounds, blocks)
    found: list[StageEvaluation] = []
    for stage, (step, low, high) in enumerate(path):
        modes = costs.table.pairs[of.microbatch, step.configuration].stash_bytes
        found.append(
            min(
                (
                    evaluate_stage(costs, cell, stage, ((low, high),), mode)
                    for mode in RECOMPUTE_MODES
                    if mode in modes
                ),
                key=lambda each: each.memory_bytes,
            )
        )
    stage = max(range(len(path)), key=lambda place: found[place].memory_bytes)
    case = MemoryCase(
        of.microbatch,
        configurations[0],
        group.replicas,
        group.rounds,
        len(path),
        costs.table.usable_bytes,
    )
    return Diagnosis(
        case,
        len(path),
        stage,
        found[stage],
        least_memory_bytes(costs, best.need_bytes),
        best.devices,
        configurations,
        tuple(range(*path[stage][1:])),
    )
