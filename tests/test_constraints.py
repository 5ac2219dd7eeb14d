"""Every constraint: alone violated it is refused, and the search stays exact under it."""

from typing import Any

import pytest
from agreement import compare, solved
from random_instances import MAKERS, binding_data
from samples import layer_type, problem_data

from nest_opt import Problem, solve
from nest_opt.certify.brute_force import brute_force, enumerate_cells, enumerate_plans
from nest_opt.dp.occupancy import most_devices, most_replicas
from nest_opt.dp.rules import RULES, relaxed_constraints
from nest_opt.plan.check import check
from nest_opt.plan.evaluate import Costs
from nest_opt.plan.placement import DeviceMap, Placement
from nest_opt.plan.rules import CHECKERS
from nest_opt.problem import DegreeLimit
from nest_opt.problem.validation import build

# Two replicas of three stages, two layers each but the last, tp 2, on nodes of
# 3 devices: blocks 0-1, 2-3, 4-5 of replica 0 and 6-7, 8-9, 10-11 of replica 1.
VIOLATED: dict[str, dict[str, Any]] = {
    "colocation": {"layers": ["layer-1", "layer-2"]},
    "anti-colocation": {"layers": ["layer-0", "layer-4", "layer-1"]},
    "pinned-layers": {"layers": ["layer-3"], "stage": -1},
    "forbidden-boundary": {"after": "layer-3"},
    "hop-latency": {"limit_s": 0.000001},
    "degree-limit": {"degree": "pp", "multiple_of": 2},
    "tp-inside-node": {"level": "node"},
    "failure-domains": {"level": "rack"},
    "power": {"level": "node", "limit_w": 899},
}
KEPT: dict[str, dict[str, Any]] = {
    "colocation": {"layers": ["layer-0", "layer-1"]},
    "anti-colocation": {"layers": ["layer-0", "layer-4", "layer-2"]},
    "pinned-layers": {"layers": ["layer-3", "layer-2"], "stage": -2},
    "forbidden-boundary": {"after": "layer-0"},
    "hop-latency": {"limit_s": 0.000002},
    "degree-limit": {"degree": "pp", "multiple_of": 3},
    "tp-inside-node": {"level": "rack"},
    "failure-domains": {"level": "rack", "at_most": 2},
    "power": {"level": "node", "limit_w": 900},
}
ENDS = (2, 4, 5)


def lone_problem(*constraints: dict[str, Any]) -> Problem:
    """Return a problem whose degrees and device map are settled, and stage ends by colocation."""
    data = problem_data(layers=5, sizes=(3, 6))
    data["model"]["layer_types"] = {"block": layer_type(tp=2)}
    data["cluster"]["device_kinds"]["device"]["watts"] = 300
    data["cluster"]["devices"][0]["count"] = 12
    for level, name in zip(data["cluster"]["network"]["levels"], ("node", "rack"), strict=True):
        level["name"] = name
    data["search"] = {
        "microbatch": [1], "tp": [2], "dp": [2], "pp": [3], "recompute": ["none"],
        "order": ["pp-inner"], "pitch": ["tight"],
    }  # fmt: skip
    settled = [{"type": "forbidden-boundary", "after": f"layer-{place}"} for place in (0, 2)]
    data["constraints"] = [*settled, *constraints]
    return build(Problem, data, "lone")


def lone_plans(problem: Problem) -> list[Placement]:
    """Return the placements that fit in memory, whatever the constraints say, with these ends."""
    cells = list(enumerate_cells(problem))
    assert len(cells) == 1
    found = [plan.ends for cell in cells for plan in enumerate_plans(Costs(problem), cell)]
    cell = cells[0]
    return [
        Placement(
            cell.microbatch, cell.configurations, 2, "pp-inner", cell.device_map.pitch, ends,
            ("none",) * 3,
        )
        for ends in found
        if ends == ENDS
    ]  # fmt: skip


def test_every_constraint_has_a_checker_a_rule_and_cases_here() -> None:
    """The types that a file may hold are those of the checkers, the rules and the cases."""
    types = set(Problem.model_json_schema()["$defs"]) & {
        "Colocation", "AntiColocation", "PinnedLayers", "ForbiddenBoundary", "HopLatency",
        "DegreeLimit", "TpInsideNode", "FailureDomains", "Power",
    }  # fmt: skip
    assert len(types) == len(CHECKERS)
    assert set(CHECKERS) == set(RULES) == set(VIOLATED) == set(KEPT)
    assert not relaxed_constraints(lone_problem({"type": "power", **KEPT["power"]}))


