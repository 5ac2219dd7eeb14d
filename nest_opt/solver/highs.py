"""HiGHS through Pyomo: hand over, start, limits, statuses.

Facts that this module guards against, each seen on the versions named in
`docs/decisions/0007-solver.md`: unknown options are ignored, a limit raises
unless told otherwise, coefficients far from 1 give wrong optima, the number
of threads must not change within a process, a cutoff below the optimum reads
as infeasible or as a poor optimum, Pyomo's interface has no MIP start, and with
one presolve leads to wrong optima.
"""

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import highspy
import numpy as np
from pyomo.contrib.solver.solvers.highs import Highs

from nest_opt.errors import SolverError
from nest_opt.solver.options import Setting, SolverOptions
from nest_opt.solver.status import (
    Limit,
    Solution,
    SolverAnswer,
    SolverProgress,
    SolverReport,
    Termination,
)

# HiGHS refuses another number later in the same process.
THREADS = 2

# Between two reports of a running solve; HiGHS asks back about as often.
REPORT_S = 1.0

Watch = Callable[[SolverProgress], None]

# Presolve of 1.14.0 and conflict analysis up to 1.15.1 returned wrong optima.
VERSIONS = ((1, 16), (1, 17))

# Nonzero coefficients outside are refused: HiGHS drops those below 1e-9, takes
# bounds above 1e20 for infinite, and costs of 1e-7 gave a wrong optimum.
SMALLEST, LARGEST = 1e-7, 1e9

# Set by this module; a setting of that name would contradict it.
_OWN_SETTINGS = {
    "threads": "a fixed number",
    "time_limit": "time_limit_s",
    "mip_max_nodes": "node_limit",
    "mip_rel_gap": "relative_gap",
    "objective_bound": "the cutoff",
}

_Status = highspy.HighsModelStatus
_LIMITS: dict[Any, Limit] = {
    _Status.kTimeLimit: "time",
    _Status.kSolutionLimit: "nodes",
    _Status.kInterrupt: "interrupt",
}


def version() -> str:
    """Return the version of HiGHS, or raise SolverError if it is not one to trust."""
    numbers = (
        highspy.HIGHS_VERSION_MAJOR,
        highspy.HIGHS_VERSION_MINOR,
        highspy.HIGHS_VERSION_PATCH,
    )
    name = ".".join(map(str, numbers))
    low, high = (".".join(map(str, bound)) for bound in VERSIONS)
    if not VERSIONS[0] <= numbers[:2] < VERSIONS[1]:
        raise SolverError(
            f"highspy: found version {name}, at least {low} and less than {high} is needed "
            "(others have returned wrong optima or were not tried): "
            f"pip install 'highspy>={low},<{high}'"
        )
    return name


