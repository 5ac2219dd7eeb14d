"""What `improve` prints: single changes, the way that they make, and what each saves."""

from collections.abc import Iterator

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from nest_opt.api import RankedPlan
from nest_opt.cli.console import printable
from nest_opt.cli.explain import failure
from nest_opt.cli.plan_table import plan_table
from nest_opt.cli.problem_summary import derived_facts
from nest_opt.cli.solve_report import headline, infeasible_report
from nest_opt.cli.stage_table import degrees_text, facts, placement_text
from nest_opt.cli.term_table import term_cells, term_table
from nest_opt.cli.units import bytes_text, change_text, gap_text, number_text, seconds_text
from nest_opt.cli.verify_report import verdict
from nest_opt.improvement import Change, Given, Improvement, Move
from nest_opt.improvement.dimensions import BOUNDARIES, BY_NAME
from nest_opt.models.request import DerivedProblem

_STEPS = ("first", "then")


def improvement_report(
    found: Improvement, derived: DerivedProblem | None = None
) -> Iterator[RenderableType]:
    """Yield the parts of the report on a configuration and what to change of it."""
    yield from _given(found)
    if any(each.helps for each in found.changes):
        yield _changes(found)
    elif found.changes:
        yield Text()
    rows = _no_gain(found)
    if rows:
        yield facts(rows)
    if found.path:
        yield Text()
        yield _path(found)
    if found.path or found.rest:
        yield _terms(found)
    about = {} if derived is None else derived_facts(derived)
    yield facts({**_optimum(found), **about, "search": _search_text(found)})


def _given(found: Improvement) -> Iterator[RenderableType]:
    """Yield the configuration's value, or why it has none."""
    given = found.given
    plan = given.configuration.plan
    rows = {"held": _held_text(given)}
    if plan is not None:
        yield headline("given", plan.plan, plan.evaluation)
        yield facts(
            {
                **rows,
                "degrees": degrees_text(plan.plan),
                "placement": placement_text(plan.plan),
                "memory": _memory_text(plan),
            }
        )
        return
    if given.search and given.search.status == "infeasible":
        yield from infeasible_report(given.search, failure(given.search))
    elif given.violations:
        yield from verdict(given.violations)
    else:
        yield Text(f"infeasible: {printable(str(given.refusal))}", style="bold")
    yield facts(rows)


def _held_text(given: Given) -> str:
    """Return what is held, and so changed one by one."""
    held = given.configuration.held
    return ", ".join(f"{name} {BY_NAME[name].text(held[name])}" for name in BY_NAME if name in held)


def _memory_text(plan: RankedPlan) -> str:
    usable = plan.peak_bytes + plan.free_bytes
    return f"{bytes_text(plan.free_bytes)} of {bytes_text(usable)} free on the fullest stage"


def _changes(found: Improvement) -> RenderableType:
    """Return a table of the single changes that help."""
    table = plan_table()
    table.add_column("one change", overflow="fold")
    _add_columns(table, "per batch", "saves", "gain", "mostly", "devices", "least\nfree")
    shown: list[tuple[Move, ...]] = []
    for each in found.changes:
        # What one dimension reaches, another may as well by taking it along.
        if each.plan is not None and each.helps and each.moves not in shown:
            shown.append(each.moves)
            value, saves, gain, _, devices, free = _cells(found, each, each.plan)
            table.add_row(_moves_text(each), value, saves, gain, _mostly(each), devices, free)
    return table


def _mostly(each: Change) -> str:
    """Return the term of the batch time that shrinks most."""
    changes = each.term_changes_ps or {}
    return min(changes, key=lambda name: changes[name], default="")


def _add_columns(table: Table, *names: str) -> None:
    for name in names:
        table.add_column(name, justify="right", no_wrap=name != "mostly")


def _cells(found: Improvement, each: Change, plan: RankedPlan) -> list[str]:
    closed = found.closed(each)
    return [
        seconds_text(plan.evaluation.value_ps),
        "" if each.gain_ps is None else _time_text(each.gain_ps),
        "" if each.gain is None else gap_text(each.gain),
        "" if closed is None else f"{100 * closed:.1f}%",
        f"{plan.plan.placement().device_map.devices_used:,}",
        bytes_text(plan.free_bytes),
    ]


def _time_text(picoseconds: int) -> str:
    """Return seconds in few digits."""
    return f"{number_text(picoseconds / 10**12, 4)} s"


def _moves_text(each: Change) -> str:
    """Return what is changed, and in brackets what else is best then."""
    # Boundaries that nobody stated follow nearly every change, others that of S.
    along = [str(move) for move in each.follows if move.dimension != BOUNDARIES]
    moved = {move.dimension for move in each.moves}
    left_out = BOUNDARIES if "pp" in moved else None
    text = ", ".join(str(move) for move in each.moves if move.dimension != left_out)
    # Of a plan that is wrong in its claim alone.
    text = text or "none"
    return f"{text} ({', '.join(along)})" if along else text


def _no_gain(found: Improvement) -> dict[str, str]:
    """Return rows on single changes that gain nothing, or have no plan."""
    rows = {
        "no gain": [c for c in found.changes if c.plan is not None and not c.helps],
        "no plan": [c for c in found.changes if c.plan is None],
    }
    texts = {
        name: ", ".join(" for ".join(each.released) for each in changes)
        for name, changes in rows.items()
    }
    return {name: text for name, text in texts.items() if text}


def _path(found: Improvement) -> RenderableType:
    table = plan_table()
    table.add_column("step", no_wrap=True)
    table.add_column("change", overflow="fold")
    _add_columns(table, "per batch", "saves", "gain", "of the\ngap", "devices", "least\nfree")
    for number, each in enumerate(found.path):
        if each.plan is not None:
            table.add_row(_step(number), _moves_text(each), *_cells(found, each, each.plan))
    return table


def _step(number: int) -> str:
    return _STEPS[min(number, 1)]


def _terms(found: Improvement) -> RenderableType:
    """Return a table of the batch time by terms, before and after each step."""
    table = term_table()
    plan = found.given.configuration.plan
    if plan is not None:
        table.add_row("given", *term_cells(plan.evaluation))
    for number, each in enumerate(found.path):
        if each.plan is not None:
            table.add_row(_step(number), *term_cells(each.plan.evaluation))
    if found.rest is not None and found.rest.plan is not None:
        table.add_row("optimum", *term_cells(found.rest.plan.evaluation))
    return table


def _optimum(found: Improvement) -> dict[str, str]:
    """Return rows on the optimum, and on what differs from the end of the path."""
    best = found.optimum
    if best is None or best.evaluation is None or best.plan is None:
        ended = found.status == "infeasible"
        return {"optimum": "no plan of the search space fits" if ended else "not known yet"}
    value = best.evaluation.value_ps
    text = f"{seconds_text(value)}, {degrees_text(best.plan)}"
    if found.gap_ps is not None and found.before_ps:
        text += f": {change_text(-found.gap_ps / found.before_ps)} of the batch time given"
    rows = {"optimum": text}
    if found.status == "interrupted":
        rows["end"] = "interrupted: there may be better changes"
    elif found.rest is not None:
        fits = found.path or found.before_ps is not None
        told = "no single change gains any more" if fits else "no two changes make it fit"
        rows["further"] = f"{told}; the optimum differs in {_moves_text(found.rest)}"
    elif not found.path:
        rows["further"] = "nothing: the configuration is an optimum"
    return rows


def _search_text(found: Improvement) -> str:
    noun = "search" if found.searches == 1 else "searches"
    return f"{found.searches:,} {noun} beside the optimum's, {number_text(found.wall_s, 3)} s"
