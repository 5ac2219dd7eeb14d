"""Why nothing fits where stages may differ: what they can do better than equal ones."""

from dataclasses import dataclass, replace

import numpy as np

from nest_opt.dp.chain import INFINITE, UNLIMITED
from nest_opt.dp.default_source import DefaultSource
from nest_opt.dp.infeasible import Diagnosis, diagnose, least_memory_bytes
from nest_opt.dp.source import CellSource, MemoryCase
from nest_opt.dp.staged_chain import StagePath
from nest_opt.dp.staged_needs import fewest_devices, least_bytes, may_fit
from nest_opt.dp.staged_search import by_first_size
from nest_opt.dp.staged_source import ClassCell, StagedGroup, StagedSource
from nest_opt.plan.evaluate import Costs, StageEvaluation, evaluate_stage
from nest_opt.plan.placement import StagedCell, uneven_map
from nest_opt.plan.progress import Progress
from nest_opt.problem.profile import RECOMPUTE_MODES


@dataclass
class _Closest:
    """The least bytes of a heaviest stage so far, the stages that have it, the least devices."""

    need_bytes: int
    devices: int | None
    cell: ClassCell | None = None
    path: StagePath = ()


def diagnose_all(
    costs: Costs,
    source: CellSource,
    progress: Progress | None = None,
) -> Diagnosis:
    """Find the placement that needs the least memory, whether or not its stages may differ.

    Parameters
    ----------
    progress
        Called with (cases done, cases, None).

    A KeyboardInterrupt ends it with what is known: an incomplete diagnosis.
    """
    uniform = diagnose(costs, source, progress)
    staged = costs.problem.search.per_stage and isinstance(source, DefaultSource)
    if not staged or not uniform.complete:
        return uniform
    assert isinstance(source, DefaultSource)
    least = INFINITE if uniform.heaviest is None else uniform.heaviest.memory_bytes
    best = _Closest(least, uniform.devices)
    complete = True
    try:
        _compare(costs, StagedSource(costs, source), best, progress)
    except KeyboardInterrupt:
        complete = False
    found = uniform if best.cell is None else _diagnosis(costs, best)
    return replace(found, devices=best.devices, complete=complete)


def staged_fits(costs: Costs, source: DefaultSource) -> bool | None:
    """Whether stages that may differ fit the memory; None where that depends on the map too."""
    staged = StagedSource(costs, source)
    found = may_fit(staged)
    return None if found and not staged.any_map_will_do else found


def _compare(
    costs: Costs,
    source: StagedSource,
    best: _Closest,
    progress: Progress | None,
) -> None:
    """Look for less memory, or fewer devices, in each class and d."""
    groups = list(source.memory_groups())
    for number, group in enumerate(groups):
        if progress:
            progress(number, len(groups), None)
        _improve(costs, source, group, best)
        if source.any_map_will_do:
            _lower_devices(source, group, costs.table.usable_bytes, best)


def _improve(costs: Costs, source: StagedSource, group: StagedGroup, best: _Closest) -> None:
    """Look for less memory among the plans of a class and d, for any S."""
    most = costs.problem.cluster.device_count // group.replicas
    cap = best.need_bytes - 1
    # Few have any plan within the cap, and that is quickly seen.
    allowed = [stages for stages, _ in fewest_devices(source, group, cap, most)]
    if not allowed:
        return
    most = min(most, allowed[-1] * group.stage_class.most)
    found: list[tuple[int, int, int]] = []
    for stages, need in least_bytes(source, group, allowed, cap, most):
        fitting = np.flatnonzero(need < INFINITE).tolist()
        found += [(int(need[unit]), stages, unit) for unit in fitting]
        found.append((int(need.min()), stages, 0))
    for need_bytes, stages, unit in sorted(found):
        if need_bytes >= best.need_bytes:
            break
        of_stages = replace(group, stages=stages)
        for cell in source.rows_of(of_stages, unit) if unit else source.columns_of(of_stages):
            _take(source, cell, best)


def _lower_devices(
    source: StagedSource, group: StagedGroup, usable_bytes: int, best: _Closest
) -> None:
    """Look for fewer devices on which something fits.

    Replicas in a row take what their blocks do; stages in a row take the
    widest block each.
    """
    of, replicas = group.stage_class, group.replicas

    def most(devices: int) -> int:
        """Return the most devices of a replica that would be fewer than the least so far."""
        return devices if best.devices is None else min(devices, (best.devices - 1) // replicas)

    if source.replicas_in_a_row:
        needs = fewest_devices(source, group, usable_bytes, most(of.most * source.layers))
        for _, devices in needs:
            best.devices = min(best.devices or INFINITE, replicas * devices)
        return
    for widest in of.sizes:
        narrow = tuple(k for k in of.configurations if k.block_size <= widest)
        if narrow:
            part = replace(group, stage_class=replace(of, configurations=narrow))
            rows = most(widest * source.layers) // widest * widest
            for stages, _ in fewest_devices(source, part, usable_bytes, rows):
                best.devices = min(best.devices or INFINITE, replicas * stages * widest)


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
    cell = StagedCell(
        of.microbatch, configurations, group.rounds, blocks, group.zero, group.schedule
    )
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
        group.zero,
        group.schedule,
    )
    return Diagnosis(
        case,
        len(path),
        stage,
        found[stage],
        least_memory_bytes(costs, best.need_bytes),
        best.devices,
        configurations,
        layers=tuple(range(*path[stage][1:])),
    )
