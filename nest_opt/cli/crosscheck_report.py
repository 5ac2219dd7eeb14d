"""What `crosscheck` prints."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from rich.console import RenderableType
from rich.text import Text

from nest_opt.agreement import CrosscheckResult, Disagreement
from nest_opt.cli.console import printable
from nest_opt.cli.stage_table import facts
from nest_opt.cli.units import count_text

_FACES = {"search": "the rule for the search", "program": "the rows of the program"}


def crosscheck_report(
    results: Mapping[str, CrosscheckResult], written: Path | None
) -> Iterator[RenderableType]:
    """Yield, for each constraint, what was compared and the first disagreement of each face."""
    for name, result in results.items():
        count = len(result.disagreements)
        style = "bold red" if count else "bold green"
        told = count_text(count, "disagreement") if count else "no disagreement"
        yield Text(f"{name}: {told} on {count_text(result.problems, 'problem')}", style=style)
        yield facts(_rows(result))
    if written:
        yield facts({"written": str(written)})


def _rows(result: CrosscheckResult) -> dict[str, str]:
    rows = {
        "plans": f"{count_text(result.feasible, 'problem')} with a plan",
        "binding": f"the best plan of {count_text(result.binding, 'problem')} is another, or gone",
    }
    if not result.binding:
        rows["binding"] += ": agreement says nothing, choose other parameters"
    if result.relaxed:
        rows["relaxed"] = f"{count_text(result.relaxed, 'problem')} without a rule: a bound alone"
    for face, named in _FACES.items():
        of_face = [each for each in result.disagreements if each.face == face]
        if of_face:
            rows[face] = f"{named}: {len(of_face):,} disagree, the first is\n{_first(of_face[0])}"
    return rows


def _first(disagreement: Disagreement) -> str:
    problem = disagreement.problem
    size = (
        f"{count_text(len(problem.model.ids), 'layer')} on "
        f"{count_text(problem.cluster.device_count, 'device')}"
    )
    shrunk = " (shrunk)" if disagreement.original else ""
    return f"{printable(str(disagreement))}\n{size}{shrunk}"
