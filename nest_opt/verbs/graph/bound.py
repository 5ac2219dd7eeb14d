"""Bound all splits of a placement graph from below."""

import time

from nest_opt.certify.scope import uncertifiable
from nest_opt.problem import Problem
from nest_opt.verbs.graph.exact import exact_graph
from nest_opt.verbs.result import VOUCHERS, BoundResult, Progress


def bound_graph(
    problem: Problem,
    *,
    gap: float = 0.0,
    time_limit_s: float | None = None,
    progress: Progress | None = None,
) -> BoundResult:
    """Bound all splits of a placement graph from below, by what `exact_graph` proves.

    There are no certificates of placement graphs. Parameters and errors are
    those of `exact_graph`.
    """
    begin = time.perf_counter()
    found = exact_graph(problem, time_limit_s=time_limit_s, gap=gap, progress=progress)
    return BoundResult(
        family=found.family,
        bound_ps=found.bound_ps,
        value_ps=None if found.evaluation is None else found.evaluation.value_ps,
        voucher=VOUCHERS[found.bound_vouched_by],
        certificate=None,
        complete=found.status in ("optimal", "infeasible"),
        groups=0,
        uncertified=uncertifiable(problem),
        exact_units=found.exact_units,
        wall_s=time.perf_counter() - begin,
    )
