"""A plan in a few lines: its degrees, and a table of its stages."""

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise

from rich.box import SIMPLE_HEAD
from rich.console import RenderableType
from rich.table import Table

from nest_opt.cli.console import printable
from nest_opt.cli.units import bytes_text, count_text, percent_text, time_text
from nest_opt.cli.value import utilisation
from nest_opt.cost.schedule import rounds_per_batch
from nest_opt.plan.evaluate import Evaluation, StageEvaluation
from nest_opt.plan.plan import Plan
from nest_opt.problem import Configuration
from nest_opt.problem.schedule import ONE_F_ONE_B
from nest_opt.problem.zero import NOT_SHARDED, Zero, zero_of

# Equal widths line up grids that follow each other.
LABEL_WIDTH = 9


def facts(rows: dict[str, str]) -> RenderableType:
    """Return names and what is to be said of them, as two columns."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True, style="bold")
    grid.add_column(overflow="fold")
    for name, text in rows.items():
        grid.add_row(name.ljust(LABEL_WIDTH), text)
    return grid


def degree_facts(plan: Plan, broken: bool = False) -> dict[str, str]:
    """Return rows on a plan's degrees, placement and devices.

    `broken` says that its blocks may overlap or leave the cluster.
    """
    device_map = plan.placement().device_map
    total = plan.problem.cluster.device_count
    usable = plan.problem.cluster.device_kind.usable_bytes
    used = device_map.devices_used
    count = f"{used:,} of {total:,} used, {total - used:,} idle"
    if broken:
        count = f"blocks for {used:,} where there are {total:,}"
    return {
        "degrees": degrees_text(plan),
        "batch": batch_text(plan),
        "placement": placement_text(plan),
        "devices": f"{count}; {bytes_text(usable)} of memory usable on each",
    }


def placement_text(plan: Plan) -> str:
    """Return rank order, pitch and block size of a plan in one line."""
    order = "devices listed block by block"
    if plan.pitch is not None:
        order = f"rank order {plan.order}, pitch {count_text(plan.pitch, 'device')}"
    sizes = sorted({k.block_size for k in plan.configurations})
    if len(sizes) > 1:
        return f"{order}, blocks of {sizes[0]} to {sizes[-1]} devices"
    return f"{order}, blocks of {count_text(sizes[0], 'device')}"


def speed_facts(plan: Plan, evaluation: Evaluation) -> dict[str, str]:
    """Return a row on the share of the devices' peak, where FLOPs and peak are stated."""
    share = utilisation(plan, evaluation)
    if share is None:
        return {}
    return {
        "of peak": f"{100 * share:.1f}% of the FLOP/s of the devices used (model FLOPs: "
        "recomputation does not count)"
    }


def degrees_text(plan: Plan) -> str:
    """Return the degrees of a plan in one line."""
    shape = shape_text(plan.microbatch, plan.configurations, plan.dp, zero_of(plan.zero))
    schedule = plan.placement().schedule
    return shape + (f", schedule {schedule}" if schedule != ONE_F_ONE_B else "")


def shape_text(
    microbatch: int, stages: Sequence[Configuration], replicas: int, zero: Zero = NOT_SHARDED
) -> str:
    """Return degrees in one line: b, the configuration of each stage, d; z where it is above 0."""
    tp = by_stage([str(k.tp) for k in stages])
    sp = by_stage(["on" if k.sp else "off" for k in stages])
    return (
        f"microbatch {microbatch}, tp {tp}, cp {stages[0].cp}, ep {stages[0].ep}, sp {sp}, "
        f"dp {replicas}, pp {len(stages)}" + (f", zero {zero}" if zero else "")
    )


def by_stage(values: list[str]) -> str:
    """Return the value that all stages share, or all values from the first stage to the last."""
    return values[0] if len(set(values)) == 1 else "/".join(values)


def batch_text(plan: Plan) -> str:
    """Return how the global batch is divided."""
    job = plan.problem.job
    batch = f"{count_text(job.global_batch, 'sequence')} per batch"
    rounds = rounds_per_batch(job, plan.microbatch, plan.ep, plan.dp)
    if rounds is None:
        return batch
    padded = " (padded)" if rounds * plan.microbatch * plan.ep * plan.dp > job.global_batch else ""
    noun = "microbatch" if rounds == 1 else "microbatches"
    return f"{batch}, m = {rounds:,} {noun} per pipeline{padded}"


# Runs of the listed order that a stage's layers are told by.
MOST_RUNS = 4


def layers_text(
    names: Sequence[str],
    chunks: Sequence[int] | None = None,
    index: Mapping[str, int] | None = None,
) -> str:
    """Return the first and the last of a stage's layers, of each of its chunks, or of each run.

    Runs are those of the listed order, if the places in it are given; more than
    `MOST_RUNS` are cut short.
    """
    if chunks is not None:
        ends = list(accumulate(chunks, initial=0))
        return ", ".join(layers_text(names[low:high]) for low, high in pairwise(ends))
    starts = [0]
    if index is not None:
        steps = enumerate(pairwise(index[name] for name in names), start=1)
        starts += [place for place, (before, after) in steps if after != before + 1]
    runs = [names[low:high] for low, high in pairwise([*starts, len(names)])]
    texts = [
        " .. ".join(printable(name) for name in (run if len(run) == 1 else (run[0], run[-1])))
        for run in runs[:MOST_RUNS]
    ]
    return ", ".join(texts) + (", ..." if len(runs) > MOST_RUNS else "")


def devices_text(block: Sequence[int]) -> str:
    """Return a block's devices, in the order of ranks; runs by their ends."""
    runs: list[list[int]] = []
    for device in block:
        if runs and device == runs[-1][-1] + 1:
            runs[-1].append(device)
        else:
            runs.append([device])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def stage_table(plan: Plan, evaluation: Evaluation | None) -> RenderableType:
    """Return a table with one row per stage; without costs where there is no evaluation."""
    device_map, index = plan.placement().device_map, plan.problem.model.index
    table = Table(
        box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1), collapse_padding=True, header_style="bold"
    )
    table.add_column("stage", justify="right", no_wrap=True)
    table.add_column("layers (count)", overflow="fold")
    table.add_column("devices,\nreplica 0", no_wrap=True)
    table.add_column("recom-\npute", no_wrap=True)
    if evaluation:
        table.add_column("time per\nmicrobatch", justify="right", no_wrap=True)
        table.add_column("sync per\nbatch", justify="right", no_wrap=True)
        table.add_column("memory\nused", justify="right", no_wrap=True)
        table.add_column("of\nusable", justify="right", no_wrap=True)
    for number, stage in enumerate(plan.stages):
        table.add_row(
            str(number),
            f"{layers_text(stage.layers, stage.chunks, index)} ({len(stage.layers):,})",
            devices_text(device_map.block(0, number)),
            stage.recompute,
            *(_costs(evaluation.stages[number]) if evaluation else ()),
        )
    return table


def _costs(stage: StageEvaluation) -> tuple[str, ...]:
    return (
        time_text(stage.time_ps),
        time_text(stage.sync_ps),
        bytes_text(stage.memory_bytes),
        percent_text(stage.memory_bytes, stage.usable_bytes),
    )
