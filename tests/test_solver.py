"""The solver boundary: statuses, limits, starts, cutoffs, refusals, canaries for wrong optima."""

import random
import signal
from collections.abc import Callable
from itertools import product
from typing import Any

import highspy
import pyomo.environ as pyo
import pytest

from nest_opt.errors import SolverError
from nest_opt.solver.highs import HighsSession, _dual_bound
from nest_opt.solver.highs import version as highs_version
from nest_opt.solver.options import SolverOptions
from nest_opt.solver.status import SolverProgress, Termination

Model = Any


def knapsack() -> Model:
    """Return a covering model over five binaries; its optimum is 7, from x0 and x3."""
    model: Model = pyo.ConcreteModel()
    model.x = pyo.Var(range(5), domain=pyo.Binary)
    model.cover = pyo.Constraint(expr=sum((i + 3) * model.x[i] for i in range(5)) >= 9)
    model.cost = pyo.Objective(expr=1 + sum((i * i % 7 + 2) * model.x[i] for i in range(5)))
    return model


def market_split(rows: int = 5, columns: int = 40) -> Model:
    """Return a model whose proof takes far more nodes than a test allows."""
    rng = random.Random(7)
    model: Model = pyo.ConcreteModel()
    model.x = pyo.Var(range(columns), domain=pyo.Binary)
    model.over = pyo.Var(range(rows), domain=pyo.NonNegativeReals)
    model.under = pyo.Var(range(rows), domain=pyo.NonNegativeReals)
    weights = [[rng.randint(1, 99) for _ in range(columns)] for _ in range(rows)]
    model.split = pyo.Constraint(
        range(rows),
        rule=lambda m, r: (
            sum(w * m.x[i] for i, w in enumerate(weights[r])) + m.over[r] - m.under[r]
            == sum(weights[r]) // 2
        ),
    )
    model.cost = pyo.Objective(expr=sum(model.over[r] + model.under[r] for r in range(rows)))
    return model


def test_an_optimum_has_value_bound_and_values() -> None:
    """A solve to optimality gives the value, the same bound, and the variables' values."""
    model = knapsack()
    answer = HighsSession(model).solve()
    assert (answer.termination.reason, answer.termination.limit) == ("optimal", None)
    assert answer.solution is not None
    assert answer.solution.objective == answer.report.dual_bound == 7
    chosen = [i for i in range(5) if round(answer.solution.values[model.x[i]])]
    assert chosen == [0, 3]


def test_an_infeasible_model_has_no_solution_and_no_bound() -> None:
    """An infeasible model is called so, without a solution or a bound."""
    model = knapsack()
    for i in range(5):
        model.x[i].fix(0)
    answer = HighsSession(model).solve()
    assert answer.termination.reason == "infeasible"
    assert answer.solution is None
    assert answer.report.dual_bound is None


@pytest.mark.parametrize("cutoff", [0.5, 3, 6.5, 7])
def test_nothing_is_better_than_a_cutoff_at_most_the_optimum(cutoff: float) -> None:
    """A cutoff that the optimum is not below is no infeasibility: nothing is better than it."""
    session = HighsSession(knapsack())
    # A solution that an earlier solve left must not make a difference.
    session.solve()
    answer = session.solve(cutoff=cutoff)
    assert answer.termination.reason == "nothing-better"
    assert answer.solution is None
    assert answer.report.dual_bound is None


@pytest.mark.parametrize("cutoff", [7.5, 8, 100])
def test_a_cutoff_above_the_optimum_leaves_it(cutoff: float) -> None:
    """A cutoff above the optimum changes nothing."""
    answer = HighsSession(knapsack()).solve(cutoff=cutoff)
    assert answer.termination.reason == "optimal"
    assert answer.solution is not None
    assert answer.solution.objective == 7


def test_a_start_is_taken() -> None:
    """HiGHS's log says that it has taken the start, and with which value."""
    model = knapsack()
    answer = HighsSession(model).solve(start=[(model.x[i], 1) for i in range(5)])
    assert "MIP start solution is feasible: objective value is 20" in answer.report.log
    without = HighsSession(model).solve()
    assert "MIP start" not in without.report.log


def test_a_node_limit_keeps_solution_and_bound() -> None:
    """A node limit ends the solve with the best solution so far and a bound below it."""
    answer = HighsSession(market_split()).solve(SolverOptions(node_limit=20))
    assert (answer.termination.reason, answer.termination.limit) == ("feasible", "nodes")
    assert answer.solution is not None
    assert answer.report.dual_bound is not None
    assert answer.report.dual_bound < answer.solution.objective


