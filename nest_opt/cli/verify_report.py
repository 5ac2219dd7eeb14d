"""What `verify` prints: cost and memory of every stage, term by term."""

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from nest_opt.api import VerifyResult
from nest_opt.cli.console import printable
from nest_opt.cli.retiming import retiming_facts
from nest_opt.cli.solve_report import headline
from nest_opt.cli.stage_table import degree_facts, facts, speed_facts
from nest_opt.cli.term_report import term_by_term
from nest_opt.cli.units import count_text, exact_seconds_text
from nest_opt.plan.evaluate import Evaluation
from nest_opt.plan.violation import Violation


def verify_report(result: VerifyResult) -> Iterator[RenderableType]:
    """Yield the parts of the report on a plan."""
    plan, evaluation = result.plan, result.evaluation
    if evaluation is None:
        yield Text("not evaluated: the plan's form is broken", style="bold red")
        yield facts(degree_facts(plan, broken=True))
        yield Text()
    else:
        yield headline("violations" if result.violations else "legal", plan, evaluation)
        yield facts(
            {
                **_claim(result, evaluation),
                **speed_facts(plan, evaluation),
                **degree_facts(plan),
                **retiming_facts(plan, evaluation),
            }
        )
        yield Text()
        yield from term_by_term(plan, evaluation)
        yield Text()
    yield from verdict(result.violations)


def verdict(violations: tuple[Violation, ...]) -> Iterator[RenderableType]:
    """Yield every violation, or the word that there is none."""
    if not violations:
        yield Text("legal: no violation found", style="bold green")
        return
    yield Text(f"{count_text(len(violations), 'violation')}:", style="bold red")
    for violation in violations:
        yield facts(
            {
                violation.rule: f"found {printable(violation.found)}\n"
                f"{printable(violation.allowed)}\n{printable(violation.remedy)}"
            }
        )


def _claim(result: VerifyResult, evaluation: Evaluation) -> dict[str, str]:
    """Return rows on the value that the file claims and the one found."""
    claim = result.plan.objective
    found = f"{exact_seconds_text(evaluation.value_ps)} ({evaluation.objective})"
    if claim is None:
        return {"evaluated": found, "claimed": "nothing"}
    value = int(claim.value_ps)
    agrees = value == evaluation.value_ps and claim.name == evaluation.objective
    word = "the same" if agrees else "NOT the same"
    return {
        "evaluated": found,
        "claimed": f"{exact_seconds_text(value)} ({claim.name}): {word}",
    }
