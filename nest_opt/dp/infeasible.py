"""Why nothing fits: the closest placement, its heaviest stage, and the least that helps."""

from dataclasses import dataclass

from nest_opt.dp.chain import INFINITE, UNLIMITED, Array, Chain, first_ends
from nest_opt.dp.cuts import EndsAndOrder
from nest_opt.dp.needs import Needs, least_bytes
from nest_opt.dp.source import CellSource, MemoryCase
from nest_opt.plan.evaluate import Costs, StageEvaluation, evaluate_stage
from nest_opt.plan.placement import Cell, DeviceMap, MapOrder, stage_intervals
from nest_opt.plan.progress import Progress
from nest_opt.problem import Configuration
from nest_opt.problem.profile import RECOMPUTE_MODES


@dataclass(frozen=True)
class Diagnosis:
    """Why a problem has no plan.

    Attributes
    ----------
    case, stages, stage
        The degrees, number of stages and stage number of the placement that
        needs the least memory, with its heaviest stage; None if no
        placement keeps the constraints, whatever the memory.
    heaviest
        That stage's terms.
    memory_bytes
        The least `memory_bytes` of a device with which something fits.
    devices
        The least number of devices on which something fits, in a network with
        room for them; None if there is no such number, or none can be told
        since a constraint or the pitches restrict the device map. Where states may be
        shared out over replicas, those beyond the cluster's are not looked at:
        then it may not be the least.
    configurations
        The configuration of each stage of that placement.
    complete
        Whether all placements were compared. After a KeyboardInterrupt others
        may need less, and so be closer, of those that were not.
    layers
        The heaviest stage's layers, by their places in the listed order.
    """

    case: MemoryCase | None = None
    stages: int | None = None
    stage: int | None = None
    heaviest: StageEvaluation | None = None
    memory_bytes: int | None = None
    devices: int | None = None
    configurations: tuple[Configuration, ...] = ()
    complete: bool = True
    layers: tuple[int, ...] = ()


@dataclass(frozen=True)
class _Closest:
    need_bytes: int
    case: MemoryCase
    stages: int


@dataclass
class _Known:
    """What was found so far: the closest placement, and the least number of devices."""

    closest: _Closest | None = None
    devices: int | None = None


def diagnose(
    costs: Costs,
    source: CellSource,
    progress: Progress | None = None,
) -> Diagnosis:
    """Find the placement that needs the least memory, and what would make it fit.

    Parameters
    ----------
    progress
        Called with (cases done, cases, None).

    A KeyboardInterrupt ends it with what is known: an incomplete diagnosis.
    """
    known = _Known()
    complete = True
    try:
        _compare(source, known, progress)
    except KeyboardInterrupt:
        complete = False
    closest = known.closest
    if closest is None:
        return Diagnosis(devices=known.devices, complete=complete)
    stage, heaviest, layers = _heaviest(costs, source, closest)
    return Diagnosis(
        closest.case,
        closest.stages,
        stage,
        heaviest,
        least_memory_bytes(costs, closest.need_bytes),
        known.devices,
        (closest.case.configuration,) * closest.stages,
        complete,
        layers,
    )


def _compare(
    source: CellSource,
    known: _Known,
    progress: Progress | None,
) -> None:
    """Look at every case and S that could need less memory, or fewer devices."""
    needs = Needs(source)
    cases = sorted(
        source.memory_cases(),
        key=lambda case: (_fewest_devices(source, case), least_bytes(source, case)),
    )
    for number, case in enumerate(cases):
        if progress:
            progress(number, len(cases), None)
        if not _may_improve(source, case, known.closest, known.devices):
            continue
        block = case.configuration.block_size * case.replicas
        for stages in _worth_a_look(source, case, known):
            closest, devices = known.closest, _devices_to_beat(source, case, known)
            useful = _useful_bytes(case, stages, closest, devices)
            if needs.bound(case, stages) >= useful or not source.allows(case, stages):
                continue
            need = needs.at(case, stages)
            if need >= useful:
                continue
            if stages <= case.most_stages and (closest is None or need < closest.need_bytes):
                known.closest = _Closest(need, case, stages)
            if need <= case.usable_bytes and (devices is None or block * stages < devices):
                known.devices = block * stages


