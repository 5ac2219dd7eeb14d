"""Solve every instance of the paper's models and write docs/paper_plans.md.

    python benchmarks/paper_plans.py --write
    python benchmarks/paper_plans.py          (prints the table)

Each row says what changes if one degree of the plan is halved or doubled.
"""

from collections.abc import Iterator
from pathlib import Path

import click
from paper_instances import DEVICES, FOLDER, GLOBAL_BATCH, SEQUENCE_LENGTHS

from nest_opt import Plan, Problem, SolveResult, solve
from nest_opt.models.request import Request, derive_problem
from nest_opt.plan.utilisation import model_utilisation
from nest_opt.problem.files import read_problem

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "paper_plans.md"
OUTSIDE = "<!-- outside -->\n"
MARKER = "<!-- table -->\n"


def alternatives(problem: Problem, best: SolveResult, degree: str, value: int) -> Iterator[str]:
    """Yield what halving and doubling one degree would cost."""
    assert best.evaluation is not None
    for other in (value // 2, value * 2):
        known = getattr(problem.search, degree)
        if other < 1 or other == value or (known and other not in known):
            continue
        if degree == "pp" and other > len(problem.model.ids):
            continue
        search = problem.search.model_copy(update={degree: (other,)})
        result = solve(problem.model_copy(update={"search": search}))
        if result.evaluation is None:
            yield f"{other} does not fit"
        else:
            more = result.evaluation.value_ps / best.evaluation.value_ps - 1
            yield f"{other} is {100 * more:.1f}% slower"


def reason(problem: Problem, best: SolveResult) -> str:
    """Return the sentence on why a plan is as it is."""
    assert best.plan is not None
    assert best.evaluation is not None
    plan = best.plan
    parts = []
    degrees = {"tp": plan.tp, "pp": len(plan.stages), "ep": plan.ep}
    for degree, value in degrees.items():
        others = list(alternatives(problem, best, degree, value))
        if others:
            parts.append(f"{degree} {value}: " + ", ".join(others))
    fullest = max(stage.memory_bytes / stage.usable_bytes for stage in best.evaluation.stages)
    return "; ".join(parts) + f"; fullest stage at {100 * fullest:.0f}% of its memory."


def is_outside(line: str) -> bool:
    """Whether a row's utilisation is outside 30 to 65%."""
    shares = [
        int(cell.strip(" |%")) for cell in line.split(" | ") if cell.strip(" |").endswith("%")
    ]
    return any(not 30 <= share <= 65 for share in shares)


def degrees_text(plan: Plan) -> str:
    """Return a plan's degrees in short."""
    repeat = sum(stage.recompute != "none" for stage in plan.stages)
    text = (
        f"b {plan.microbatch}, tp {plan.tp}{' sp' if plan.sp else ''}, ep {plan.ep}, dp {plan.dp}, "
        f"pp {len(plan.stages)}, {plan.order}"
    )
    return text + (f", {repeat} stages recompute" if repeat else "")


def row(path: Path) -> str:
    """Return one row of the table."""
    problem = read_problem(path)
    best = solve(problem)
    if best.plan is None or best.evaluation is None:
        return f"| {path.stem} | infeasible | | | |"
    plan, devices = best.plan, problem.cluster.device_count
    share = model_utilisation(problem, best.evaluation.value_ps, devices)
    degrees = degrees_text(plan)
    seconds = best.evaluation.value_ps / 1e12
    utilisation = "" if share is None else f"{100 * share:.0f}%"
    return (
        f"| {path.stem} | {degrees} | {seconds:.3f} s | {utilisation} | {reason(problem, best)} |"
    )


def a100_row(model: str, length: int, devices: int) -> str:
    """Return a row for a model on A100s, which the paper has not."""
    request = Request(
        model=model,
        cluster="dgx-a100",
        devices=devices,
        global_batch=GLOBAL_BATCH,
        sequence_length=length,
    )
    problem = derive_problem(request).problem
    best = solve(problem)
    if best.plan is None or best.evaluation is None:
        return f"| {model} | {devices} | infeasible | | |"
    share = model_utilisation(problem, best.evaluation.value_ps, devices)
    seconds = best.evaluation.value_ps / 1e12
    return (
        f"| {model} | {devices} | {degrees_text(best.plan)} | {seconds:.3f} s "
        f"| {'' if share is None else f'{100 * share:.0f}%'} |"
    )


@click.command()
@click.option("--write", is_flag=True, help="Write the page's table.")
def main(write: bool) -> None:
    """Solve all instances and print or write the table."""
    outside = []
    lines = ["| instance | plan | batch time | utilisation | why |", "|---|---|---|---|---|"]
    paths = sorted(
        FOLDER.glob("*.json"),
        key=lambda path: (*path.stem.rpartition("-")[:1], int(path.stem.rpartition("-")[2])),
    )
    for path in paths:
        lines.append(row(path))
        click.echo(lines[-1])
        if is_outside(lines[-1]):
            outside.append(f"`{path.stem}`")
    lines += ["", "## On A100", "", "The same models on a DGX A100 SuperPOD.", ""]
    lines += ["| model | devices | plan | batch time | utilisation |", "|---|---|---|---|---|"]
    for model, length in sorted(SEQUENCE_LENGTHS.items()):
        for devices in DEVICES:
            lines.append(a100_row(model, length, devices))
            click.echo(lines[-1])
            if is_outside(lines[-1]):
                outside.append(f"`{model}-dgx-a100-{devices}`")
    if write:
        head = PAGE.read_text().partition(OUTSIDE)[0]
        named = f"{OUTSIDE}\nOutside 30 to 65%: {', '.join(outside)}.\n\n"
        PAGE.write_text(head + named + MARKER + "\n" + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
