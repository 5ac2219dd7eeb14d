"""What `bound` prints, and `solve --certify` besides."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from rich.box import SIMPLE_HEAD
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from nest_opt.api import BoundResult, Voucher
from nest_opt.cli.stage_table import facts
from nest_opt.cli.units import (
    count_text,
    exact_seconds_text,
    gap_text,
    number_text,
    seconds_text,
)
from nest_opt.plan.evaluate import evaluated_objective
from nest_opt.problem import Problem
from nest_opt.problem.networks import GraphKind

FAMILIES = {
    "aligned": "stages and replicas at equal steps on the devices",
    "free": "any distinct devices for the ranks of all blocks",
    "contiguous": "stages in an order that the layers allow",
    "any": "any layers on any device",
}
_VOUCHERS = {
    "closed form": "closed-form bounds; no program was run",
    "DP": "the dynamic program",
    "LP dual": "LP duals, evaluated in exact fractions",
    "solver": "the solver, HiGHS",
}
# What bounds of a network that is a graph are about.
LEVELS_ALONE = (
    "those of the graph's levels, which count the worst pair of a group: on its links plans may "
    "take less, or more where transfers meet"
)
# What each proof of a certificate shows of the groups that it settles.
PROOFS = {
    "sum": "the least times of all layers and hops add up to too much",
    "room": "time and memory leave no room for all layers of one type",
    "thresholds": "no stages keep below every threshold on time and sync",
    "chunks": "every way to cut the layers into chunks takes too long",
    "runs": "no stages do, with levels counted by runs of stages",
    "dual": "multipliers of the rows of a linear program prove it",
}


def bound_report(
    problem: Problem,
    result: BoundResult,
    output: Path | None = None,
    about: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[RenderableType]:
    """Yield the parts of the report on a bound; `about` are rows on the problem."""
    yield _headline(problem, result)
    rows = {}
    if result.bound_ps is not None:
        rows["bound"] = exact_seconds_text(result.bound_ps)
    rows["best plan"] = "none known"
    if result.value_ps is not None:
        rows["best plan"] = exact_seconds_text(result.value_ps)
    if result.gap is not None:
        rows["gap"] = gap_text(result.gap)
    rows["family"] = f"{result.family}: {FAMILIES[result.family]}"
    if isinstance(problem.cluster.network, GraphKind):
        rows["costs"] = LEVELS_ALONE
    rows["proof by"] = voucher_text(result.voucher, result.exact_units, result.complete)
    yield facts(rows)
    if result.proofs:
        yield proofs_table(result.proofs)
    last = {**about, "evidence": evidence_text(result)}
    last["search"] = f"{number_text(result.wall_s, 3)} s"
    if output and result.certificate:
        last["written"] = str(output)
    yield facts(last)


def _headline(problem: Problem, result: BoundResult) -> Text:
    noun = family_noun(result.family)
    if result.bound_ps is None:
        return Text.assemble(("infeasible: ", "bold red"), (f"there is no plan: no {noun}", "bold"))
    name = "bound" if result.complete else "bound so far"
    text = Text(f"{name}: ", style="bold green" if result.complete else "bold")
    return text.append(
        f"no {noun} takes less than {seconds_text(result.bound_ps)} per batch (objective "
        f"{evaluated_objective(problem)})",
        style="bold",
    )


def family_noun(family: str) -> str:
    """Return what the members of a family are called."""
    splits = {"contiguous": "contiguous split", "any": "split"}
    return splits.get(family, f"plan of the {family} family")


def voucher_text(voucher: Voucher, exact_units: bool, complete: bool) -> str:
    """Return who vouches for a bound, and how far."""
    text = _VOUCHERS[voucher]
    if not exact_units:
        text += ", up to a relative tolerance of 1e-6"
    return text if complete else f"{text}, cut short: the best bound so far"


def evidence_text(result: BoundResult) -> str:
    """Return what certificate there is, or why the bound is a claim alone."""
    if result.certificate is None:
        why = result.uncertified or "none was asked for"
        return f"no certificate ({why}): the bound is a claim of the package's own"
    return (
        f"a certificate of {count_text(result.groups, 'group')} of cells, "
        f"{count_text(result.certificate.bytes_count, 'byte')}"
    )


def certified_text(result: BoundResult | None, path: Path) -> str:
    """Return what `solve --certify` has proved and written; None: it was cut short before."""
    if result is None:
        return "nothing: interrupted before the proof began"
    if result.certificate is None:
        return evidence_text(result)
    claim = "has no legal plan"
    if result.bound_ps is not None:
        claim = f"has no plan below {exact_seconds_text(result.bound_ps)}"
    so_far = "" if result.complete else ", as far as the proof went before it was cut short"
    return f"the aligned family {claim}{so_far}: {evidence_text(result)}, {path}"


def proofs_table(proofs: Mapping[str, int]) -> RenderableType:
    """Return a table of how many groups each proof settles."""
    table = Table(
        box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1), collapse_padding=True, header_style="bold"
    )
    table.add_column("proof", no_wrap=True)
    table.add_column("groups", justify="right", no_wrap=True)
    table.add_column("what it shows", overflow="fold")
    for name, shown in PROOFS.items():
        if name in proofs:
            table.add_row(name, f"{proofs[name]:,}", shown)
    return table
