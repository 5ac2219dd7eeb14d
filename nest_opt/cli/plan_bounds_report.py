"""What `verify` prints of bounds: one row a family, with the plan's gap."""

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from nest_opt.cli.bound_report import LEVELS_ALONE, voucher_text
from nest_opt.cli.console import printable
from nest_opt.cli.json_output import Object, time_json
from nest_opt.cli.plan_bounds import PlanBound
from nest_opt.cli.stage_table import facts
from nest_opt.cli.units import gap_text, seconds_text
from nest_opt.plan.gap import Valued, relative_gap


def plan_bounds_report(
    evaluation: Valued | None, bounds: Sequence[PlanBound] | None, on_graph: bool = False
) -> Iterator[RenderableType]:
    """Yield the bounds of a plan, `on_graph` where its network is one; None if it is not legal."""
    if bounds is None or evaluation is None:
        yield Text()
        yield facts({"bounds": "not searched: the plan is not legal, so it has no gap"})
        return
    if not bounds:
        return
    # Without rules, and so without a blank line after it: other parts begin with one.
    table = Table(box=None, pad_edge=False, padding=(0, 2), collapse_padding=True)
    table.add_column("family", no_wrap=True)
    table.add_column("bound", justify="right", no_wrap=True)
    table.add_column("gap", justify="right", no_wrap=True)
    table.add_column("proof by", overflow="fold")
    for bound in bounds:
        table.add_row(bound.family, *_cells(evaluation.value_ps, bound))
    yield Text()
    yield table
    if on_graph:
        yield facts({"costs": LEVELS_ALONE})


def _cells(value_ps: int, bound: PlanBound) -> tuple[str, str, str]:
    if bound.missing is not None:
        return "none", "", printable(bound.missing)
    notes = [_proof_text(bound)]
    if bound.outside is not None:
        notes.append(f"the plan is outside the family: {printable(bound.outside)}")
    gap = relative_gap(value_ps, bound.bound_ps)
    least = "no plan" if bound.bound_ps is None else seconds_text(bound.bound_ps)
    return least, "none" if gap is None else gap_text(gap), "; ".join(notes)


def _proof_text(bound: PlanBound) -> str:
    if bound.certificate is not None:
        return f"{printable(str(bound.certificate))}, checked"
    if bound.voucher is None:
        return ""
    return voucher_text(bound.voucher, bound.exact_units, bound.complete)


def plan_bounds_json(
    evaluation: Valued | None, bounds: Sequence[PlanBound] | None
) -> list[Object] | None:
    """Return the bounds of a plan; None for one that is not legal."""
    if bounds is None or evaluation is None:
        return None
    return [
        {
            "family": bound.family,
            **time_json("bound", bound.bound_ps),
            "plan_gap": relative_gap(evaluation.value_ps, bound.bound_ps),
            "voucher": bound.voucher,
            "certificate": bound.certificate and str(bound.certificate),
            "complete": bound.complete and bound.missing is None,
            "exact_units": bound.exact_units,
            "outside": bound.outside,
            "missing": bound.missing,
        }
        for bound in bounds
    ]
