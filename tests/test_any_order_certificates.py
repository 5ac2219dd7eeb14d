"""Certificates in any order of layers: cuts are downsets, which the checker lists by itself."""

import json
from collections.abc import Callable
from copy import deepcopy
from functools import cache
from itertools import permutations
from typing import Any

import pytest
from branching_instances import branching_data, diamond, reordered

from nest_opt import CertificateError, InstanceError, Problem, bound, check
from nest_opt.api import Certificate, Family
from nest_opt.certify.brute_force import brute_force
from nest_opt.certify.checker import RefusedError, Space, digest
from nest_opt.certify.checker import check as check_data
from nest_opt.certify.maker import make_certificate
from nest_opt.cost.table_file import table_to_json
from nest_opt.dp.default_source import DefaultSource
from nest_opt.dp.free_bounds import free_bound
from nest_opt.dp.free_source import FreeSource
from nest_opt.dp.search import search
from nest_opt.errors import ConsistencyError
from nest_opt.plan.evaluate import Costs
from nest_opt.problem.files import to_json_data
from nest_opt.problem.validation import build

# Of these, the graphs with few layers and several orders; each constraint is on some.
SEEDS = range(1, 130)
FAMILIES: tuple[Family, ...] = ("aligned", "free")


@cache
def drawn(seed: int) -> Costs | None:
    """Return the costs of a seed's problem; None if its layers have one order, or no degrees."""
    data = branching_data(seed)
    if data is None:
        return None
    if seed % 4 == 0:
        data["search"]["schedule"] = ["zb-h1"]
    costs = Costs(build(Problem, data, f"seed {seed}"))
    try:
        return costs if costs.table and costs.graph else None
    except InstanceError:
        return None


def value_ps(costs: Costs, family: str) -> int | None:
    """Return the bound of a family that the searches find."""
    if family == "aligned":
        return search(DefaultSource(costs)).value_ps
    return free_bound(FreeSource(costs)).bound_ps


def test_cuts_are_those_of_the_search() -> None:
    """The checker's downsets are in the order of the search table, and so are sums over them."""
    seen = 0
    for costs in filter(None, map(drawn, SEEDS)):
        assert costs.graph is not None
        table = table_to_json(costs.search_table)
        space = Space(to_json_data(costs.problem), table, "aligned")
        assert space.downsets == list(costs.graph.cuts)
        assert len(table["pairs"][0]["hop_ps"][0]) == len(space.downsets)
        for (parent, layer), cut in list(zip(space.parents, space.downsets, strict=True))[1:]:
            assert space.downsets[parent] | 1 << layer == cut
        seen += len(space.downsets) > space.layers + 1
    assert seen >= 40


@pytest.mark.parametrize("family", FAMILIES)
def test_the_optimum_is_proved_and_no_more(family: Family) -> None:
    """What the searches find is accepted; one picosecond more has no proof, and is refused."""
    kinds: set[str] = set()
    proofs: set[str] = set()
    none = 0
    for costs in filter(None, map(drawn, SEEDS)):
        least = value_ps(costs, family)
        made = make_certificate(costs, family, least)
        verdict = check_data(json.loads(json.dumps(made.data)))
        assert (verdict.family, verdict.least_ps) == (family, least)
        kinds |= {constraint.type for constraint in costs.problem.constraints}
        proofs |= set(made.proofs)
        if least is None:
            none += 1
            continue
        with pytest.raises(ConsistencyError, match="found no proof"):
            make_certificate(costs, family, least + 1)
        wish = {**made.data, "claim": {"family": family, "least_ps": str(least + 1)}}
        with pytest.raises(RefusedError, match="does not settle"):
            check_data(wish)
    assert len(kinds) == 9
    assert proofs == {"sum", "room", "thresholds"} | ({"runs"} if family == "free" else set())
    assert none >= 5


def test_a_free_bound_is_the_least_over_all_listed_orders() -> None:
    """Relaxed in any order or in each of the topological ones, no plan is below the same value."""
    compared = 0
    for seed in SEEDS[:30]:
        data = branching_data(seed)
        if data is None or drawn(seed) is None:
            continue
        # Of this one the meaning itself is by the list.
        rules = [c for c in data.get("constraints", []) if c["type"] != "forbidden-boundary"]
        data["constraints"] = rules
        problem = build(Problem, data, f"seed {seed}")
        index = problem.model.index
        edges = [(index[edge.source], index[edge.target]) for edge in problem.model.all_edges]
        values = {
            value_ps(Costs(build(Problem, reordered(data, order), "listed")), "free")
            for order in permutations(range(len(index)))
            if all(order.index(source) < order.index(target) for source, target in edges)
        }
        assert value_ps(Costs(problem), "free") == min(values - {None}, default=None)  # type: ignore[type-var]
        compared += len(values) > 1
    assert compared >= 3


def _free_last(data: Any) -> None:
    """Let the last layer in the list come first."""
    data["model"]["edges"] = data["model"]["edges"][:2]


def _work(data: Any) -> None:
    """Give one layer as much work as its own stage has room for, and no other."""
    profile = data["model"]["layer_types"]["b"]["profiles"][0]
    profile["recompute"]["none"]["work_bytes"] = 90


