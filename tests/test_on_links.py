"""Plans ranked by what they take on the links of their network."""

import json
from pathlib import Path
from typing import Any

import pytest
from cli_running import run, run_json
from test_planned_networks import DRAGONFLY, GRAPH, RAILS, TORUS, on
from test_retime import oversubscribed

from nest_opt import InstanceError, Problem, SolveResult, bound, exact, solve, verify
from nest_opt.network import planned_levels
from nest_opt.network.planned import link_graph, with_traffic
from nest_opt.plan.retime import retime_plan
from nest_opt.problem.files import to_json_text
from nest_opt.verbs.pipeline import on_links
from nest_opt.verbs.pipeline.on_links import plans_timed, solve_on_links
from nest_opt.verbs.pipeline.solve import solve_pipeline

# Replicas far apart share a link that the levels for rings know nothing of.
SLOW = {
    **DRAGONFLY,
    **{"groups": 3, "routers": 2, "devices": 2},
    "global_link": {"bandwidth_bytes_per_s": 2e9, "latency_s": 1e-6},
}
KINDS: list[Any] = [TORUS, DRAGONFLY, RAILS, GRAPH, SLOW]


def problem_on(network: Any, **parts: Any) -> Problem:
    """Return a small problem on a network of 8 or 12 devices, of few microbatches."""
    devices = 12 if network is SLOW else 8
    return on(network, devices, global_batch=16, memory_bytes=10**9, **parts)


def on_links_ps(result: SolveResult) -> int:
    """Return what the plan of a result takes on its links, timed anew."""
    assert result.plan is not None
    found = retime_plan(result.plan, verify(result.plan).evaluation)  # type: ignore[arg-type]
    assert found is not None
    return found.value_ps


@pytest.mark.parametrize("network", KINDS, ids=["torus", "dragonfly", "rails", "graph", "slow"])
def test_never_worse_on_links_than_the_best_by_levels(network: Any) -> None:
    """The plan is legal, the best of those timed, and no slower on links than that by levels."""
    problem = problem_on(network)
    levels, result = solve_pipeline(problem), solve(problem)
    assert isinstance(result, SolveResult)
    assert result.links is not None
    assert result.plan is not None
    assert result.status == "best-on-links"
    assert on_links_ps(result) == result.links.plans[0].links_ps
    assert on_links_ps(result) == min(each.links_ps for each in result.links.plans)
    assert on_links_ps(levels) == result.links.first.links_ps >= on_links_ps(result)
    assert result.links.levels.plan == result.by_levels.plan == levels.plan
    assert result.bound_ps == levels.bound_ps
    verified = verify(result.plan)
    assert not verified.violations
    assert verified.evaluation == result.evaluation
    placements = [each.plan.placement() for each in result.links.plans]
    assert len(set(placements)) == len(placements)


def test_ranking_gains_where_levels_mislead() -> None:
    """On a dragonfly of few slow links another plan is faster there, the same in every run."""
    result, again = (solve(problem_on(SLOW)) for _ in range(2))
    assert isinstance(result, SolveResult)
    assert isinstance(again, SolveResult)
    assert result.links is not None
    assert result.links.gain > 0
    assert again.links is not None
    assert again.links.plans == result.links.plans
    assert again.plan == result.plan != result.by_levels.plan


def test_equal_times_on_links_go_by_levels() -> None:
    """Plans are by the value on links, and of equal ones by that by levels."""
    links = solve_on_links(problem_on(TORUS)).links
    assert links is not None
    keys = [(each.links_ps, each.evaluation.value_ps) for each in links.plans]
    assert keys == sorted(keys)
    assert len(keys) > 1


def test_levels_of_other_traffic_share_the_graph() -> None:
    """They are those of a network of that traffic, without building the graph again."""
    network: Any = problem_on(SLOW).cluster.network
    link_graph(network)
    for traffic in ("alone", "rings", "any"):
        other = with_traffic(network, traffic)
        assert link_graph(other) is link_graph(network)
        fresh = problem_on({**SLOW, "traffic": traffic})
        cluster = fresh.cluster.model_copy(update={"network": other})
        assert planned_levels(cluster) == planned_levels(fresh.cluster)
    assert network.traffic == "rings"


def test_other_methods_take_the_search_by_levels() -> None:
    """Bounds and integer programs begin from what is the best by levels."""
    problem = problem_on(SLOW, search={"tp": [1], "dp": [2]})
    result = solve(problem)
    assert isinstance(result, SolveResult)
    assert result.links is not None
    levels = solve_pipeline(problem)
    for found in (exact(problem, start=result), bound(problem, start=result, certify=False)):
        assert found.bound_ps == levels.bound_ps


def test_an_oversubscribed_hierarchy_is_ranked_if_asked() -> None:
    """There levels rank unless links are asked for; plain levels, and artifacts, refuse links."""
    network = oversubscribed(1, 2, 4)
    problem = on(network, 16, memory_bytes=2 * 10**8)
    plain = solve(problem)
    assert isinstance(plain, SolveResult)
    assert plain.links is None
    ranked = solve(problem, rank_by="links")
    assert isinstance(ranked, SolveResult)
    assert on_links_ps(ranked) <= on_links_ps(plain)
    with pytest.raises(InstanceError, match="rank_by: found links"):
        solve(on(oversubscribed(1, 1, 1), 16), rank_by="links")


def test_stages_that_may_differ_are_ranked_one_a_search() -> None:
    """The search gives one plan for each set of levels there, and takes no top."""
    problem = problem_on(SLOW, search={"per_stage": ["tp"]})
    assert plans_timed(problem) == 1
    result = solve_on_links(problem)
    assert result.links is not None
    assert set(result.links.searched.values()) == {1}


def test_an_interrupt_keeps_what_was_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C before the last of the timings returns the best of those done, as interrupted."""
    done = 0

    def interrupted(*arguments: Any) -> Any:
        nonlocal done
        done += 1
        if done > 2:
            raise KeyboardInterrupt
        return retime(*arguments)

    retime = on_links.retime
    monkeypatch.setattr(on_links, "retime", interrupted)
    result = solve_on_links(problem_on(TORUS))
    assert result.status == "interrupted"
    assert result.links is not None
    assert len(result.links.plans) == 2
    done = 2
    result = solve_on_links(problem_on(TORUS))
    assert (result.status, result.links) == ("interrupted", None)
    assert result.plan is not None


def test_the_command_line_says_what_ranking_gained(tmp_path: Path) -> None:
    """Text and object name value on links, by levels, how many were timed, and the gain."""
    path, plan = tmp_path / "problem.json", tmp_path / "plan.json"
    path.write_text(to_json_text(problem_on(SLOW)))
    told = run("solve", path, "-o", plan, width=300).output
    assert "best on links: " in told
    assert "both by levels: none is proved for the links" in told
    assert "timed on the links" in told
    data = run_json("solve", path)
    ranking = data["link_ranking"]
    assert ranking["value_ps"] == data["on_network"]["value_ps"]
    assert int(ranking["value_ps"]) < int(ranking["best_by_levels"]["value_ps"])
    assert data["plan"] == json.loads(plan.read_text())
    by_levels = run_json("solve", path, "--rank-by", "levels")
    assert by_levels["status"] == "optimal"
    assert "link_ranking" not in by_levels
    assert by_levels["on_network"]["value_ps"] == ranking["best_by_levels"]["value_ps"]
    assert run("solve", path, "--front", "--rank-by", "links").exit_code == 2
