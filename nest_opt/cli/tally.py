"""What an exact search counted, in the words of both kinds of problems."""

from nest_opt.cli.units import count_text, number_text
from nest_opt.milp.result import Tally


def tally_text(tally: Tally, wall_s: float) -> str:
    """Return cells, how bounds and programs settled them, branch-and-bound nodes and seconds."""
    if not tally.cells:
        return f"{number_text(wall_s, 3)} s"
    return (
        f"{count_text(tally.cells, 'cell')}, {tally.cells_pruned:,} pruned, "
        f"{tally.cells_solved:,} solved, {count_text(tally.nodes, 'node')}, "
        f"{number_text(wall_s, 3)} s"
    )