def _worth_a_look(source: CellSource, case: MemoryCase, known: _Known) -> list[int]:
    """Return the S of a case that have room where less memory, or fewer devices, are of use."""
    found, devices = {}, _devices_to_beat(source, case, known)
    for stages in (case.most_stages, case.most_stages + 1):
        useful = _useful_bytes(case, stages, known.closest, devices)
        found[stages] = source.stages_with_room(case, useful - 1)
    here, beyond = found.values()
    return [
        *(s for s in here if s <= case.most_stages),
        *(s for s in beyond if s > case.most_stages and source.allows(case, s)),
    ]


def _devices_to_beat(source: CellSource, case: MemoryCase, known: _Known) -> int | None:
    """Return the least number of devices so far, None if there is none; 0 is beyond a case."""
    return 0 if _fewest_devices(source, case) == INFINITE else known.devices


def _ends(source: CellSource, closest: _Closest) -> EndsAndOrder:
    """Return the ends of the chunks of the closest placement, and its order of layers."""
    case, stages = closest.case, closest.stages
    if case.schedule.is_interleaved:
        found = source.chunk_memory(case, stages)
        assert found is not None
        return found[1], None
    used = _memory(source, case, stages)
    passes = Chain(used, None).sum_suffixes(closest.need_bytes, UNLIMITED, weight=0)
    return source.stages(first_ends(passes, 0))


def _memory(source: CellSource, case: MemoryCase, stages: int) -> list[Array]:
    """Return the least bytes of every interval of S stages, last stage first."""
    held = source.held(stages)
    assert held is not None
    places = zip(source.places(case, stages), held, strict=True)
    return [source.holding(source.memory(case, place), layers) for place, layers in places][::-1]


def _useful_bytes(
    case: MemoryCase, stages: int, closest: _Closest | None, devices: int | None
) -> int:
    """Return what a need must be below to be of use: closer, or fitting on fewer devices."""
    useful = 0
    if stages <= case.most_stages:
        useful = INFINITE if closest is None else closest.need_bytes
    block = case.configuration.block_size * case.replicas
    if devices is None or block * stages < devices:
        useful = max(useful, case.usable_bytes + 1)
    return useful


def least_memory_bytes(costs: Costs, need_bytes: int) -> int:
    """Return the least memory of a device of which so many bytes are usable."""
    parts, of = costs.problem.cluster.device_kind.usable_share.as_integer_ratio()
    return -(-need_bytes * of // parts)


def _fewest_devices(source: CellSource, case: MemoryCase) -> int:
    """Return a lower bound on the devices on which a case fits, from its states alone.

    `INFINITE` if its largest layer has no room anywhere.
    """
    alone, states = source.memory_floor(case)
    if alone > case.usable_bytes:
        return INFINITE
    return case.configuration.block_size * case.replicas * -(-states // case.usable_bytes)


def _may_improve(
    source: CellSource, case: MemoryCase, closest: _Closest | None, devices: int | None
) -> bool:
    """Whether a case could need less memory, or fewer devices, than what was found."""
    if _fewest_devices(source, case) < (INFINITE if devices is None else devices):
        return True
    return least_bytes(source, case) < (INFINITE if closest is None else closest.need_bytes)


def _heaviest(
    costs: Costs, source: CellSource, closest: _Closest
) -> tuple[int, StageEvaluation, tuple[int, ...]]:
    """Return number, terms and layers of the heaviest stage of the closest placement."""
    case, stages = closest.case, closest.stages
    ends, layer_order = _ends(source, closest)
    intervals = stage_intervals(ends, stages)
    a = case.configuration.block_size
    order: MapOrder = "pp-inner-reversed" if costs.is_artifact else "pp-inner"
    cell = Cell(
        case.microbatch,
        case.configuration,
        case.rounds,
        DeviceMap(a, case.replicas, stages, order, stages * a),
        case.zero,
        case.schedule,
    )
    ordered = costs.ordered(layer_order)
    found = []
    for stage, chunks in enumerate(intervals):
        modes = (
            [source.mode(cell, stage, *chunks[0])]
            if costs.is_artifact
            else [m for m in RECOMPUTE_MODES if m in costs.table.pairs[cell.pair].stash_bytes]
        )
        found.append(
            min(
                (evaluate_stage(ordered, cell, stage, chunks, mode) for mode in modes),
                key=lambda stage_: stage_.memory_bytes,
            )
        )
    stage = max(range(stages), key=lambda place: found[place].memory_bytes)
    places = range(ends[-1]) if layer_order is None else layer_order
    return (
        stage,
        found[stage],
        tuple(places[place] for low, high in intervals[stage] for place in range(low, high)),
    )
