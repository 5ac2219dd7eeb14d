"""Costs of pairs: the levels of a graph, programs on it, and local search, held together."""

import random
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from itertools import combinations, islice, pairwise
from typing import Any

import pytest
from free_agreement import FreeComparison, compare_fixed, placements
from free_brute_force import free_brute_force
from free_instances import free_data
from free_zero_instances import free_zero_data
from graph_samples import racks
from pair_instances import Matrix, pair_data, random_matrix
from samples import layer_type, sample
from tied_instances import tied_free_data

from nest_opt import InstanceError, Problem, verify
from nest_opt.cost.units import to_ps
from nest_opt.errors import ModelError, PlanError
from nest_opt.milp.exact import exact
from nest_opt.milp.on_pairs import exact_on_pairs
from nest_opt.network import HierarchicalNetwork
from nest_opt.network.graph_network import GraphNetwork
from nest_opt.network.pair_levels import PairLevels
from nest_opt.network.pairs import LevelPairs, PairNetwork
from nest_opt.network.planned import PlannedPairs, network_of_graph
from nest_opt.network.ring import ring_passes
from nest_opt.network.topologies import tree
from nest_opt.placing import SHORT, improve_placement, place_on_graph
from nest_opt.placing.value import Valued
from nest_opt.plan.check import check
from nest_opt.plan.evaluate import Costs, evaluate
from nest_opt.plan.pairwise import pairwise_costs
from nest_opt.problem.validation import build
from nest_opt.verbs.pipeline.exact import exact_pipeline

# Of problems that brute force settles soon; odd ones have levels that are no chain.
OPTIMUM_SEEDS = (154, 157, 170, 217, 220, 252, 264)
MOST_ASSIGNMENTS = 130
# Picoseconds in a second.
S = 10**12


def pair_problem(seed: int) -> tuple[Problem, Costs]:
    """Return the problem of a seed and its costs on a network of pairs."""
    problem = build(Problem, pair_data(seed), f"seed {seed}")
    return problem, pairwise_costs(problem, random_matrix(seed, problem.cluster.device_count))


def levels_of(costs: Costs) -> PairLevels:
    """Return the network of costs of pairs."""
    assert isinstance(costs.network, PairLevels)
    return costs.network


# What pairs cost


def test_on_a_tree_costs_of_pairs_are_those_of_levels() -> None:
    """Stage by stage and term by term, whatever the placement, also from the tree's graph."""
    seen = graphs = 0
    for seed in range(16):
        data = free_data(seed)
        data.pop("constraints", None)
        problem = build(Problem, data, "tree")
        own, spec, count = Costs(problem), problem.cluster.network, problem.cluster.device_count
        networks: list[PairNetwork] = [LevelPairs(HierarchicalNetwork(spec), count)]
        if count == spec.device_count:
            networks.append(GraphNetwork(tree(spec)))
        for network in networks:
            costs = pairwise_costs(problem, network)
            for placement in islice(placements(own, 6), 0, 200, 67):
                found, wanted = evaluate(costs, placement), evaluate(own, placement)
                assert found.value_ps == wanted.value_ps
                for one, other in zip(found.stages, wanted.stages, strict=True):
                    assert one.time_terms_ps == other.time_terms_ps
                    assert one.sync_terms_ps == other.sync_terms_ps
                seen += 1
                graphs += isinstance(network, GraphNetwork)
    assert seen >= 40
    assert graphs >= 15


@pytest.mark.parametrize("seed", range(6))
def test_a_collective_is_the_ring_at_the_worst_pair(seed: int) -> None:
    """Latency k times + k / n bytes over rate is the worst pair's; the worst of two are joined."""
    network = random_matrix(seed, 6)
    levels, size = PairLevels.of(network), Fraction(1000)
    assert levels.is_chain == (seed % 2 == 0)
    joined = 0
    for count in (2, 3, 4):
        for devices in combinations(range(6), count):
            passes = ring_passes("all-reduce", count)
            fixed, each = levels.collective_s("all-reduce", count, levels.level(devices), "ring")
            pairs = list(combinations(devices, 2))
            worst = max(
                passes * network.transfer_s(u, v, size / count) for u, v in pairs
            )  # fmt: skip
            most = passes * max(network.latency_s[pair] for pair in pairs)
            least_rate = min(network.rate[pair] for pair in pairs)
            assert fixed + each * size == most + passes * size / count / least_rate >= worst
            joined += fixed + each * size > worst
    assert (joined > 0) == (not levels.is_chain)


