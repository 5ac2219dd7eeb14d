"""One small placement graph whose programs have rows of every family; their LP files by family.

    python tests/golden_graphs.py

writes `tests/golden/graph/*.lp` anew. Read the difference before you keep it:
the files are what `docs/placement_graphs.md` says, line by line.
"""

import sys
import tempfile
from pathlib import Path

from golden_models import keep_only

from nest_opt.cost.graph_table import GraphKind, GraphTable
from nest_opt.milp.graph.build import FAMILIES, build
from nest_opt.milp.graph.cells import GraphCell
from nest_opt.milp.graph.parts import parts

GOLDEN = Path(__file__).resolve().parent / "golden" / "graph"

# A host between two accelerators; with the cutoff, and without an order, it is the last.
HOST_BETWEEN, HOST_LAST = (0, 1, 0), (0, 0, 1)
CUTOFF_PS = 300


def golden_table(contiguous: bool = True) -> GraphTable:
    """Return the table: four layers and a backward pass, two accelerators and a host.

    The second layer and its backward pass are one part, and only the host has
    the fourth.
    """
    return GraphTable(
        layers=("first", "second", "third", "fourth", "back"),
        kinds=(
            GraphKind("accelerator", (0, 1), 150, True, (101, 102, 103, None, 105), (60,) * 5),
            GraphKind("host", (2,), 400, False, (310, 320, 330, 40, 350), (0,) * 5),
        ),
        edges=((0, 1), (0, 2), (1, 3), (2, 3), (3, 4)),
        transfer_ps=(11, 12, 13, 14, 0),
        precedence=((0, 1), (0, 2), (1, 3), (2, 3)),
        classes=((1, 4),),
        contiguous=contiguous,
    )


def golden_cell(contiguous: bool = True, cutoff_ps: int | None = None) -> GraphCell:
    """Return the cell whose program the files show."""
    kinds = HOST_BETWEEN if contiguous and cutoff_ps is None else HOST_LAST
    return GraphCell(parts(golden_table(contiguous)), kinds, cutoff_ps)


def golden_files() -> dict[str, tuple[GraphCell, str]]:
    """Return, for each file, the cell and the family that it shows."""
    files = {family: (golden_cell(), family) for family in FAMILIES}
    files["assignment_any"] = (golden_cell(contiguous=False), "assignment")
    # Windows are narrow, and the host takes too long for all but the fourth layer.
    for family in ("assignment", "kinds", "objective"):
        files[f"{family}_cutoff"] = (golden_cell(cutoff_ps=CUTOFF_PS), family)
    return files


def family_lp(cell: GraphCell, family: str) -> str:
    """Return the LP file of the rows of one family, with the objective where that is the family."""
    formulation = build(cell)
    keep_only(formulation, family)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "family.lp"
        formulation.model.write(str(path), io_options={"symbolic_solver_labels": True})
        return path.read_text()


def main() -> int:
    """Write all files."""
    GOLDEN.mkdir(exist_ok=True)
    for name, (cell, family) in golden_files().items():
        (GOLDEN / f"{name}.lp").write_text(family_lp(cell, family))
    return 0


if __name__ == "__main__":
    sys.exit(main())