class HighsSession:
    """One model in HiGHS, handed over once and solved as often as wanted.

    Between solves only bounds of variables (`fix`, `setlb`, `setub`) may
    change.

    Parameters
    ----------
    model
        A Pyomo model with one objective to minimise.

    Raises
    ------
    SolverError
        If the installed HiGHS is not one to trust, or a coefficient is
        extreme.
    """

    def __init__(self, model: Any) -> None:
        self._version = version()
        self._model = model
        start = time.perf_counter()
        self._highs = Highs()
        _update_only_bounds(self._highs)
        self._highs.set_instance(model)
        self._handover_s = time.perf_counter() - start
        self._interrupted = False
        self._watch: Watch | None = None
        self._next_report_s = 0.0
        self._failure: Exception | None = None
        engine = self._highs._solver_model
        engine.cbMipInterrupt += self._report
        engine.cbMipInterrupt += self._stop_if_interrupted
        engine.cbSimplexInterrupt += self._stop_if_interrupted
        _refuse_extreme(self._highs)

    def solve(
        self,
        options: SolverOptions | None = None,
        *,
        cutoff: float | None = None,
        start: Iterable[tuple[Any, float]] = (),
        watch: Watch | None = None,
    ) -> SolverAnswer:
        """Minimise.

        Parameters
        ----------
        options
            Limits and settings.
        cutoff
            Only solutions of a lower objective are of interest.
        start
            (Variable, value) pairs to start from: at least all integer ones,
            HiGHS completes the rest. Presolve is off then, since HiGHS carries
            a start into the presolved model wrongly and returns wrong optima.
        watch
            Called about once a second while HiGHS branches. What it raises ends
            the solve: a KeyboardInterrupt like Ctrl-C, another exception as itself.

        Raises
        ------
        SolverError
            If HiGHS fails, or does not know an option.
        """
        options = options or SolverOptions()
        settings = _settings(options, cutoff)
        engine = self._highs._solver_model
        # What the last solve found must not serve as a start: it hides a cutoff.
        engine.clearSolver()
        engine.resetOptions()
        if self._set_start(start):
            settings["presolve"] = "off"
        begin = time.perf_counter()
        self._watch, self._failure = watch, None
        self._next_report_s = time.monotonic() + REPORT_S
        with self._interruptible():
            results = self._highs.solve(
                self._model,
                load_solutions=False,
                raise_exception_on_nonoptimal_result=False,
                threads=THREADS,
                rel_gap=options.relative_gap,
                time_limit=options.time_limit_s,
                solver_options=settings,
            )
        elapsed = time.perf_counter() - begin
        if self._failure is not None:
            raise self._failure
        return self._answer(results, cutoff, elapsed)

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        """Let Ctrl-C end the solve with what it has.

        HiGHS calls Python back while it runs; a KeyboardInterrupt raised
        there is a failure to it. So the signal only leaves a mark, and the
        next callback asks HiGHS to stop.
        """
        self._interrupted = False
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def mark(*_: object) -> None:
            self._interrupted = True

        before = signal.signal(signal.SIGINT, mark)
        # Pyomo warns of the status of an interrupted solve, which it has no name for.
        log = logging.getLogger("pyomo.contrib.solver.solvers.highs")
        level = log.level
        log.setLevel(logging.ERROR)
        try:
            yield
        finally:
            log.setLevel(level)
            signal.signal(signal.SIGINT, before)

    def _report(self, event: Any) -> None:
        """Tell who watches; an exception must not reach HiGHS, which cannot pass it on."""
        if self._watch is None or time.monotonic() < self._next_report_s:
            return
        self._next_report_s = time.monotonic() + REPORT_S
        data = event.data_out
        try:
            self._watch(
                SolverProgress(
                    _finite(data.mip_primal_bound),
                    _finite(data.mip_dual_bound),
                    max(0, int(data.mip_node_count)),
                    float(data.running_time),
                )
            )
        except KeyboardInterrupt:
            self._interrupted = True
        except Exception as error:  # Raised again after the solve.
            self._failure, self._interrupted = error, True

    def _stop_if_interrupted(self, event: Any) -> None:
        # Always set: the mark of an earlier solve would stay.
        event.interrupt(self._interrupted)

    def _set_start(self, start: Iterable[tuple[Any, float]]) -> bool:
        """Pass a start on, for which Pyomo has no call; return whether there is one."""
        place = self._highs._pyomo_var_to_solver_var_map
        # A variable that no constraint names was not handed over.
        known = [(place[id(key)], value) for key, value in start if id(key) in place]
        if not known:
            return False
        columns = np.array([column for column, _ in known], dtype=np.int32)
        values = np.array([value for _, value in known], dtype=np.double)
        status = self._highs._solver_model.setSolution(len(known), columns, values)
        if status != highspy.HighsStatus.kOk:
            raise SolverError(
                f"MIP start: HiGHS answers {status.name} to {len(known)} values: "
                "give each variable one finite value"
            )
        return True

    def _answer(self, results: Any, cutoff: float | None, elapsed: float) -> SolverAnswer:
        engine = self._highs._solver_model
        info = engine.getInfo()
        found = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
        if cutoff is not None and info.objective_function_value >= cutoff:
            # With a cutoff below the optimum HiGHS sometimes calls a poor solution optimal.
            found = False
        termination = _termination(engine.getModelStatus(), found, cutoff)
        has_solution = termination.reason in ("optimal", "feasible")
        solution = None
        if has_solution:
            values = results.solution_loader.get_vars()
            solution = Solution(float(info.objective_function_value), values)
        report = SolverReport(
            dual_bound=_dual_bound(results.objective_bound, termination, cutoff),
            nodes=max(0, int(info.mip_node_count)),
            iterations=max(0, int(info.simplex_iteration_count)),
            handover_s=self._handover_s,
            solve_s=elapsed,
            version=self._version,
            log=results.solver_log,
        )
        # The hand-over belongs to the first solve alone.
        self._handover_s = 0.0
        return SolverAnswer(termination, solution, report)


