"""What commands print of placement graphs: devices in use, their loads and their memory."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from nest_opt.api import GraphExactResult, GraphSolveResult, GraphVerifyResult
from nest_opt.cli.console import printable
from nest_opt.cli.stage_table import facts, layers_text
from nest_opt.cli.tally import tally_text
from nest_opt.cli.units import (
    bytes_text,
    count_text,
    exact_seconds_text,
    gap_text,
    number_text,
    percent_text,
    seconds_text,
    time_text,
)
from nest_opt.cli.verify_report import verdict
from nest_opt.cost.units import PS_PER_S
from nest_opt.plan.gap import relative_gap
from nest_opt.plan.graph_evaluate import GraphEvaluation, GraphStageEvaluation
from nest_opt.plan.graph_plan import GraphPlan
from nest_opt.problem import Problem

_NAME_WIDTH = 25
_VALUE_WIDTH = 9
_NOT_EVALUATED = "not evaluated: the plan's form is broken"
_VOUCHERS = {
    "solver": "the solver, HiGHS",
    "closed form": "closed-form bounds; no program was run",
    "dynamic program": "the dynamic program over downsets; no program was run",
}
_SPLITS = {"contiguous": "contiguous split", "any": "split"}
_WHY_NO_PLAN = {
    "interrupted": "interrupted: no plan yet",
    "no-solution": "no-solution: the time limit came before any plan",
}


def graph_verify_report(result: GraphVerifyResult) -> Iterator[RenderableType]:
    """Yield the parts of the report on a plan: load and memory of every device, term by term."""
    yield from _head(result, _claim(result))
    if result.evaluation:
        yield Text()
        for number, stage in enumerate(result.evaluation.stages):
            yield from _stage_terms(result.plan, number, stage)
            yield Text()
    else:
        yield Text()
    yield from verdict(result.violations)


def graph_show_report(result: GraphVerifyResult) -> Iterator[RenderableType]:
    """Yield the parts of a readable plan."""
    yield from _head(result, {})
    yield graph_stage_table(result.plan, result.evaluation)
    if result.violations:
        yield from verdict(result.violations)


def graph_solve_report(
    result: GraphSolveResult, output: Path | None = None, *, explain: bool = False
) -> Iterator[RenderableType]:
    """Yield the parts of the report on a search, with the terms of every load if asked for."""
    yield from _plan_report(result)
    if explain and result.plan and result.evaluation:
        for number, stage in enumerate(result.evaluation.stages):
            yield from _stage_terms(result.plan, number, stage)
            yield Text()
    rows = {
        "search": f"{count_text(result.downsets, 'downset')} of "
        f"{count_text(result.blocks, 'block')}, {number_text(result.wall_s, 3)} s"
    }
    if output and result.plan:
        rows["written"] = str(output)
    yield facts(rows)


def graph_exact_report(
    result: GraphExactResult, output: Path | None = None
) -> Iterator[RenderableType]:
    """Yield the parts of the report on an exact search."""
    yield from _plan_report(result)
    rows = {
        "solve": _contiguous_text(result),
        "proof by": _voucher_text(result),
        "search": _search_text(result),
    }
    if output and result.plan:
        rows["written"] = str(output)
    yield facts(rows)


def graph_optimum_report(
    verified: GraphVerifyResult, result: GraphExactResult | None
) -> Iterator[RenderableType]:
    """Yield what is known of a plan's distance from the best split."""
    yield Text()
    if result is None or verified.evaluation is None:
        yield facts({"optimum": "not searched: the plan is not legal, so it has no gap"})
        return
    gap = relative_gap(verified.evaluation.value_ps, result.bound_ps)
    best = result.evaluation
    rows = {
        "gap": "none" if gap is None else gap_text(gap),
        "optimum": f"{result.status}, {seconds_text(best.value_ps) if best else 'no plan'}",
        "bound": "none" if result.bound_ps is None else seconds_text(result.bound_ps),
        "proof by": _voucher_text(result),
        "search": _search_text(result),
    }
    yield facts(rows)


def _plan_report(result: GraphExactResult | GraphSolveResult) -> Iterator[RenderableType]:
    """Yield what was found: value, bound, devices and stages, or why there is no plan."""
    if result.obstacle is not None:
        yield Text(f"infeasible: {printable(result.obstacle)}", style="bold red")
    elif result.plan is None or result.evaluation is None:
        yield Text(_WHY_NO_PLAN[result.status], style="bold")
    else:
        yield graph_headline(result.status, result.problem, result.evaluation)
        yield facts({"bound": _bound_text(result), **graph_facts(result.plan)})
        yield graph_stage_table(result.plan, result.evaluation)


def _bound_text(result: GraphExactResult | GraphSolveResult) -> str:
    if result.bound_ps is None or result.gap is None:
        return "none"
    than = "" if result.gap == 0 else " than the bound"
    split = _SPLITS[result.problem.job.split]
    bound = f"{seconds_text(result.bound_ps)}, gap {gap_text(result.gap)}"
    return f"{bound}: no {split} is faster{than}"


def _contiguous_text(result: GraphExactResult) -> str:
    """Return what the dynamic program found first."""
    if result.contiguous_ps is None:
        return "no contiguous split: none fits, too many downsets, or no time"
    return f"contiguous split of {seconds_text(result.contiguous_ps)} by the dynamic program"


def _voucher_text(result: GraphExactResult) -> str:
    text = _VOUCHERS[result.bound_vouched_by]
    return text if result.exact_units else f"{text}, up to a relative tolerance of 1e-6"