def test_a_time_limit_of_nothing_keeps_no_solution() -> None:
    """A time limit is told from a node limit, and from infeasibility."""
    answer = HighsSession(market_split()).solve(SolverOptions(time_limit_s=0))
    assert (answer.termination.reason, answer.termination.limit) == ("no-solution", "time")
    assert answer.solution is None


def test_limits_do_not_outlive_their_solve() -> None:
    """A limit or setting of one solve has no effect on the next."""
    session = HighsSession(knapsack())
    limited = session.solve(SolverOptions(node_limit=0, settings={"presolve": "off"}), cutoff=3)
    assert limited.termination.reason != "optimal"
    assert session.solve().termination.reason == "optimal"


def test_no_bound_is_above_the_cutoff() -> None:
    """Solutions above a cutoff were not looked for: what is claimed beyond it is not known."""
    stopped = Termination("no-solution", "time", "kTimeLimit")
    assert _dual_bound(9.0, stopped, 7.0) == 7.0
    assert _dual_bound(5.0, stopped, 7.0) == 5.0
    assert _dual_bound(9.0, stopped, None) == 9.0
    assert _dual_bound(float("inf"), stopped, 7.0) is None
    assert _dual_bound(9.0, Termination("nothing-better", None, "kInfeasible"), 7.0) is None


def test_bounds_may_change_between_solves() -> None:
    """Fixing a variable counts in the next solve, and freeing it in the one after."""
    model = knapsack()
    session = HighsSession(model)
    values = []
    for fixed in (None, 0, None):
        if fixed is None:
            model.x.unfix()
        else:
            model.x[0].fix(fixed)
        answer = session.solve()
        assert answer.solution is not None
        values.append(answer.solution.objective)
    assert values == [7, 8, 7]


def test_an_interrupt_keeps_solution_and_bound() -> None:
    """Ctrl-C while HiGHS runs ends the solve with what it has, and the next solve goes on."""
    session = HighsSession(market_split())
    signals = []

    def press(_: Any) -> None:
        if not signals:
            signals.append(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)

    session._highs._solver_model.cbMipImprovingSolution += press
    # The limit ends the test should the signal be lost.
    answer = session.solve(SolverOptions(node_limit=2000))
    assert signals
    assert (answer.termination.reason, answer.termination.limit) == ("feasible", "interrupt")
    assert answer.solution is not None
    assert answer.report.dual_bound is not None
    assert answer.report.dual_bound <= answer.solution.objective
    assert session.solve(SolverOptions(node_limit=20)).termination.limit == "nodes"


def test_a_running_solve_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Solution, bound and nodes are told while HiGHS branches; they only get better."""
    monkeypatch.setattr("nest_opt.solver.highs.REPORT_S", 0.0)
    session, seen = HighsSession(market_split()), list[SolverProgress]()
    answer = session.solve(SolverOptions(node_limit=500), watch=seen.append)
    assert answer.solution is not None
    assert answer.report.dual_bound is not None
    assert len(seen) >= 5
    assert [each.nodes for each in seen] == sorted(each.nodes for each in seen)
    values = [each.objective for each in seen if each.objective is not None]
    bounds = [each.dual_bound for each in seen if each.dual_bound is not None]
    assert values == sorted(values, reverse=True)
    assert values[-1] >= answer.solution.objective - 1e-6
    assert bounds == sorted(bounds)
    assert 0 <= bounds[-1] <= answer.report.dual_bound + 1e-6
    # The watch of one solve is not that of the next.
    count = len(seen)
    session.solve(SolverOptions(node_limit=20))
    assert len(seen) == count


def test_what_a_watch_raises_ends_the_solve(monkeypatch: pytest.MonkeyPatch) -> None:
    """A KeyboardInterrupt keeps what there is, another exception comes out; both leave no mark."""
    monkeypatch.setattr("nest_opt.solver.highs.REPORT_S", 0.0)
    session = HighsSession(market_split())

    def press(progress: SolverProgress) -> None:
        if progress.objective is not None:
            raise KeyboardInterrupt

    def fail(_: SolverProgress) -> None:
        raise ValueError("of the watch")

    answer = session.solve(SolverOptions(node_limit=2000), watch=press)
    assert (answer.termination.reason, answer.termination.limit) == ("feasible", "interrupt")
    with pytest.raises(ValueError, match="of the watch"):
        session.solve(SolverOptions(node_limit=2000), watch=fail)
    assert session.solve(SolverOptions(node_limit=20)).termination.limit == "nodes"


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"nonsense": 1}, "'nonsense'"),
        ({"presolve": 3}, "'presolve'"),
        ({"mip_heuristic_effort": 7.0}, "'mip_heuristic_effort'"),
        ({"threads": 1}, "a fixed number"),
        ({"time_limit": 1.0}, "time_limit_s"),
        ({"mip_rel_gap": 1.0}, "relative_gap"),
    ],
)
def test_settings_that_highs_does_not_know_are_refused(settings: dict[str, Any], told: str) -> None:
    """Unknown names, values out of range and settings with a field of their own are errors."""
    with pytest.raises(SolverError, match=told):
        HighsSession(knapsack()).solve(SolverOptions(settings=settings))


@pytest.mark.parametrize("field", ["time_limit_s", "node_limit", "relative_gap"])
def test_negative_limits_are_refused(field: str) -> None:
    """A negative limit is an error that names the field."""
    with pytest.raises(SolverError, match=field):
        SolverOptions(**{field: -1})


@pytest.mark.parametrize("coefficient", [1e-8, 1e10])
@pytest.mark.parametrize("where", ["matrix", "objective"])
def test_extreme_coefficients_are_refused(coefficient: float, where: str) -> None:
    """A coefficient beyond the solver's tolerances is an error that names its variable."""
    model = knapsack()
    model.tiny = pyo.Var(bounds=(0, 1))
    if where == "matrix":
        model.row = pyo.Constraint(expr=model.x[0] + coefficient * model.tiny <= 1)
    else:
        model.row = pyo.Constraint(expr=model.x[0] + model.tiny <= 1)
        model.cost.expr += coefficient * model.tiny
    with pytest.raises(SolverError, match=f"{where} coefficient of tiny"):
        HighsSession(model)


