"""The best plans beside the best one: each the best of its cell, and no cell is left out."""

import pytest
from random_instances import binding_data, random_artifact_data, random_data
from samples import sample
from seeds import of_all_seeds, thinned

from nest_opt import InstanceError, Problem, solve, verify
from nest_opt.api import MAX_TOP, SolveResult, solve_pipeline
from nest_opt.certify.brute_force import best_of_cells, brute_force
from nest_opt.dp.default_source import DefaultSource
from nest_opt.dp.search import search
from nest_opt.dp.source import Group
from nest_opt.plan.evaluate import Costs
from nest_opt.problem.validation import build

SEEDS = range(60_000, 60_170)


def ranking(problem: Problem, top: int) -> tuple[SolveResult | None, list[object]]:
    """Return the result, and (value, placement) of its plans; None where no degrees are legal."""
    try:
        result = solve_pipeline(problem, top=top)
    except InstanceError:
        return None, []
    return result, [(each.evaluation.value_ps, each.plan.placement()) for each in result.plans]


def differs(problem: Problem, top: int) -> str | None:
    """Return how the search and brute force differ on the best cells, None if they agree."""
    cells = best_of_cells(problem)
    result, found = ranking(problem, top)
    if found != cells[:top]:
        return f"brute force {cells[:top]}, dynamic program {found}"
    if result is None or not cells:
        return None
    rest = cells[top:]
    if len(cells) < top and result.rest_bound_ps is not None:
        return f"{len(cells)} cells have plans, the search says there are more"
    if rest and (result.rest_bound_ps is None or result.rest_bound_ps > rest[0][0]):
        return f"the search says none below {result.rest_bound_ps}, brute force found {rest[0]}"
    return None


@pytest.mark.parametrize("seed", thinned(SEEDS))
def test_the_best_cells_are_those_of_brute_force(seed: int) -> None:
    """Values, placements and their order agree for 2 to 7 plans; no other cell is better."""
    problem = build(Problem, random_data(seed), "problem")
    assert differs(problem, 2 + seed % 6) is None


@of_all_seeds
def test_the_seeds_have_many_cells_and_ties() -> None:
    """Most seeds have more cells than are asked for, some have fewer, and some have equals."""
    more = fewer = equal = 0
    for seed in SEEDS[::5]:
        cells = best_of_cells(build(Problem, random_data(seed), "problem"))
        top = 2 + seed % 6
        more += len(cells) > top
        fewer += 0 < len(cells) < top
        equal += len({value for value, _ in cells[: top + 1]}) < len(cells[: top + 1])
    assert more > 10
    assert fewer > 0
    assert equal > 3


@pytest.mark.parametrize("seed", thinned(range(10)))
def test_the_artifacts_cost_model_ranks_too(seed: int) -> None:
    """The cells of the other cost model agree with brute force."""
    problem = build(Problem, random_artifact_data(seed), "problem")
    assert differs(problem, 4) is None


@pytest.mark.parametrize("kind", ["failure-domains", "power", "degree-limit", "pinned-layers"])
def test_constraints_that_bind_are_kept(kind: str) -> None:
    """Under a constraint that the best plan would break, the ranking agrees with brute force."""
    found = next(data for seed in range(50) if (data := binding_data(kind, seed)))
    assert differs(build(Problem, found, "problem"), 3) is None


def test_one_plan_is_the_best_plan() -> None:
    """Without `top` there is one plan, that of the result; its value bounds all others."""
    problem = sample()
    result = solve(problem)
    assert isinstance(result, SolveResult)
    (only,) = result.plans
    assert (only.plan, only.evaluation) == (result.plan, result.evaluation)
    assert result.rest_bound_ps == only.evaluation.value_ps == brute_force(problem).value_ps


