"""What `check` prints: what is proved, in words for someone who has the file alone."""

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from nest_opt.api import CheckResult
from nest_opt.cli.bound_report import FAMILIES, proofs_table
from nest_opt.cli.console import printable
from nest_opt.cli.stage_table import facts
from nest_opt.cli.units import count_text, exact_seconds_text, number_text


def check_report(result: CheckResult) -> Iterator[RenderableType]:
    """Yield the parts of the report on a certificate that proves its claim."""
    text = Text("proved: ", style="bold green")
    yield text.append(claim_text(result), style="bold")
    name = printable(result.problem_name)
    costs = (
        "rebuilt from the problem: the same"
        if result.recomputed
        else "taken from the certificate; --recompute-costs rebuilds them"
    )
    yield facts(
        {
            "family": f"{result.family}: {FAMILIES[result.family]}",
            # A digest fits a line of 80 columns by itself.
            "problem": f"{name!r}, SHA-256\n{result.problem_sha256}",
            "costs": f"{costs}; SHA-256\n{result.table_sha256}",
            "evidence": f"covers all {count_text(result.groups, 'group')} of cells",
        }
    )
    if result.proofs:
        yield proofs_table(result.proofs)
    yield facts({"checked": f"in {number_text(result.wall_s, 3)} s"})


def claim_text(result: CheckResult) -> str:
    """Return what is proved in one sentence."""
    problem = f"for problem {printable(result.problem_name)!r}"
    if result.least_ps is None:
        return f"the {result.family} family has no legal plan {problem}"
    return (
        f"no legal plan of the {result.family} family {problem} takes less than "
        f"{exact_seconds_text(result.least_ps)} ({result.least_ps:,} ps) per batch by the "
        f"objective {result.objective}"
    )
