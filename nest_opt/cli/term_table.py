"""A table of batch times by causes, one plan a row."""

from rich.table import Table

from nest_opt.cli.plan_table import plan_table
from nest_opt.cli.units import number_text
from nest_opt.improvement import batch_terms
from nest_opt.improvement.terms import TERMS
from nest_opt.plan.evaluate import Evaluation

_HEADS = {
    "recomputation": "recom-\npute",
    "collectives": "collec-\ntives",
    "sharded parameters": "sharded",
}


def term_table() -> Table:
    """Return an empty table: a column for the plan's name, and one for each cause."""
    table = plan_table()
    table.add_column("per batch, in s", overflow="fold")
    for name in TERMS:
        table.add_column(_HEADS.get(name, name), justify="right", no_wrap=True)
    return table


def term_cells(evaluation: Evaluation) -> list[str]:
    """Return the seconds of each cause."""
    return [
        number_text(time_ps / 10**12) if time_ps else "0"
        for time_ps in batch_terms(evaluation).values()
    ]
