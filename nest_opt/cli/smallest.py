"""The smallest number of devices of a kind of cluster on which something fits.

The diagnosis of a problem on K devices names the least number N of devices on
which any of its cells fits, cells of more than K devices included: those whose
replicas, one stage of each, have room on K. A cell with no such room takes more
than K devices. So where N <= K, N is the least of all; otherwise something fits
on N, and the diagnosis of N devices is exact. Both ends of the answer are then
confirmed by searches of their own.
"""

from collections.abc import Callable
from dataclasses import dataclass

from nest_opt import api
from nest_opt.api import Progress, SolveResult
from nest_opt.dp.sources import cell_source
from nest_opt.dp.staged_infeasible import diagnose_all
from nest_opt.errors import ConsistencyError, InstanceError
from nest_opt.models.cluster_template import ClusterTemplate
from nest_opt.plan.evaluate import Costs
from nest_opt.problem import Problem

ProblemAt = Callable[[int], Problem]

# No more devices than this are tried.
MOST_DEVICES = 2**17
_STEP = 8


@dataclass(frozen=True)
class Smallest:
    """The smallest number of devices.

    Attributes
    ----------
    devices, result
        The number, and the search that found a plan on it.
    below
        The next smaller number that the kind of cluster can have, None if
        there is none.
    below_result, below_error
        The search that found nothing on it; or why there can be no search.
    """

    devices: int
    result: SolveResult
    below: int | None
    below_result: SolveResult | None
    below_error: str | None


@dataclass(frozen=True)
class NothingFits:
    """That nothing fits on any number of devices up to the largest tried: a search of that."""

    result: SolveResult

    @property
    def devices(self) -> int:
        """The largest number tried."""
        return self.result.problem.cluster.device_count


def find_smallest(
    problem_at: ProblemAt, template: ClusterTemplate, progress: Progress | None = None
) -> Smallest | NothingFits:
    """Find the smallest number of devices on which a plan exists.

    Parameters
    ----------
    problem_at
        Returns the problem on a number of devices.
    template
        The kind of cluster, which says what numbers there are.

    Raises
    ------
    InstanceError
        If there is no problem whatever the number of devices.
    ConsistencyError
        If search and diagnosis disagree: a defect.
    """
    most = MOST_DEVICES - MOST_DEVICES % int(template.unit.value)
    devices = _least(problem_at, template, most, progress)
    if devices is None:
        result = _search(problem_at, most, progress)
        _agree(result, None)
        return NothingFits(result)
    below = next_smaller(template, devices)
    below_result = below_error = None
    if below is not None:
        try:
            below_result = _search(problem_at, below, progress)
        except InstanceError as error:
            below_error = str(error)
    result = _search(problem_at, devices, progress)
    for each in (below_result, result):
        if each is not None:
            _agree(each, devices)
    return Smallest(devices, result, below, below_result, below_error)


def next_number(template: ClusterTemplate, at_least: int) -> int:
    """Return the least number of devices of a kind of cluster from `at_least` on."""
    unit = int(template.unit.value)
    return at_least if at_least <= unit else -(-at_least // unit) * unit


def next_smaller(template: ClusterTemplate, devices: int) -> int | None:
    """Return the next smaller number of devices of a kind of cluster, None below 1."""
    unit = int(template.unit.value)
    return (devices - 1 if devices <= unit else devices - unit) or None


def _least(
    problem_at: ProblemAt, template: ClusterTemplate, most: int, progress: Progress | None
) -> int | None:
    """Return the number that diagnoses lead to, None if there is none up to `most`."""
    devices = int(template.unit.value)
    while True:
        problem = problem_at(devices)
        try:
            costs = Costs(problem)
            found = diagnose_all(costs, cell_source(costs), progress)
            if not found.complete:
                raise KeyboardInterrupt
            need = found.devices
        except InstanceError:
            # Degrees that the user fixed may want more devices.
            if devices == most:
                raise
            need = None
        if need is not None and need <= devices:
            return next_number(template, need)
        if devices == most:
            return None
        devices = min(most, next_number(template, need or _STEP * devices))


def _search(problem_at: ProblemAt, devices: int, progress: Progress | None) -> SolveResult:
    result = api.solve_pipeline(problem_at(devices), progress)
    if result.cut_short and result.plan is None:
        raise KeyboardInterrupt
    return result


def _agree(result: SolveResult, least: int | None) -> None:
    """Compare a search with the least number of devices that diagnoses lead to."""
    count = result.problem.cluster.device_count
    if (result.plan is not None) != (least is not None and count >= least):
        found = "no plan" if result.plan is None else "a plan"
        raise ConsistencyError(
            f"the fewest devices on which something fits should be {least or 'none'}, but the "
            f"search finds {found} on {count}: please report this problem"
        )