@pytest.mark.parametrize("kind", sorted(CHECKERS))
def test_a_constraint_alone_violated_is_refused(kind: str) -> None:
    """The only placement breaks this one rule: checker, search and brute force refuse it."""
    problem = lone_problem({"type": kind, **VIOLATED[kind]})
    (placement,) = lone_plans(problem)
    assert {violation.rule for violation in check(Costs(problem), placement)} == {kind}
    assert solve(problem).status == "infeasible"
    assert brute_force(problem).value_ps is None


@pytest.mark.parametrize("kind", sorted(CHECKERS))
def test_a_constraint_that_is_kept_refuses_nothing(kind: str) -> None:
    """With a constraint of the same type that it keeps, the placement is legal and the optimum."""
    problem = lone_problem({"type": kind, **KEPT[kind]})
    (placement,) = lone_plans(problem)
    assert not check(Costs(problem), placement)
    assert solved(problem)[1] == placement == brute_force(problem).placement


@pytest.mark.parametrize("first", range(0, 100, 10))
@pytest.mark.parametrize("kind", sorted(MAKERS))
def test_search_equals_brute_force_where_a_constraint_binds(kind: str, first: int) -> None:
    """With a constraint that the best plan without it breaks, the search finds what all do."""
    for seed in range(first, first + 10):
        data = binding_data(kind, seed)
        if data is not None:
            comparison = compare(data)
            assert comparison.difference is None, f"seed {seed}"
            assert comparison.brute.value_ps is not None


@pytest.mark.parametrize("kind", sorted(MAKERS))
def test_every_constraint_binds_somewhere(kind: str) -> None:
    """The comparison above is not empty: at least 5 of its problems have such a constraint."""
    assert sum(binding_data(kind, seed) is not None for seed in range(100)) >= 5


def device_maps() -> list[DeviceMap]:
    """Return device maps of all orders with tight, loose and even pitches."""
    found = []
    for a, replicas, stages in ((1, 1, 1), (2, 3, 2), (3, 4, 1), (1, 2, 5), (5, 2, 3)):
        for slack in (0, 1, 4):
            unit = {"dp-inner": replicas * a}
            for order in ("pp-inner", "dp-inner", "pp-inner-reversed"):
                pitch = unit.get(order, stages * a) + slack
                found.append(DeviceMap(a, replicas, stages, order, pitch))
    return found


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7, 12, 100])
def test_occupancy_equals_counting(size: int) -> None:
    """The most devices and replicas of a group are those of counting every device."""
    for device_map in device_maps():
        groups: dict[int, list[int]] = {}
        for replica in range(device_map.replicas):
            for stage in range(device_map.stages):
                for device in device_map.block(replica, stage):
                    groups.setdefault(device // size, []).append(replica)
        assert most_devices(device_map, size) == max(map(len, groups.values()))
        assert most_replicas(device_map, size) == max(len(set(g)) for g in groups.values())


@pytest.mark.parametrize(
    ("limits", "allowed"),
    [
        ({"at_least": 3}, {3, 4, 5, 6, 7, 8}),
        ({"at_most": 2}, {1, 2}),
        ({"multiple_of": 3}, {3, 6}),
        ({"divides": 6}, {1, 2, 3, 6}),
        ({"at_least": 2, "divides": 8, "multiple_of": 2}, {2, 4, 8}),
    ],
)
def test_limits_of_a_degree(limits: dict[str, int], allowed: set[int]) -> None:
    """Of 1 to 8, a limit allows what its words say."""
    limit = DegreeLimit(type="degree-limit", degree="dp", **limits)
    assert {value for value in range(1, 9) if limit.allows(value)} == allowed


def test_a_device_map_limit_leaves_large_clusters_quick() -> None:
    """Counting on 131,072 devices is right where it can be told by hand."""
    device_map = DeviceMap(8, 1024, 16, "dp-inner", 8192)
    assert most_devices(device_map, 1024) == 1024
    assert most_replicas(device_map, 1024) == 128