def _search_text(result: GraphExactResult) -> str:
    return tally_text(result, result.wall_s)


def _head(result: GraphVerifyResult, claim: dict[str, str]) -> Iterator[RenderableType]:
    if result.evaluation is None:
        yield Text(_NOT_EVALUATED, style="bold red")
    else:
        status = "violations" if result.violations else "legal"
        yield graph_headline(status, result.plan.problem, result.evaluation)
    yield facts({**claim, **graph_facts(result.plan)})


def graph_headline(status: str, problem: Problem, evaluation: GraphEvaluation) -> Text:
    """Return status, value, objective and throughput."""
    rate = batches_per_s(problem, evaluation)
    speed = "a batch takes no time" if rate is None else f"{number_text(rate)} sequences/s"
    text = Text(f"{status}: ", style="bold green" if status == "optimal" else "bold")
    value = f"{seconds_text(evaluation.value_ps)} per batch (objective bottleneck)"
    return text.append(f"{value}, {speed}", style="bold")


def batches_per_s(problem: Problem, evaluation: GraphEvaluation) -> float | None:
    """Return sequences per second: a batch leaves as often as the slowest device is done."""
    if not evaluation.value_ps:
        return None
    return problem.job.global_batch * PS_PER_S / evaluation.value_ps


def graph_facts(plan: GraphPlan) -> dict[str, str]:
    """Return rows on the kind of split and the devices in use."""
    problem = plan.problem
    used = {stage.device for stage in plan.stages}
    counts = [
        f"{len(used.intersection(devices)):,} of {len(devices):,} of kind {printable(name)!r}"
        for name, devices in problem.cluster.devices_by_kind.items()
    ]
    return {"split": problem.job.split, "devices": f"{', '.join(counts)} used"}


def _claim(result: GraphVerifyResult) -> dict[str, str]:
    """Return rows on the value that the file claims and the one found."""
    claim, evaluation = result.plan.objective, result.evaluation
    if evaluation is None:
        return {}
    rows = {"evaluated": f"{exact_seconds_text(evaluation.value_ps)} (bottleneck)"}
    if claim is None:
        return {**rows, "claimed": "nothing"}
    agrees = (claim.name, int(claim.value_ps)) == ("bottleneck", evaluation.value_ps)
    word = "the same" if agrees else "NOT the same"
    return {
        **rows,
        "claimed": f"{exact_seconds_text(int(claim.value_ps))} ({claim.name}): {word}",
    }


def graph_stage_table(plan: GraphPlan, evaluation: GraphEvaluation | None) -> RenderableType:
    """Return a table with one row per stage; without costs where there is no evaluation."""
    table = Table(
        box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1), collapse_padding=True, header_style="bold"
    )
    table.add_column("stage", justify="right", no_wrap=True)
    # Narrow enough to leave `accelerator` whole in 80 columns.
    table.add_column("de-\nvice", justify="right", no_wrap=True)
    table.add_column("kind", overflow="fold")
    table.add_column("lay-\ners", justify="right", no_wrap=True)
    if evaluation:
        for name in ("time of\nlayers", "trans-\nfers", "load", "memory\nused", "of\nusable"):
            table.add_column(name, justify="right", no_wrap=True)
    kind_of = _kind_names(plan.problem)
    for number, stage in enumerate(plan.stages):
        table.add_row(
            str(number),
            str(stage.device),
            printable(kind_of.get(stage.device, "none")),
            f"{len(stage.layers):,}",
            *(_costs(evaluation.stages[number]) if evaluation else ()),
        )
    return table


def _kind_names(problem: Problem) -> dict[int, str]:
    return {
        device: name
        for name, devices in problem.cluster.devices_by_kind.items()
        for device in devices
    }


def _costs(stage: GraphStageEvaluation) -> tuple[str, ...]:
    layers = stage.time_terms_ps["layers"]
    return (
        time_text(layers),
        time_text(stage.time_ps - layers),
        time_text(stage.time_ps),
        bytes_text(stage.memory_bytes),
        percent_text(stage.memory_bytes, stage.usable_bytes),
    )


def _stage_terms(
    plan: GraphPlan, number: int, stage: GraphStageEvaluation
) -> Iterator[RenderableType]:
    names = plan.stages[number].layers
    yield Text(
        f"stage {number}, device {stage.device} of kind {printable(stage.kind)!r}: "
        f"{layers_text(names)} ({_phases_text(plan, stage)})",
        style="bold",
    )
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold")
    rows = [("F, load", time_text(stage.time_ps), "")]
    rows += [(f"  {name}", time_text(value), "") for name, value in stage.time_terms_ps.items()]
    if "sent" not in stage.time_terms_ps:
        rows.append(("  transfers", "-", "this kind does not pay for them"))
    share = percent_text(stage.memory_bytes, stage.usable_bytes)
    note = f"{share} of {bytes_text(stage.usable_bytes)} usable"
    rows.append(("memory", bytes_text(stage.memory_bytes), note))
    for name, value, about in rows:
        style = "" if name.startswith("  ") else "italic"
        table.add_row(
            Text(f"  {name}".ljust(_NAME_WIDTH), style=style),
            Text(value.rjust(_VALUE_WIDTH), style=style),
            about,
        )
    yield table


def _phases_text(plan: GraphPlan, stage: GraphStageEvaluation) -> str:
    counts = Counter(plan.problem.model.phases[layer] for layer in stage.layers)
    if not counts["backward"]:
        return count_text(counts["forward"], "layer")
    return f"{counts['forward']:,} forward and {counts['backward']:,} backward layers"
