"""What `solve` prints."""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from nest_opt.api import SolveResult
from nest_opt.cli.explain import Failure, failure
from nest_opt.cli.stage_table import (
    LABEL_WIDTH,
    degree_facts,
    facts,
    layers_text,
    stage_table,
)
from nest_opt.cli.units import (
    bytes_text,
    count_text,
    exact_bytes_text,
    gap_text,
    number_text,
    percent_text,
    seconds_text,
)
from nest_opt.cli.value import sequences_per_s
from nest_opt.plan.evaluate import Evaluation, StageEvaluation
from nest_opt.plan.plan import Plan

_JUSTIFY: tuple[Literal["left", "right"], ...] = ("left", "right", "right", "right")
_STYLES = {"optimal": "bold green", "infeasible": "bold red"}


def solve_report(result: SolveResult, output: Path | None) -> Iterator[RenderableType]:
    """Yield the parts of the report on a search."""
    if result.status == "infeasible":
        yield from _infeasible(result, failure(result))
    elif result.plan is None or result.evaluation is None:
        yield Text("interrupted: no plan yet", style="bold")
    else:
        yield from _found(result, result.plan, result.evaluation)
    last = {"search": _search_text(result)}
    if output and result.plan:
        last["written"] = str(output)
    yield facts(last)


def headline(status: str, plan: Plan, evaluation: Evaluation) -> Text:
    """Return status, value, objective and throughput."""
    rate = sequences_per_s(plan, evaluation)
    speed = "a batch takes no time" if rate is None else f"{number_text(rate)} sequences/s"
    text = Text(f"{status}: ", style=_STYLES.get(status, "bold"))
    value = f"{seconds_text(evaluation.value_ps)} per batch (objective {evaluation.objective})"
    return text.append(f"{value}, {speed}", style="bold")


def _found(result: SolveResult, plan: Plan, evaluation: Evaluation) -> Iterator[RenderableType]:
    yield headline(result.status, plan, evaluation)
    rows = {"bound": _bound_text(result), **degree_facts(plan)}
    if result.relaxed:
        rows["left out"] = (
            f"constraints {', '.join(sorted(set(result.relaxed)))} have no rule in the search: "
            "the bound leaves them out"
        )
    yield facts(rows)
    yield stage_table(plan, evaluation)


def _bound_text(result: SolveResult) -> str:
    if result.bound_ps is None or result.gap is None:
        return "none"
    text = f"{seconds_text(result.bound_ps)}, gap {gap_text(result.gap)}"
    if result.gap == 0:
        return f"{text}: no plan of the aligned family is faster"
    return f"{text}: no plan of the aligned family is faster than the bound"


def _search_text(result: SolveResult) -> str:
    return (
        f"{count_text(result.cells, 'cell')}, {result.cells_pruned:,} pruned, "
        f"{number_text(result.wall_s, 3)} s"
    )


def _infeasible(result: SolveResult, why: Failure) -> Iterator[RenderableType]:
    if why.stage is None or why.case is None:
        yield _conflict(why)
        return
    stage, case, k = why.stage, why.case, why.case.configuration
    terms = stage.memory_terms_bytes
    largest = max(terms, key=lambda name: terms[name])
    yield Text.assemble(
        ("infeasible: ", "bold red"),
        (
            f"stage {why.stage_number} of {why.stages} needs "
            f"{exact_bytes_text(stage.memory_bytes)} on each device, but "
            f"{exact_bytes_text(stage.usable_bytes)} are usable; its largest memory term is "
            f"{largest}, {exact_bytes_text(terms[largest])}",
            "bold",
        ),
    )
    sp = "on" if k.sp else "off"
    yield facts(
        {
            "closest": f"microbatch {case.microbatch}, tp {k.tp}, cp {k.cp}, ep {k.ep}, sp {sp}, "
            f"dp {case.replicas}, pp {why.stages}: no plan of the aligned family needs less",
            "stage": f"{why.stage_number}: {layers_text(why.layers)} "
            f"({count_text(len(why.layers), 'layer')}), recompute {stage.recompute}",
        }
    )
    yield _memory_terms(stage)
    yield facts({"to fit": "\n".join(_remedies(result, why))})


def _memory_terms(stage: StageEvaluation) -> Table:
    """Return a table of a stage's memory terms, in bytes and as shares of the usable ones."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold")
    for justify in _JUSTIFY:
        table.add_column(justify=justify, no_wrap=True)
    rows = {**stage.memory_terms_bytes, "sum": stage.memory_bytes, "usable": stage.usable_bytes}
    for place, (name, size) in enumerate(rows.items()):
        table.add_row(
            ("" if place else "memory").ljust(LABEL_WIDTH),
            f"{name} ({stage.in_flight} in flight)" if name == "stash" else name,
            bytes_text(size),
            f"{size:,} bytes",
            percent_text(size, stage.usable_bytes),
        )
    return table


def _conflict(why: Failure) -> Text:
    text = Text("infeasible: ", style="bold red")
    text.append(
        "constraints and search space leave no placement on these devices, whatever their memory",
        style="bold",
    )
    if why.devices is not None:
        more = f"; on {count_text(why.devices, 'device')} in a larger network there is one"
        return text.append(more)
    return text.append("; allow more degrees, or take a constraint away")


def _remedies(result: SolveResult, why: Failure) -> Iterator[str]:
    cluster = result.problem.cluster
    if why.memory_bytes is not None:
        yield (
            f"devices with {exact_bytes_text(why.memory_bytes)} of memory or more instead of "
            f"{bytes_text(cluster.device_kind.memory_bytes)}"
        )
    if why.devices is not None:
        yield (
            f"or {count_text(why.devices, 'device')} or more like these, in a larger network, "
            f"instead of {cluster.device_count:,}"
        )
    else:
        yield "(no number of devices is known to help by itself)"
