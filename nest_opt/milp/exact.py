"""Exact search: the way into the integer program. Pyomo and HiGHS are loaded when it is called."""

from nest_opt.milp.result import ExactSearch, FamilyName, Watch
from nest_opt.plan.evaluate import Costs
from nest_opt.plan.placement import Placement
from nest_opt.plan.progress import Progress
from nest_opt.problem import Problem


def check_request(
    costs: Costs, time_limit_s: float | None, gap: float, family: FamilyName = "aligned"
) -> None:
    """Refuse what `exact` would refuse, before any work is done for it.

    Raises
    ------
    ModelError
        If the problem asks for the artifact's cost model, or the family's
        programs cannot be written for it.
    SolverError
        If a limit is out of range.
    """
    from nest_opt.milp.coefficients import CoefficientSource
    from nest_opt.milp.families import check_family
    from nest_opt.milp.limits import SearchLimits

    SearchLimits(time_limit_s, None, gap)
    CoefficientSource(costs)
    check_family(costs, family)


def exact(
    problem: Problem,
    *,
    start: Placement | None = None,
    time_limit_s: float | None = None,
    node_limit: int | None = None,
    gap: float = 0.0,
    progress: Progress | None = None,
    watch: Watch | None = None,
    family: FamilyName = "aligned",
    costs: Costs | None = None,
) -> ExactSearch:
    """Find the best placement of a family by integer programs.

    Parameters
    ----------
    problem
        The problem.
    start
        A legal placement of the family, as of `solve`: the first incumbent.
    time_limit_s
        Seconds for the whole search.
    node_limit
        Branch-and-bound nodes for the program of each cell.
    gap
        Share of the value by which a plan may be above the bound.
    progress
        Called with (cells done, cells, best value in ps or None), first while
        all cells are bounded, then while they are settled.
    watch
        Called about once a second while the program of a cell runs.
    family
        `aligned`, the device maps of (5) to (7), or `free`, any distinct devices.
    costs
        The problem's costs, if they are not those of its levels: see `pairwise_costs`.

    A KeyboardInterrupt ends the search with incumbent and bound.

    Raises
    ------
    InstanceError
        If the problem has no legal degrees.
    ModelError
        If the problem asks for the artifact's cost model, a constraint has no
        rows, or coefficients are too far apart.
    PlanError
        If `start` is illegal or not of the family.
    SolverError
        If HiGHS fails, or its answer does not stand up to checker and evaluator.
    """
    from nest_opt.milp.driver import search
    from nest_opt.milp.limits import SearchLimits

    limits = SearchLimits(time_limit_s, node_limit, gap)
    return search(costs or Costs(problem), limits, start, progress, watch, family)