@pytest.mark.parametrize(
    ("problem", "change", "value_s"),
    [
        (diamond(), None, 32),
        (diamond(constraints=[{"type": "colocation", "layers": ["b", "c"]}]), None, 48),
        (diamond(constraints=[{"type": "anti-colocation", "layers": ["a", "c"]}]), None, 48),
        (
            diamond(
                constraints=[
                    {"type": "forbidden-boundary", "after": "d"},
                    {"type": "pinned-layers", "layers": ["d"], "stage": 0},
                ]
            ),
            _free_last,
            None,
        ),
        (diamond(memory=95), _work, 32),
    ],
)
def test_what_brute_force_finds_is_proved_and_no_more(
    problem: Problem, change: Callable[[Any], None] | None, value_s: int | None
) -> None:
    """Of two downsets of one size one may be too slow or large, or end where it must not."""
    data = to_json_data(problem)
    if change is not None:
        change(data)
    costs = Costs(build(Problem, data, "changed"))
    least = None if value_s is None else value_s * 10**12
    assert brute_force(costs.problem).value_ps == least
    check_data(dict(make_certificate(costs, "aligned", least).data))
    if least is not None:
        with pytest.raises(ConsistencyError, match="found no proof"):
            make_certificate(costs, "aligned", least + 1)


# One of them, field by field


def telling() -> Problem:
    """Return a problem whose listed order is not the best."""
    for seed in SEEDS:
        costs = drawn(seed)
        if costs is not None:
            placement = search(DefaultSource(costs)).placement
            if placement is not None and placement.layer_order is not None:
                return costs.problem
    raise AssertionError


@pytest.fixture(scope="module")
def certificate() -> Certificate:
    """Return a certificate of its optimum."""
    found = bound(telling())
    assert found.certificate is not None
    return found.certificate


def test_bound_certifies_in_any_order(certificate: Certificate) -> None:
    """`bound` makes certificates of both families, whose costs are those of the problem."""
    problem = telling()
    for family in FAMILIES:
        found = bound(problem, family=family)
        assert found.certificate is not None
        result = check(found.certificate, problem, recompute_costs=True)
        assert (result.family, result.least_ps, result.recomputed) == (family, found.bound_ps, True)


def _fewer(data: Any) -> None:
    data["problem"]["model"]["edges"].pop()


def _back(data: Any) -> None:
    edge = data["problem"]["model"]["edges"][0]
    edge["source"], edge["target"] = edge["target"], edge["source"]


def _unknown(data: Any) -> None:
    data["problem"]["model"]["edges"][0]["weight"] = 1


def _chain(data: Any) -> None:
    del data["problem"]["model"]["edges"]


def _listed(data: Any) -> None:
    del data["problem"]["search"]["layer_order"]


def _other(data: Any) -> None:
    data["problem"]["search"]["layer_order"] = "best"


def _interleaved(data: Any) -> None:
    data["problem"]["search"]["schedule"] = ["1f1b", "interleaved"]


def _fewer_hops(data: Any) -> None:
    for hops in data["table"]["pairs"][0]["hop_ps"]:
        hops.pop()


def _tied(data: Any) -> None:
    data["table"]["tied"] = {"row": 1 + max(data["table"]["layer_rows"]), "exchange": []}


def _dual(data: Any) -> None:
    data["claim"]["family"] = "free"
    for entry in data["evidence"]:
        entry["proof"] = "dual"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_fewer, "hop_ps: not of the problem's cuts"),
        (_back, "model.edges: found one to the same layer, or an earlier one"),
        (_unknown, "model.edges: found something that this checker does not know"),
        (_chain, "hop_ps: not of the problem's cuts"),
        (_listed, "hop_ps: not of the problem's cuts"),
        (_other, "search.layer_order: found something that this checker does not know"),
        (_interleaved, "search.layer_order: any, with interleaved schedules"),
        (_fewer_hops, "hop_ps: not of the problem's cuts"),
        (_tied, "table.tied: found some, in any order of layers"),
        (_dual, "duals are for the free family, in the listed order"),
    ],
)
def test_one_changed_field_is_refused(
    certificate: Certificate, change: Callable[[Any], None], message: str
) -> None:
    """Digests made anew or not, the checker does not take other edges, orders or cuts."""
    data = deepcopy(dict(certificate.data))
    change(data)
    if data["claim"] == certificate.data["claim"]:
        with pytest.raises(RefusedError, match="_sha256: not that of the"):
            check_data(data)
    for name in ("problem", "table"):
        data[f"{name}_sha256"] = digest(data[name])
    with pytest.raises(RefusedError, match=message):
        check_data(data)


def test_other_hops_are_other_costs(certificate: Certificate) -> None:
    """A hop over one downset that is slower proves the claim still, of costs that are not these."""
    data = deepcopy(dict(certificate.data))
    for hops in data["table"]["pairs"][0]["hop_ps"]:
        hops[2] += 1
    data["table_sha256"] = digest(data["table"])
    assert check(Certificate(data)).least_ps is not None
    with pytest.raises(CertificateError, match="found a cost table of SHA-256"):
        check(Certificate(data), recompute_costs=True)


def test_too_many_downsets_are_refused(
    certificate: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More cuts than are allowed are refused, and a hundred layers without edges soon."""
    data = deepcopy(dict(certificate.data))
    layer = data["problem"]["model"]["layers"][0]
    data["problem"]["model"] |= {"layers": [{**layer, "repeat": 100}], "edges": []}
    data["problem_sha256"] = digest(data["problem"])
    with pytest.raises(RefusedError, match="more than 2001 cuts"):
        check_data(data)
    monkeypatch.setattr("nest_opt.certify.checker.MOST_CUTS", 5)
    with pytest.raises(RefusedError, match="more than 5 cuts"):
        check_data(certificate.data)