def test_the_slower_direction_counts() -> None:
    """A pair that is slow one way is slow."""
    ps = Fraction(1, 10**12)
    latency = {(0, 1): 5 * ps, (1, 0): 2 * ps}
    rate = {(0, 1): Fraction(10**12), (1, 0): Fraction(10**11)}
    levels = PairLevels.of(Matrix(latency, rate, 2))
    assert to_ps(levels.hop_s(Fraction(100), levels.level((0, 1)))) == 5 + 1000


@pytest.mark.parametrize("seed", range(8))
def test_sites_and_disjoint_sets(seed: int) -> None:
    """Devices of a site have equal pairs; no more sets are below a level than the bound says."""
    levels = PairLevels.of(random_matrix(seed, 7))
    for site in levels.sites:
        for u, v in combinations(site, 2):
            for other in set(range(7)) - {u, v}:
                assert levels.pair_level(u, other) == levels.pair_level(v, other)
    for level in range(1, levels.level_count):
        for size in (2, 3):
            near = [
                frozenset(devices)
                for devices in combinations(range(7), size)
                if not any(
                    levels.reaches(levels.pair_level(u, v), level)
                    for u, v in combinations(devices, 2)
                )
            ]
            bound = levels.most_sets(size, level)
            assert _most_disjoint(near) <= bound
            assert size > 2 or _most_disjoint(near) == bound


def _most_disjoint(sets: list[frozenset[int]]) -> int:
    return max(
        (
            1 + _most_disjoint([o for o in sets[n + 1 :] if not o & one])
            for n, one in enumerate(sets)
        ),
        default=0,
    )


# Programs


@cache
def optimum(seed: int) -> int:
    """Return the least value of any assignment, by brute force."""
    problem, costs = pair_problem(seed)
    best = free_brute_force(problem, MOST_ASSIGNMENTS, costs=costs)
    assert best is not None
    assert best.value_ps is not None
    return best.value_ps


@pytest.mark.parametrize("seed", OPTIMUM_SEEDS)
def test_program_equals_brute_force(seed: int) -> None:
    """Value and bound are brute force's, of the search in two steps as well."""
    problem, costs = pair_problem(seed)
    for found in (
        exact(problem, family="free", costs=costs),
        exact_on_pairs(problem, levels_of(costs)),
    ):
        assert found.status == "optimal"
        assert found.value_ps == found.bound_ps == optimum(seed)


def test_every_fixed_placement_is_judged_and_valued_alike() -> None:
    """Fixed in the program, a placement is feasible as the checker says, of its value."""
    told = FreeComparison()
    for seed in (157, 217, 264):
        problem, costs = pair_problem(seed)
        compare_fixed(problem, f"seed {seed}", told, costs)
    assert told.placements >= 15
    assert told.unsorted == 0
    assert 0 < told.illegal < told.placements


@pytest.mark.parametrize("seed", range(6))
def test_hopeful_costs_are_never_more(seed: int) -> None:
    """Whatever the placement, the network of fewer levels bounds its value from below."""
    problem, costs = pair_problem(seed)
    hopeful = pairwise_costs(problem, levels_of(costs).hopeful())
    assert levels_of(hopeful).is_chain
    for placement in islice(placements(costs, 6), 0, 300, 41):
        assert evaluate(hopeful, placement).value_ps <= evaluate(costs, placement).value_ps


def ten_ranks(tied: int) -> Problem:
    """Return ten layers for a pipeline of ten, whose first and last share `tied` parameters."""
    block = layer_type(1e-9, 1e-9, parameters=tied, output_bytes=0, stash_bytes=0)
    layers = [{"id": f"layer-{place}", "type": "block"} for place in range(10)]
    types = {"block": block}
    if tied:
        types["head"] = layer_type(
            1e-9, 1e-9, tied, output_bytes=0, stash_bytes=0, tied_parameters=tied
        )
        layers[-1]["type"] = "head"
    return sample(
        sizes=(12,),
        model={"layer_types": types, "layers": layers},
        job={"global_batch": 1},
        search={"pp": [10], "dp": [1], "tp": [1], "microbatch": [1]},
    )


