"""The checker: is a placement legal? Apart from whatever found it."""

from collections.abc import Iterator
from itertools import chain, pairwise

from nest_opt.cost.schedule import are_equal_chunks, rounds_per_batch, runs
from nest_opt.cost.sharding import fits_replicas
from nest_opt.plan.evaluate import Costs, Evaluation, evaluate
from nest_opt.plan.placement import Blocks, Placement
from nest_opt.plan.rules import violations_of
from nest_opt.plan.violation import Violation

__all__ = ["Violation", "check"]


def check(
    costs: Costs, placement: Placement, evaluation: Evaluation | None = None
) -> list[Violation]:
    """Return every rule that a placement breaks, in a fixed order.

    `evaluation` may be passed if it was made already. A placement that
    breaks a rule of form (batch, devices) is not evaluated.
    """
    form = check_form(costs, placement)
    if form:
        return form
    evaluation = evaluation or evaluate(costs, placement)
    return list(
        chain(
            _check_memory(evaluation),
            violations_of(costs, placement, evaluation),
        )
    )


def check_form(costs: Costs, placement: Placement) -> list[Violation]:
    """Return what makes a placement no plan to evaluate: batch, degrees, layers and devices."""
    return [
        *_check_batch(costs, placement),
        *_check_degrees(costs, placement),
        *_check_schedule(costs, placement),
        *_check_layers(costs, placement),
        *check_devices(placement.device_map, costs.problem.cluster.device_count),
    ]


def check_claim(evaluation: Evaluation, name: str, value_ps: str) -> list[Violation]:
    """Return a violation if a plan claims another objective or value than it has."""
    found = f"{name} of {int(value_ps)} ps"
    allowed = f"{evaluation.objective} of {evaluation.value_ps} ps"
    if found == allowed:
        return []
    return [
        Violation(
            "claim",
            found,
            f"{allowed} is what the plan evaluates to",
            "drop the claim, or solve again",
        )
    ]


def _check_batch(costs: Costs, placement: Placement) -> Iterator[Violation]:
    job, ep = costs.problem.job, placement.ep
    if rounds_per_batch(job, placement.microbatch, ep, placement.replicas) is None:
        yield Violation(
            "batch",
            f"microbatch * ep * dp = {placement.microbatch * ep * placement.replicas}",
            f"a divisor of the global batch {job.global_batch} is needed",
            "change one of the three, or set job.pad",
        )


def _check_degrees(costs: Costs, placement: Placement) -> Iterator[Violation]:
    """Yield what is wrong with a ZeRO level, or with degrees that differ by stage."""
    allowed = costs.problem.zeros
    if placement.zero not in allowed:
        yield Violation(
            "degrees",
            f"zero {placement.zero}",
            f"{', '.join(map(str, allowed))} is allowed",
            "change it, or add it to search.zero, zero_expert or zero_instances",
        )
    elif not fits_replicas(placement.zero, placement.replicas):
        yield Violation(
            "degrees",
            f"zero {placement.zero}",
            f"instances that divide dp {placement.replicas} are needed",
            "change one of the two",
        )
    free = costs.problem.search.per_stage
    configurations = placement.configurations
    for name in ("tp", "cp", "ep", "sp"):
        values = sorted({getattr(k, name) for k in configurations})
        if len(values) > 1 and name not in free:
            yield Violation(
                "degrees",
                f"{name} of {', '.join(map(str, values))} in the stages",
                f"one {name} for all stages is allowed",
                f"use one {name}"
                + (", or add it to search.per_stage" if name in ("tp", "sp") else ""),
            )
    if costs.problem.model.has_tied and configurations[0].tp != configurations[-1].tp:
        yield Violation(
            "degrees",
            f"tp {configurations[0].tp} in the first stage and {configurations[-1].tp} in the last",
            "one tp is needed for both, whose layers share tied parameters",
            "change one of the two",
        )
    for stage, (here, there) in enumerate(pairwise(configurations)):
        if max(here.tp, there.tp) % min(here.tp, there.tp):
            yield Violation(
                "degrees",
                f"tp {here.tp} in stage {stage} and {there.tp} in stage {stage + 1}",
                "of neighbours one must divide the other",
                "change one of the two",
            )


