"""Brute force: every plan of the aligned family, one by one, for tiny problems.

It is the reference that the dynamic program is held against, so it shares
nothing with it: degrees, device maps and pitches are found by trying all
numbers and testing the definitions, and every way to cut the layers into
stages is tried with every assignment of recomputation modes. Only what a
stage costs (the evaluator) and what is legal (the checker) are the package's.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate, combinations, pairwise, product
from math import ceil
from typing import NamedTuple

from nest_opt.errors import ConsistencyError
from nest_opt.network import planned_levels
from nest_opt.plan.check import check
from nest_opt.plan.evaluate import (
    Costs,
    Evaluation,
    StageEvaluation,
    evaluate,
    evaluate_stage,
    evaluated_objective,
    stages_value_ps,
    with_backward_before,
)
from nest_opt.plan.placement import (
    AlignedOrder,
    AnyCell,
    Cell,
    DeviceMap,
    Interval,
    MapOrder,
    Placement,
    StagedCell,
    uneven_map,
)
from nest_opt.plan.rules import require_checkers, violations_of
from nest_opt.problem import Configuration, Problem, Zero
from nest_opt.problem.profile import RECOMPUTE_MODES, Recompute
from nest_opt.problem.schedule import Schedule


@dataclass(frozen=True)
class BruteForceResult:
    """What brute force found.

    Attributes
    ----------
    value_ps, placement
        The least objective value and, of the plans that have it, the first in
        the order of ties; None where no plan is legal.
    plans
        Plans that were valued: all that fit in memory.
    optima
        Plans of the least value whose stages all have their own best mode.
    """

    value_ps: int | None
    placement: Placement | None
    plans: int
    optima: int


class CellPlan(NamedTuple):
    """One plan of a cell that fits in memory.

    Attributes
    ----------
    ends, stages, value_ps
        Stage ends, the stages' evaluations and the objective's value.
    canonical
        Whether each stage has, of the modes that fit, the one of least time
        (`none` where times are equal).
    layer_order
        The order of layers; None is the listed one.
    """

    ends: tuple[int, ...]
    stages: tuple[StageEvaluation, ...]
    value_ps: int
    canonical: bool
    layer_order: tuple[int, ...] | None = None


def brute_force(problem: Problem) -> BruteForceResult:
    """Find the best plan by valuing every one.

    The order of ties is: fewer devices used, then smaller S, d, b, tp, cp,
    ep, sp (of the first stage, then of the next where they differ), zero and its
    instances, the schedule (1f1b, gpipe, interleaved with fewer chunks first, zb-h1), then
    `pp-inner` first, smaller pitch, and last the lexicographically smallest
    ends of chunks (in any order of layers each with the layers before it, which
    decide where ends are equal); among modes, each stage's fastest that fits,
    and `none` where two are equally fast.

    Raises
    ------
    ConsistencyError
        If no optimal plan has the modes of that form, or evaluator or checker
        disagree with what was found: a defect of the package.
    """
    require_checkers(problem)
    costs = Costs(problem)
    best: int | None = None
    winner: Placement | None = None
    optimal = canonical = plans = 0
    for cell, order, pitch in _every_cell(problem):
        for plan in enumerate_plans(costs, cell):
            plans += 1
            if best is not None and plan.value_ps > best:
                continue
            placement = _placement(cell, order, pitch, plan)
            if not _keeps_constraints(costs, cell, placement, plan):
                continue
            if best is None or plan.value_ps < best:
                best, winner, optimal, canonical = plan.value_ps, None, 0, 0
            optimal += 1
            canonical += plan.canonical
            if plan.canonical and (winner is None or _place(placement) < _place(winner)):
                winner = placement
    if best is not None:
        _confirm(costs, best, winner, optimal)
    return BruteForceResult(best, winner, plans, canonical)


def best_of_cells(problem: Problem) -> list[tuple[int, Placement]]:
    """Return value and placement of the best plan of every cell that has a legal one, in order.

    The order is that of `brute_force`: by value, and then of ties. Cells whose
    stages differ are not among them.
    """
    require_checkers(problem)
    costs = Costs(problem)
    found: list[tuple[int, Placement]] = []
    for cell in enumerate_cells(problem):
        order, pitch = cell.device_map.order, cell.device_map.pitch
        legal = [
            (plan.value_ps, placement)
            for plan in enumerate_plans(costs, cell)
            if plan.canonical
            for placement in (_placement(cell, order, pitch, plan),)
            if _keeps_constraints(costs, cell, placement, plan)
        ]
        if legal:
            found.append(min(legal, key=_rank))
    return sorted(found, key=_rank)


def _rank(valued: tuple[int, Placement]) -> tuple[object, ...]:
    value_ps, placement = valued
    return (value_ps, *_place(placement))


def _every_cell(problem: Problem) -> Iterator[tuple[AnyCell, MapOrder, int]]:
    for cell in enumerate_cells(problem):
        yield cell, cell.device_map.order, cell.device_map.pitch
    if problem.search.per_stage:
        yield from enumerate_staged_cells(problem)


def enumerate_staged_cells(problem: Problem) -> Iterator[tuple[StagedCell, AlignedOrder, int]]:
    """Yield every cell whose stages differ in what may differ, with order and pitch."""
    devices, layers, asked = problem.cluster.device_count, len(problem.model.ids), problem.search
    degrees = list(_degrees(problem))
    for (microbatch, first), stages in product(degrees, range(2, layers + 1)):
        alike = [k for b, k in degrees if b == microbatch and _may_meet(asked.per_stage, first, k)]
        if asked.pp and stages not in asked.pp:
            continue
        for others in product(alike, repeat=stages - 1):
            vector = (first, *others)
            if len(set(vector)) == 1 or not _may_follow(problem, vector):
                continue
            for replicas in range(1, devices // sum(k.block_size for k in vector) + 1):
                if not asked.dp or replicas in asked.dp:
                    yield from _staged_cells(problem, microbatch, vector, alike, replicas)


def _staged_cells(
    problem: Problem,
    microbatch: int,
    vector: tuple[Configuration, ...],
    alike: list[Configuration],
    replicas: int,
) -> Iterator[tuple[StagedCell, AlignedOrder, int]]:
    """Yield every cell of stages of these configurations."""
    rounds = _rounds(problem, microbatch * vector[0].ep * replicas)
    if rounds is None:
        return
    sizes, seen = [k.block_size for k in vector], set()
    schedules = list(_schedules(problem, rounds, len(vector), len(problem.model.ids)))
    for order, pitch in _staged_pitches(problem, sizes, alike, replicas):
        blocks = uneven_map(sizes, replicas, order, pitch)
        if blocks in seen:
            continue
        seen.add(blocks)
        for zero, schedule in product(_shardings(problem), schedules):
            if replicas % zero.instances == 0:
                yield StagedCell(microbatch, vector, rounds, blocks, zero, schedule), order, pitch


def _may_follow(problem: Problem, vector: Sequence[Configuration]) -> bool:
    """Whether stages may have these configurations in this order."""
    if problem.model.has_tied and vector[0].tp != vector[-1].tp:
        return False
    return all(
        here.tp % there.tp == 0 or there.tp % here.tp == 0 for here, there in pairwise(vector)
    )


def _may_meet(per_stage: Collection[str], first: Configuration, other: Configuration) -> bool:
    """Whether two stages of a plan may have these configurations."""
    return (
        (first.cp, first.ep) == (other.cp, other.ep)
        and (first.tp == other.tp or "tp" in per_stage)
        and (first.sp == other.sp or "sp" in per_stage)
    )


def _staged_pitches(
    problem: Problem, sizes: list[int], alike: list[Configuration], replicas: int
) -> Iterator[tuple[AlignedOrder, int]]:
    """Yield order and pitch of every device map of stages of these sizes."""
    widths = {k.block_size for k in alike if k.block_size >= max(sizes)}
    for pitch in range(1, planned_levels(problem.cluster).device_count + 1):
        if "pp-inner" in problem.search.order and _is_pitch(problem, pitch, sum(sizes), replicas):
            yield "pp-inner", pitch
    for pitch in range(1, planned_levels(problem.cluster).device_count + 1):
        if "dp-inner" in problem.search.order and any(
            _is_pitch(problem, pitch, replicas * width, len(sizes)) for width in widths
        ):
            yield "dp-inner", pitch


def enumerate_cells(problem: Problem) -> Iterator[Cell]:
    """Yield every cell of the search space; of equal device maps, the first in tie order.

    Cells whose stages differ are those of `enumerate_staged_cells`.
    """
    devices = problem.cluster.device_count
    layers = len(problem.model.ids)
    asked = problem.search
    degrees, shardings = list(_degrees(problem)), _shardings(problem)
    for microbatch, configuration in degrees:
        a = configuration.block_size
        widths = {
            k.block_size
            for b, k in degrees
            if b == microbatch and _may_meet(asked.per_stage, configuration, k)
        }
        for replicas, stages in product(range(1, devices + 1), range(1, layers + 1)):
            rounds = _rounds(problem, microbatch * configuration.ep * replicas)
            if replicas * stages * a > devices or rounds is None:
                continue
            if (asked.dp and replicas not in asked.dp) or (asked.pp and stages not in asked.pp):
                continue
            for device_map in _device_maps(problem, a, replicas, stages, widths):
                for zero, schedule in product(
                    shardings, _schedules(problem, rounds, stages, layers)
                ):
                    if replicas % zero.instances == 0:
                        yield Cell(microbatch, configuration, rounds, device_map, zero, schedule)


def _shardings(problem: Problem) -> list[Zero]:
    """Return every choice of what is sharded that differs from those before, in tie order.

    Expert levels matter where there are experts, runs of replicas where a level is above 0.
    """
    search = problem.search
    experts = any(p.expert_parameters for kind in problem.model.types for p in kind.profiles)
    found = []
    for zero in sorted(
        Zero(*choice) for choice in product(range(4), range(4), search.zero_instances)
    ):
        if zero.dense not in search.zero:
            continue
        if search.zero_expert is None or not experts:
            if zero.expert != zero.dense:
                continue
        elif zero.expert not in search.zero_expert:
            continue
        if zero.dense == zero.expert == 0:
            zero = Zero()
        if zero not in found:
            found.append(zero)
    return found


def _schedules(problem: Problem, rounds: int, stages: int, layers: int) -> Iterator[Schedule]:
    """Yield the schedules that run m rounds on S stages, in the order of ties."""
    if "1f1b" in problem.search.schedule:
        yield Schedule("1f1b")
    if "gpipe" in problem.search.schedule:
        yield Schedule("gpipe")
    if "interleaved" in problem.search.schedule and stages >= 2 and rounds % stages == 0:
        for chunks in sorted(problem.search.chunks):
            if chunks * stages <= layers:
                yield Schedule("interleaved", chunks)
    if "zb-h1" in problem.search.schedule and rounds >= stages:
        yield Schedule("zb-h1")


def _cuts(cell: AnyCell, layers: int) -> Iterator[tuple[int, ...]]:
    """Yield the ends of the chunks of a cell, in every way that its schedule takes."""
    chunks = cell.device_map.stages * cell.schedule.chunks
    for inner in combinations(range(1, layers), chunks - 1):
        sizes = {there - here for here, there in pairwise(inner)}
        if len(sizes) <= 1 or not cell.schedule.is_interleaved:
            yield (*inner, layers)


def enumerate_plans(costs: Costs, cell: AnyCell) -> Iterator[CellPlan]:
    """Yield every plan of a cell that fits in memory, whatever the constraints say."""
    stages = cell.device_map.stages
    objective = evaluated_objective(costs.problem)
    known: dict[tuple[object, ...], list[StageEvaluation]] = {}
    for ends, order in _every_cut(costs.problem, cell):
        places = range(ends[-1]) if order is None else order
        choices = []
        for stage in range(stages):
            chunks = tuple(zip((0, *ends), ends, strict=False))[stage::stages]
            sets = tuple(
                (frozenset(places[:low]), frozenset(places[low:high])) for low, high in chunks
            )
            if (stage, sets) not in known:
                known[stage, sets] = _fitting(costs.ordered(order), cell, stage, chunks)
            choices.append(known[stage, sets])
        for options in product(*choices):
            chosen = options
            if not isinstance(cell, Cell):
                chosen = with_backward_before(options, cell.schedule)
            value = stages_value_ps(objective, cell, chosen)
            canonical = all(stage is of[0] for stage, of in zip(options, choices, strict=True))
            yield CellPlan(ends, chosen, value, canonical, order)


def _every_cut(
    problem: Problem, cell: AnyCell
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...] | None]]:
    """Yield ends and order of layers of every way to give each layer a stage.

    No stage is empty. In the listed order stages are runs of it; in any order
    no edge goes to an earlier stage, and that is all.
    """
    layers, stages = len(problem.model.ids), cell.device_map.stages
    if problem.search.layer_order == "listed":
        for ends in _cuts(cell, layers):
            yield ends, None
        return
    index = problem.model.index
    edges = [(index[edge.source], index[edge.target]) for edge in problem.model.all_edges]
    for stage_of in product(range(stages), repeat=layers):
        if len(set(stage_of)) < stages or any(stage_of[s] > stage_of[t] for s, t in edges):
            continue
        order = tuple(sorted(range(layers), key=lambda layer: (stage_of[layer], layer)))
        ends = tuple(accumulate(stage_of.count(stage) for stage in range(stages)))
        yield ends, None if order == tuple(range(layers)) else order


def _fitting(
    costs: Costs, cell: AnyCell, stage: int, chunks: tuple[Interval, ...]
) -> list[StageEvaluation]:
    """Return a stage under every mode that fits in memory, fastest first."""
    found = [
        evaluate_stage(costs, cell, stage, chunks, mode) for mode in _modes(costs, cell, stage)
    ]
    fitting = [option for option in found if option.memory_bytes <= option.usable_bytes]
    return sorted(
        fitting, key=lambda option: (option.time_ps, RECOMPUTE_MODES.index(option.recompute))
    )


def _modes(costs: Costs, cell: AnyCell, stage: int) -> list[Recompute]:
    """Return the modes that are asked for and that every layer type offers."""
    if costs.is_artifact:
        return [costs.artifact.mode(cell.device_map.stages - stage)]
    key = cell.microbatch, cell.configurations[stage]
    return [
        mode
        for mode in costs.problem.search.recompute
        if all(mode in kind.by_key[key].recompute for kind in costs.problem.model.types)
    ]


def _degrees(problem: Problem) -> Iterator[tuple[int, Configuration]]:
    """Yield every (microbatch size, configuration) that is asked for and has its costs given."""
    search, model = problem.search, problem.model
    innermost = problem.cluster.network.innermost_size
    heads, experts = model.attention_heads, model.experts or 1
    powers_of_two = [p for p in range(1, innermost + 1) if p.bit_count() == 1]
    for microbatch, tp, cp, ep, sp in product(
        search.microbatch or (1, 2, 4, 8),
        search.tp or [p for p in powers_of_two if heads is None or heads % p == 0],
        search.cp,
        search.ep or [e for e in range(1, experts + 1) if experts % e == 0],
        search.sp,
    ):
        configuration = Configuration(tp, cp, ep, sp)
        if _has_costs(problem, microbatch, configuration):
            yield microbatch, configuration


def _has_costs(problem: Problem, microbatch: int, configuration: Configuration) -> bool:
    """Whether every layer has a profile and every tensor a size."""
    for kind in problem.model.types:
        if (microbatch, configuration) not in {
            (p.microbatch, p.configuration) for p in kind.profiles
        }:
            return False
    for edge in problem.model.all_edges:
        if edge.sizes is None:
            producer = problem.model.types[problem.model.index[edge.source]]
            sized = str(microbatch) in producer.output_bytes
        else:
            sized = any(
                size.microbatch == microbatch and size.tp in (None, configuration.tp)
                for size in edge.sizes
            )
        if not sized:
            return False
    return True


def _rounds(problem: Problem, streams: int) -> int | None:
    """Return m = G / streams, rounded up if the job pads; None if it is not whole otherwise."""
    rounds = Fraction(problem.job.global_batch, streams)
    return ceil(rounds) if rounds.denominator == 1 or problem.job.pad else None


def _device_maps(
    problem: Problem, a: int, replicas: int, stages: int, widths: Collection[int]
) -> Iterator[DeviceMap]:
    """Yield the device maps of the aligned family, each once, first in tie order.

    `widths` are the block sizes that stages may have where these may differ.
    """
    if problem.job.cost_model == "artifact":
        yield DeviceMap(a, replicas, stages, "pp-inner-reversed", stages * a)
        return
    seen = set()
    orders: tuple[MapOrder, MapOrder] = ("pp-inner", "dp-inner")
    for order in orders:
        if order not in problem.search.order:
            continue
        units, of = (
            (replicas, [stages * a])
            if order == "pp-inner"
            else (
                stages,
                [replicas * width for width in widths if width >= a],
            )
        )
        # A unit never needs a pitch beyond the whole network: rounding up stops there.
        for pitch in range(1, planned_levels(problem.cluster).device_count + 1):
            if not any(_is_pitch(problem, pitch, unit, units) for unit in of):
                continue
            device_map = DeviceMap(a, replicas, stages, order, pitch)
            starts = tuple(
                device_map.block_start(replica, stage)
                for replica, stage in product(range(replicas), range(stages))
            )
            if starts not in seen:
                seen.add(starts)
                yield device_map


def _is_pitch(problem: Problem, pitch: int, unit: int, units: int) -> bool:
    """Whether the search space has a pitch for `units` units of `unit` devices each."""
    devices, kinds = problem.cluster.device_count, problem.search.pitch
    if pitch < unit or (units - 1) * pitch + unit > devices:
        return False
    if "tight" in kinds and pitch == unit:
        return True
    if "spread" in kinds and pitch * units <= devices < (pitch + 1) * units:
        return True
    group = 1
    for level in planned_levels(problem.cluster).levels:
        group *= level.size
        if "level" in kinds and pitch % group == 0 and pitch - group < unit:
            return True
    return False


def _keeps_constraints(costs: Costs, cell: AnyCell, placement: Placement, plan: CellPlan) -> bool:
    if not costs.problem.constraints:
        return True
    evaluation = Evaluation(
        evaluated_objective(costs.problem), cell.rounds, plan.stages, plan.value_ps, cell.schedule
    )
    return next(violations_of(costs, placement, evaluation), None) is None


def _placement(cell: AnyCell, order: MapOrder, pitch: int, plan: CellPlan) -> Placement:
    return Placement(
        cell.microbatch,
        cell.configurations,
        cell.device_map.replicas,
        order,
        pitch,
        plan.ends,
        tuple(stage.recompute for stage in plan.stages),
        zero=cell.zero,
        schedule=cell.schedule,
        layer_order=plan.layer_order,
    )


def _place(placement: Placement) -> tuple[object, ...]:
    """Return a placement's place among equals."""
    return (
        placement.device_map.devices_used,
        placement.stages,
        placement.replicas,
        placement.microbatch,
        placement.configurations,
        placement.zero,
        placement.schedule,
        placement.order != "pp-inner",
        placement.pitch,
        _place_of_cuts(placement),
    )


def _place_of_cuts(placement: Placement) -> list[tuple[int, list[int]]]:
    """Return the number of layers before each boundary, and which ones: in one order, its end."""
    layers = range(placement.ends[-1]) if placement.layer_order is None else placement.layer_order
    return [(end, sorted(layers[:end])) for end in placement.ends]


def _confirm(costs: Costs, value_ps: int, winner: Placement | None, optimal: int) -> None:
    """Hold the winner against the evaluator and the whole checker."""
    if winner is None:
        raise ConsistencyError(
            f"brute force: found {optimal} plans of value {value_ps} ps, in none of them has "
            "every stage its fastest mode that fits: please report this problem file"
        )
    evaluation = evaluate(costs, winner)
    violations = check(costs, winner, evaluation)
    if evaluation.value_ps != value_ps or violations:
        raise ConsistencyError(
            f"brute force: values {winner} at {value_ps} ps, the evaluator at "
            f"{evaluation.value_ps} ps, violations {[str(v) for v in violations]}: "
            "please report this problem file"
        )