def _finite(number: float) -> float | None:
    return float(number) if np.isfinite(number) else None


def _dual_bound(
    bound: float | None, termination: Termination, cutoff: float | None
) -> float | None:
    """Return a dual bound that says something: finite, and nothing above the cutoff."""
    nothing = termination.reason in ("infeasible", "nothing-better")
    if nothing or bound is None or not np.isfinite(bound):
        return None
    return float(bound) if cutoff is None else min(float(bound), cutoff)


def _update_only_bounds(highs: Any) -> None:
    """Keep Pyomo from comparing the whole model before every solve."""
    updates = highs.config.auto_updates
    for name in (
        "check_for_new_or_removed_constraints",
        "check_for_new_or_removed_vars",
        "check_for_new_or_removed_params",
        "check_for_new_objective",
        "update_constraints",
        "update_parameters",
        "update_named_expressions",
        "update_objective",
    ):
        setattr(updates, name, False)


def _settings(options: SolverOptions, cutoff: float | None) -> dict[str, Setting]:
    """Return the HiGHS options of a solve, each accepted by HiGHS."""
    for name in options.settings:
        if name in _OWN_SETTINGS:
            raise SolverError(
                f"solver setting {name!r}: it is set through {_OWN_SETTINGS[name]}: drop it"
            )
    infinity = highspy.kHighsInf
    settings: dict[str, Setting] = {
        **options.settings,
        # Every solve names these, or the last solve's would stay.
        "objective_bound": infinity if cutoff is None else cutoff,
        "mip_max_nodes": highspy.kHighsIInf if options.node_limit is None else options.node_limit,
        "time_limit": infinity if options.time_limit_s is None else options.time_limit_s,
    }
    scratch = highspy.Highs()  # type: ignore[no-untyped-call]
    scratch.setOptionValue("output_flag", False)
    for name, value in settings.items():
        if scratch.setOptionValue(name, value) != highspy.HighsStatus.kOk:
            raise SolverError(
                f"solver setting {name!r}: HiGHS does not accept {value!r}: "
                "see the list of options in the HiGHS documentation"
            )
    return settings


def _termination(status: Any, found: bool, cutoff: float | None) -> Termination:
    """Return how a solve ended; a status that has no meaning here is an error."""
    detail = status.name
    if status == _Status.kOptimal and found:
        return Termination("optimal", None, detail)
    if status == _Status.kInfeasible and cutoff is None:
        return Termination("infeasible", None, detail)
    if (
        status in (_Status.kInfeasible, _Status.kOptimal, _Status.kObjectiveBound)
        and cutoff is not None
    ):
        return Termination("nothing-better", None, detail)
    if status in _LIMITS:
        return Termination("feasible" if found else "no-solution", _LIMITS[status], detail)
    raise SolverError(
        f"HiGHS ended with status {detail}, which settles nothing: "
        "scale the problem's numbers, or set a limit"
    )


def _refuse_extreme(highs: Any) -> None:
    """Refuse coefficients that the solver's tolerances cannot tell from 0 or from infinity."""
    lp = highs._solver_model.getLp()
    columns = {place: key for key, place in highs._pyomo_var_to_solver_var_map.items()}
    for where, numbers in (("matrix", lp.a_matrix_.value_), ("objective", lp.col_cost_)):
        size = np.abs(np.asarray(numbers, dtype=float))
        bad = np.flatnonzero((size > 0) & ((size < SMALLEST) | (size > LARGEST)))
        if len(bad):
            place = int(bad[0])
            column = _column(lp, place) if where == "matrix" else place
            variable = highs._vars[columns[column]][0].name
            raise SolverError(
                f"{where} coefficient of {variable}: found {size[place]:.3g}, "
                f"{SMALLEST:g} to {LARGEST:g} is allowed, since HiGHS works with tolerances: "
                "merge very small layers with their neighbours, or check the units"
            )


def _column(lp: Any, place: int) -> int:
    """Return the column of the matrix entry at a place."""
    matrix = lp.a_matrix_
    starts = np.asarray(matrix.start_)
    if matrix.format_ == highspy.MatrixFormat.kColwise:
        return int(np.searchsorted(starts, place, side="right")) - 1
    return int(np.asarray(matrix.index_)[place])
