"""Linear programs from arrays: a value, a solution and multipliers.

For programs that are made and solved by the hundred, of which no more is asked; Pyomo would take
longer to build them than HiGHS to solve them.
"""

from dataclasses import dataclass

import highspy
import numpy as np
import numpy.typing as npt
from pyomo.common.tee import capture_output

from nest_opt.errors import SolverError
from nest_opt.solver.highs import THREADS, version

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class LinearProgram:
    """min cost x with low <= x <= high and lower <= A x <= upper, A by columns.

    Entries of column c are those from starts[c] to starts[c + 1]: `rows` says where they are.
    """

    cost: Floats
    low: Floats
    high: Floats
    lower: Floats
    upper: Floats
    starts: npt.NDArray[np.int32]
    rows: npt.NDArray[np.int32]
    values: Floats


@dataclass(frozen=True)
class LinearSolution:
    """What HiGHS says: the least value, where it is, and a multiplier for each row."""

    value: float
    columns: Floats
    multipliers: Floats


def solve_linear(program: LinearProgram) -> LinearSolution:
    """Solve a linear program that has a solution.

    Raises
    ------
    SolverError
        If HiGHS is not one to trust, or does not call its answer optimal.
    """
    version()
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = len(program.cost), len(program.lower)
    lp.col_cost_, lp.col_lower_, lp.col_upper_ = program.cost, program.low, program.high
    lp.row_lower_, lp.row_upper_ = program.lower, program.upper
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_, lp.a_matrix_.index_ = program.starts, program.rows
    lp.a_matrix_.value_ = program.values
    # The first one of a process prints its name, whatever its options.
    with capture_output(capture_fd=True):
        engine = highspy.Highs()  # type: ignore[no-untyped-call]
    engine.setOptionValue("output_flag", False)
    engine.setOptionValue("threads", THREADS)
    for name in ("primal_feasibility_tolerance", "dual_feasibility_tolerance"):
        engine.setOptionValue(name, 1e-9)
    engine.passModel(lp)
    engine.run()
    status = engine.getModelStatus()
    if status != highspy.HighsModelStatus.kOptimal:
        raise SolverError(
            f"linear program: HiGHS ended with status {status.name}: scale its numbers"
        )
    found = engine.getSolution()
    return LinearSolution(
        float(engine.getInfo().objective_function_value),
        np.array(found.col_value),
        np.array(found.row_dual),
    )