def _check_layers(costs: Costs, placement: Placement) -> Iterator[Violation]:
    """Yield what is wrong with an order of layers: a stage is the difference of two downsets."""
    order, model = placement.layer_order, costs.problem.model
    if order is None:
        return
    if costs.problem.search.layer_order == "listed":
        yield Violation(
            "layer order",
            "stages that are no runs of the listed order",
            "these alone are allowed",
            "set search.layer_order to any, or move layers",
        )
        return
    if sorted(order) != list(range(len(model.ids))):
        yield Violation(
            "layer order",
            f"places {list(order)}",
            f"each of 0 to {len(model.ids) - 1} is needed once",
            "correct the order",
        )
        return
    for stage, layers in enumerate(placement.stage_layers):
        if list(layers) != sorted(layers):
            yield Violation(
                "layer order",
                f"stage {stage} with layers {', '.join(repr(model.ids[i]) for i in layers)}",
                "the listed order is needed inside a stage",
                "sort them",
            )
    stage_of = {place: s for s, layers in enumerate(placement.stage_layers) for place in layers}
    for edge in model.all_edges:
        source, target = (stage_of[model.index[name]] for name in (edge.source, edge.target))
        if source > target:
            yield Violation(
                "layer order",
                f"edge {edge} from stage {source} to stage {target}",
                "no edge may go to an earlier stage",
                f"move {edge.target!r} to stage {source} or later",
            )


def _check_schedule(costs: Costs, placement: Placement) -> Iterator[Violation]:
    """Yield what is wrong with a schedule, its rounds or its chunks."""
    schedule, allowed = placement.schedule, costs.problem.search.schedules
    if schedule not in allowed:
        yield Violation(
            "schedule",
            str(schedule),
            f"{'; '.join(map(str, allowed))} is allowed",
            "change it, or add it to search.schedule (and its chunks to search.chunks)",
        )
    job, stages = costs.problem.job, placement.stages
    rounds = rounds_per_batch(job, placement.microbatch, placement.ep, placement.replicas)
    if rounds is not None and not runs(schedule, stages, rounds):
        needed = {
            "interleaved": f"2 stages or more and a multiple of {stages} rounds are needed",
            "zb-h1": f"at least {stages} rounds are needed",
        }[schedule.name]
        yield Violation(
            "schedule",
            f"{schedule} with {rounds:,} rounds on {stages} stages",
            needed,
            "change microbatch, dp or the number of stages, or take 1f1b",
        )
    sizes = [high - low for low, high in zip((0, *placement.ends), placement.ends, strict=False)]
    if not are_equal_chunks(sizes, schedule):
        yield Violation(
            "schedule",
            f"chunks of {', '.join(map(str, sizes))} layers",
            "equal ones are needed but for the first and the last",
            "move layers, or take a schedule that is not interleaved",
        )


def check_devices(device_map: Blocks, limit: int) -> Iterator[Violation]:
    """Yield a violation if blocks overlap, or leave a cluster of so many devices."""
    if device_map.devices_used > limit:
        yield Violation(
            "devices",
            f"tp * cp * ep * dp devices of all stages = {device_map.devices_used}",
            f"{limit} devices exist",
            "lower a degree or the number of stages",
        )
        return
    used = sorted(
        device
        for replica in range(device_map.replicas)
        for stage in range(device_map.stages)
        for device in device_map.block(replica, stage)
    )
    if used[-1] >= limit:
        yield Violation(
            "devices",
            f"device {used[-1]} in use",
            f"devices 0 to {limit - 1} exist",
            "lower a degree, the number of stages or the pitch",
        )
    twice = next((device for device, after in pairwise(used) if device == after), None)
    if twice is not None:
        yield Violation(
            "devices",
            f"device {twice} in two blocks",
            "1 block a device is allowed",
            "raise the pitch, or list other devices",
        )


def _check_memory(evaluation: Evaluation) -> Iterator[Violation]:
    for number, stage in enumerate(evaluation.stages):
        if stage.memory_bytes > stage.usable_bytes:
            terms = ", ".join(
                f"{name} {size:,} bytes" for name, size in stage.memory_terms_bytes.items()
            )
            yield Violation(
                "memory",
                f"{stage.memory_bytes:,} bytes on each device of stage {number} ({terms})",
                f"at most {stage.usable_bytes:,} bytes are usable",
                f"free {stage.memory_bytes - stage.usable_bytes:,} bytes: fewer layers in the "
                "stage, recomputation, or higher degrees",
            )