@pytest.mark.parametrize("numbers", [(1, 14, 0), (1, 15, 1), (1, 17, 0), (2, 0, 0)])
def test_other_versions_are_refused(
    numbers: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A version of HiGHS that has returned wrong optima, or was not tried, is not used."""
    for name, number in zip(("MAJOR", "MINOR", "PATCH"), numbers, strict=True):
        monkeypatch.setattr(highspy, f"HIGHS_VERSION_{name}", number)
    with pytest.raises(SolverError, match=r"highspy: found version .* pip install"):
        HighsSession(knapsack())


def test_the_version_is_told() -> None:
    """The report carries the version that the package asks for."""
    assert highs_version().startswith("1.16.")
    assert HighsSession(knapsack()).solve().report.version == highs_version()


def test_an_unbounded_model_is_an_error() -> None:
    """A status that settles nothing is neither an optimum nor a limit."""
    model: Model = pyo.ConcreteModel()
    model.x = pyo.Var(range(2))
    model.row = pyo.Constraint(expr=model.x[0] + model.x[1] >= 1)
    model.cost = pyo.Objective(expr=model.x[1])
    with pytest.raises(SolverError, match="settles nothing"):
        HighsSession(model).solve()


# Canaries: models on which HiGHS 1.14.0 called a worse solution optimal, as
# reported at github.com/ERGO-Code/HiGHS under the number in the name (and 651 at
# github.com/PyPSA/linopy). Through this module 1.14.0 fails on 651, 3002 and 3043;
# 3073 and 3094 take their rows in another order to fail.


def canary_651() -> Model:
    """Return a model of optimum 100; 1.14.0 gave 110."""
    model: Model = pyo.ConcreteModel()
    model.x = pyo.Var(range(10), domain=pyo.Binary)
    model.y = pyo.Var(range(10), bounds=(9, None))
    model.row = pyo.Constraint(range(10), rule=lambda m, i: 2 * m.x[i] + m.y[i] >= 10)
    model.cost = pyo.Objective(expr=sum(2 * model.x[i] + model.y[i] for i in range(10)))
    return model


def canary_3002() -> Model:
    """Return a model of optimum 64; 1.14.0 gave 76."""
    model: Model = pyo.ConcreteModel()
    model.x = pyo.Var(bounds=(0, 4))
    model.y = pyo.Var(bounds=(-1, 1))
    model.z = pyo.Var(domain=pyo.NonNegativeIntegers)
    model.first = pyo.Constraint(expr=model.x + model.y <= 5)
    model.second = pyo.Constraint(expr=model.x + model.z >= 10)
    model.third = pyo.Constraint(expr=model.z - model.y == 7.5)
    model.cost = pyo.Objective(expr=model.x + 4 * model.y + 9 * model.z)
    return model


def canary_3043() -> Model:
    """Return a model of optimum 9; 1.14.0 gave 15."""
    model: Model = pyo.ConcreteModel()
    model.x = pyo.Var(bounds=(0, 10))
    model.z = pyo.Var(bounds=(0, 10), domain=pyo.Integers)
    model.row = pyo.Constraint(expr=model.x + model.z >= 4.5)
    model.cost = pyo.Objective(expr=2 * model.x + 3 * model.z)
    return model


def canary_3073() -> Model:
    """Return a model of optimum 0.03; 1.14.0 gave 200.01."""
    model: Model = pyo.ConcreteModel()
    model.gap = pyo.Var(domain=pyo.NonNegativeReals)
    model.t = pyo.Var()
    model.x = pyo.Var(domain=pyo.NonNegativeIntegers)
    model.sum = pyo.Constraint(expr=model.gap + model.x == 3)
    model.above = pyo.Constraint(expr=model.t >= model.x)
    model.below = pyo.Constraint(expr=model.t >= -model.x)
    model.most = pyo.Constraint(expr=model.x <= 3)
    model.least = pyo.Constraint(expr=model.x >= 0.45)
    model.cost = pyo.Objective(expr=100 * model.gap + 0.01 * model.t)
    return model


def canary_3094() -> Model:
    """Return a model of optimum 8000; 1.14.0 gave 10000."""
    model: Model = pyo.ConcreteModel()
    model.x = pyo.Var(range(2), domain=pyo.Binary)
    model.z = pyo.Var(range(2), bounds=(0, 1000))
    model.d = pyo.Var(range(2), bounds=(0, 1000))
    model.link = pyo.Constraint(range(2), rule=lambda m, i: m.z[i] <= 1000 * m.x[i])
    model.balance = pyo.Constraint(range(2), rule=lambda m, i: m.z[i] + m.d[i] == 1000)
    model.one = pyo.Constraint(expr=model.x[0] + model.x[1] <= 1)
    model.cost = pyo.Objective(expr=10 * model.d[0] + 8 * model.d[1])
    return model


@pytest.mark.parametrize(
    ("canary", "optimum"),
    [
        (canary_651, 100),
        (canary_3002, 64),
        (canary_3043, 9),
        (canary_3073, 0.03),
        (canary_3094, 8000),
    ],
)
def test_canaries(canary: Callable[[], Model], optimum: float) -> None:
    """Models on which a released version returned a wrong optimum are solved right."""
    answer = HighsSession(canary()).solve()
    assert answer.termination.reason == "optimal"
    assert answer.solution is not None
    assert answer.solution.objective == pytest.approx(optimum, abs=1e-6)


def random_program(rng: random.Random) -> tuple[list[int], list[int], list[tuple[list[int], int]]]:
    """Return (costs, upper bounds, rows of coefficients with their least value)."""
    count = rng.randint(3, 7)
    upper = [rng.choice((1, 1, 1, 2, 3)) for _ in range(count)]
    point = [rng.randint(0, most) for most in upper]
    rows = []
    for _ in range(rng.randint(2, 6)):
        row = [rng.choice((0, rng.randint(-9, 9), rng.randint(1, 9))) for _ in range(count)]
        reached = sum(a * x for a, x in zip(row, point, strict=True))
        rows.append((row, reached + rng.choice((-3, -1, 0, 0, 1))))
    return [rng.randint(-9, 9) for _ in range(count)], upper, rows


@pytest.mark.parametrize("seed", range(40))
def test_random_programs_against_enumeration(seed: int) -> None:
    """Optimum, infeasibility and the answer under each cutoff are those of enumeration."""
    costs, upper, rows = random_program(random.Random(seed))
    values = [
        sum(c * v for c, v in zip(costs, x, strict=True))
        for x in product(*(range(most + 1) for most in upper))
        if all(sum(a * v for a, v in zip(row, x, strict=True)) >= least for row, least in rows)
    ]
    model: Model = pyo.ConcreteModel()
    places = range(len(costs))
    model.x = pyo.Var(places, domain=pyo.Integers, bounds=lambda _, i: (0, upper[i]))
    model.row = pyo.Constraint(
        range(len(rows)),
        rule=lambda m, r: pyo.inequality(rows[r][1], sum(rows[r][0][i] * m.x[i] for i in places)),
    )
    model.cost = pyo.Objective(expr=sum(costs[i] * model.x[i] for i in places))
    session = HighsSession(model)
    answer = session.solve()
    if not values:
        assert answer.termination.reason == "infeasible"
        return
    optimum = min(values)
    assert answer.solution is not None
    assert answer.solution.objective == pytest.approx(optimum, abs=1e-6)
    for cutoff in (optimum - 7.5, optimum - 0.5, optimum + 0.5, optimum + 7.5):
        cut = session.solve(cutoff=cutoff)
        assert cut.termination.reason == ("optimal" if cutoff > optimum else "nothing-better")