def test_where_stages_may_differ_the_rest_is_bounded_too() -> None:
    """There the one plan's value bounds all others."""
    result = solve_pipeline(sample(search={"per_stage": ["tp"]}))
    (only,) = result.plans
    assert result.rest_bound_ps == result.bound_ps == only.evaluation.value_ps


def test_every_plan_verifies_and_has_its_own_cell() -> None:
    """Each plan stands on its own: legal, its claim right, and its degrees or devices its own."""
    result = solve(sample(), top=12)
    assert isinstance(result, SolveResult)
    assert len(result.plans) == 12
    for each in result.plans:
        verified = verify(each.plan)
        assert not verified.violations
        assert verified.claim_ps == each.evaluation.value_ps
        assert each.free_bytes >= 0
        assert each.peak_bytes == max(stage.memory_bytes for stage in each.evaluation.stages)
    cells = {
        (p.microbatch, p.configurations, p.replicas, p.stages, p.device_map)
        for p in (each.plan.placement() for each in result.plans)
    }
    assert len(cells) == 12


def test_an_interrupt_keeps_what_there_is() -> None:
    """After an interrupt the plans found so far are there, in order, with bounds that hold."""
    problem = sample(layers=6)
    whole = solve_pipeline(problem, top=30)

    def stop(done: int, total: int, value_ps: int | None) -> None:
        if value_ps is not None and done >= 2:
            raise KeyboardInterrupt

    result = solve_pipeline(problem, stop, top=30)
    assert result.status == "interrupted"
    assert 1 <= len(result.plans) < 30
    values = [each.evaluation.value_ps for each in result.plans]
    assert values == sorted(values)
    assert result.bound_ps is not None
    assert result.rest_bound_ps is not None
    assert result.bound_ps <= whole.plans[0].evaluation.value_ps
    found = {each.plan.placement() for each in result.plans}
    others = [v for v, placement in best_of_cells(problem) if placement not in found]
    assert result.rest_bound_ps <= min(others)


class _Stopped(DefaultSource):
    """Cells of which no more than so many bounds are taken before Ctrl-C comes."""

    def __init__(self, costs: Costs, most: int) -> None:
        super().__init__(costs)
        self._left = most

    def refined(self, group: Group, step: int) -> list[Group]:
        if self._left == 0:
            raise KeyboardInterrupt
        self._left -= 1
        return super().refined(group, step)


@pytest.mark.parametrize("top", [1, 3])
@pytest.mark.parametrize("degrees", [{"pp": [2], "dp": [1]}, {"pp": [2]}, {}])
def test_an_interrupt_while_a_bound_is_taken_leaves_its_group_open(
    degrees: dict[str, list[int]], top: int
) -> None:
    """Whichever bound Ctrl-C comes in, the bounds of the search are none above the best cells."""
    space = {"schedule": ["1f1b", "zb-h1"], "zero": [0, 1], **degrees}
    problem = sample(layers=6, search=space)
    cells = best_of_cells(problem)
    stopped = 0
    while True:
        result = search(_Stopped(Costs(problem), stopped), top=top)
        if result.status == "optimal":
            break
        assert result.bound_ps is not None
        assert result.rest_bound_ps is not None
        assert result.bound_ps <= cells[0][0]
        found = {each.placement for each in result.ranking}
        assert result.rest_bound_ps <= min(v for v, each in cells if each not in found)
        stopped += 1
    assert stopped > 1


@pytest.mark.parametrize(
    ("top", "search", "message"),
    [
        (0, {}, "found 0, 1 to 10,000 plans"),
        (MAX_TOP + 1, {}, "found 10001, 1 to 10,000 plans"),
        (2, {"per_stage": ["tp"]}, "found 2 with search.per_stage tp"),
    ],
)
def test_what_cannot_be_ranked_is_refused(
    top: int, search: dict[str, object], message: str
) -> None:
    """A number out of range, and stages that may differ, are refused."""
    with pytest.raises(InstanceError, match=f"top: {message}"):
        solve(sample(search=search), top=top)
