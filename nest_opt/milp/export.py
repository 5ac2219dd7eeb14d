"""Writing the program of a cell as an LP or MPS file, with the formulation page's names."""

from pathlib import Path
from typing import Any, Literal

from pyomo.opt import ProblemFormat

from nest_opt.errors import ModelError
from nest_opt.milp.bounds import bound_ps
from nest_opt.milp.build import Formulation, build
from nest_opt.milp.cells import ProgramCell
from nest_opt.milp.coefficients import CoefficientSource
from nest_opt.milp.families import FAMILIES
from nest_opt.milp.result import FamilyName
from nest_opt.plan.evaluate import Costs

Format = Literal["lp", "mps"]
_FORMATS = {"lp": ProblemFormat.cpxlp, "mps": ProblemFormat.mps}


def first_cell(costs: Costs, family: FamilyName = "aligned") -> ProgramCell:
    """Return a family's cell with the least closed-form bound, the first that a search would solve.

    Raises
    ------
    ModelError
        If no cell's layers fit the memory.
    """
    source = CoefficientSource(costs)
    bounds = ((bound_ps(source.of(cell)), cell) for cell in FAMILIES[family].cells(costs))
    fitting = [(bound, cell) for bound, cell in bounds if bound is not None]
    if not fitting:
        raise ModelError(
            "no cell to export: found no degrees that the search space and the devices leave and "
            "under which each layer fits the memory, one is needed: see `solve` for what is missing"
        )
    return min(fitting, key=lambda entry: entry[0])[1]


def export(costs: Costs, cell: ProgramCell, path: Path, file_format: Format) -> Formulation:
    """Write the program of a cell.

    Times are in units of a power of ten of picoseconds and sizes of bytes,
    which the returned formulation tells.

    Raises
    ------
    ModelError
        If the file cannot be written.
    """
    formulation = build(costs, CoefficientSource(costs).of(cell))
    write_model(formulation.model, path, file_format)
    return formulation


def write_model(model: Any, path: Path, file_format: Format) -> None:
    """Write a Pyomo model, or raise ModelError if the file cannot be written."""
    try:
        model.write(
            str(path), format=_FORMATS[file_format], io_options={"symbolic_solver_labels": True}
        )
    except OSError as error:
        raise ModelError(f"{path}: cannot be written ({error.strerror}): choose another") from error