@pytest.mark.parametrize(("tied", "crossings", "value_ps"), [(0, 2, 44 * S), (1, 3, 52.02 * S)])
def test_ten_ranks_on_three_racks_of_four(tied: int, crossings: int, value_ps: float) -> None:
    """A chain leaves racks twice, a ring three times, and the program proves it the least.

    A hop takes 2 s in a rack and 4 s between two, at both of its ends: 2 * (7 * 2 + 2 * 4) s.
    The ring is closed by an all-reduce of 2 bytes, two messages one after another: 8.2 s between
    racks, or 4.02 s in one, and then the chain crosses three times.
    """
    costs = pairwise_costs(ten_ranks(tied), GraphNetwork(racks(4, 4, 4)))
    found = exact(costs.problem, family="free", costs=costs)
    assert found.status == "optimal"
    assert found.placement is not None
    assert found.placement.devices is not None
    places = [block[0] // 4 for (block,) in found.placement.devices.devices]
    ends = [*pairwise(places), *[(places[-1], places[0])] * tied]
    assert sum(one != other for one, other in ends) == crossings
    assert found.value_ps == found.bound_ps == round(value_ps) + 10 * 2000


# Local search


@pytest.mark.parametrize("seed", OPTIMUM_SEEDS)
def test_local_search_from_any_plan(seed: int) -> None:
    """From the first legal plan: never worse, never below the optimum, the same in every run."""
    _, costs = pair_problem(seed)
    start = next(one for one in placements(costs, 12) if not check(costs, one))
    found = improve_placement(costs, start, evaluations=150, seed=seed)
    assert found == improve_placement(costs, start, evaluations=150, seed=seed)
    assert optimum(seed) <= found.value_ps <= found.start_ps == evaluate(costs, start).value_ps
    assert not check(costs, found.placement)
    assert found.evaluations <= 150


@pytest.mark.parametrize("data_of", [free_data, free_zero_data, tied_free_data])
def test_devices_are_valued_as_the_evaluator_does(
    data_of: Callable[[int], dict[str, Any]],
) -> None:
    """After any exchanges, kept up to date, the value is the evaluator's."""
    rng, seen = random.Random(5), 0
    for seed in range(12):
        data = data_of(seed)
        data.pop("constraints", None)
        problem = build(Problem, data, f"seed {seed}")
        count = problem.cluster.device_count
        costs = pairwise_costs(problem, random_matrix(seed, count))
        try:
            some = list(islice(placements(costs, 3), 0, 200, 67))
        except InstanceError:
            continue
        for placement in some:
            used = [d for stage in placement.device_map.devices for b in stage for d in b]
            valued = Valued(
                costs, levels_of(costs), placement, [*used, *sorted(set(range(count)) - set(used))]
            )
            for _ in range(3):
                one, other = rng.sample(range(count), 2)
                valued.exchange([(one, other)])
                assert valued.score()[0] == evaluate(costs, valued.listed()).value_ps
                seen += 1
    assert seen >= 20


def test_an_interrupt_leaves_the_best_plan_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search says that it was interrupted; its plan is legal and no worse than the start."""
    _, costs = pair_problem(220)
    start = next(one for one in placements(costs, 12) if not check(costs, one))
    score, calls = Valued.score, []

    def interrupted(self: Valued) -> tuple[int, int]:
        calls.append(1)
        if len(calls) > 5:
            raise KeyboardInterrupt
        return score(self)

    monkeypatch.setattr(Valued, "score", interrupted)
    found = improve_placement(costs, start)
    assert found.interrupted
    assert found.value_ps <= found.start_ps
    assert not check(costs, found.placement)


def test_a_graph_with_one_slow_uplink() -> None:
    """Found without levels: the search on a graph reaches the optimum that the programs prove."""
    network = GraphNetwork(racks(3, 2))
    problem = sample(layers=3, sizes=(5,), global_batch=2, search={"pp": [1, 2, 3], "tp": [1]})
    placed = place_on_graph(problem, network, starts=2)
    best = exact_on_pairs(problem, network, start=placed.found.placement)
    assert best.status == "optimal"
    assert best.value_ps == placed.found.value_ps <= placed.starts_ps <= placed.derived_ps


def test_exact_on_the_graph_of_a_problem() -> None:
    """The free family on a graph network: proved, no worse than `solve`, a legal plan of no claim.

    Device numbers are those of plans: reversed here, so that the slow rack comes first.
    """
    graph = racks(3, 2)
    network = network_of_graph(graph, order=graph.names[:5][::-1])
    problem = sample(layers=3, sizes=(5,), global_batch=2, search={"pp": [2], "tp": [1]})
    cluster = problem.cluster.model_copy(update={"network": network})
    problem = problem.model_copy(update={"cluster": cluster})
    found = exact_pipeline(problem, family="free", by_pairs=True)
    assert found.status == "optimal"
    assert found.plan is not None
    assert found.evaluation is not None
    value_ps = found.evaluation.value_ps
    assert value_ps == found.bound_ps
    pairs = PairLevels.of(PlannedPairs(cluster, network))
    assert pairs.pair_level(0, 1) < pairs.pair_level(1, 2)
    costs = pairwise_costs(problem, pairs)
    assert evaluate(costs, found.plan.placement()).value_ps == value_ps
    assert found.start.evaluation is not None
    assert value_ps <= found.start.evaluation.value_ps
    verified = verify(found.plan)
    assert not verified.violations
    assert verified.claim_ps is None


def graph_problem() -> Problem:
    """Return a problem on a graph of two racks, all devices of one joined."""
    problem = sample(layers=3, sizes=(5,), global_batch=2, search={"pp": [2], "tp": [1]})
    network = network_of_graph(racks(3, 2))
    return problem.model_copy(
        update={"cluster": problem.cluster.model_copy(update={"network": network})}
    )


def test_a_time_limit_ends_the_search_on_a_graph_too() -> None:
    """Out of time, few changes are valued, the programs still have their turn, and say a bound."""
    told: list[tuple[int, int]] = []
    found = exact_pipeline(
        graph_problem(),
        family="free",
        by_pairs=True,
        time_limit_s=0.0,
        progress=lambda done, total, _: told.append((done, total)),
    )
    assert found.plan is not None
    assert found.status in ("feasible", "optimal")
    # The local search of all starts values some 25,000 changes where nothing ends it.
    assert any(total == SHORT for _, total in told)
    assert len(told) < 2_000


def test_an_interrupted_search_on_a_graph_has_values_of_pairs() -> None:
    """Ctrl-C in the local search: its plan, valued by pairs, with no claim and no bound."""
    problem = graph_problem()

    def interrupt(done: int, total: int, _: int | None) -> None:
        if total == SHORT and done > 20:
            raise KeyboardInterrupt

    found = exact_pipeline(problem, family="free", by_pairs=True, progress=interrupt)
    assert (found.status, found.bound_ps) == ("interrupted", 0)
    assert found.plan is not None
    assert found.evaluation is not None
    assert found.plan.objective is None
    pairs = PairLevels.of(PlannedPairs(problem.cluster, problem.cluster.network))
    costs = pairwise_costs(problem, pairs)
    assert evaluate(costs, found.plan.placement()).value_ps == found.evaluation.value_ps


# What is refused


def test_what_costs_of_pairs_do_not_know_is_refused() -> None:
    """Other numbers of devices, constraints about levels, aligned families, cp, illegal starts."""
    problem = sample(sizes=(4,))
    network = random_matrix(0, 4)
    with pytest.raises(InstanceError, match="found 5 devices, the problem's cluster has 4"):
        pairwise_costs(problem, random_matrix(0, 5))
    limited = sample(sizes=(4,), constraints=[{"type": "hop-latency", "limit_s": 1}])
    with pytest.raises(InstanceError, match="'hop-latency', which is about levels"):
        pairwise_costs(limited, network)
    with pytest.raises(InstanceError, match="found 1 devices"):
        PairLevels.of(random_matrix(0, 1))
    costs = pairwise_costs(problem, network)
    with pytest.raises(ModelError, match="no groups to align with"):
        exact(problem, costs=costs)
    start = next(placements(costs, 1))
    with pytest.raises(PlanError, match="costs of pairs are needed"):
        improve_placement(Costs(problem), start)
