"""Tied parameters: by hand, found alike by all that search, refused where they are none."""

import copy
import random
from collections.abc import Callable
from typing import Any

import pytest
from agreement import compare, solved
from cli_running import run, write
from free_agreement import FreeComparison
from free_agreement import compare_fixed as compare_free_fixed
from free_brute_force import free_brute_force
from milp_agreement import compare_fixed, compare_optimum, exact_coefficients, placement_count
from seeds import enough, of_all_seeds, thinned
from tied_instances import (
    Data,
    tied_data,
    tied_free_data,
    tied_schedule_data,
    tied_staged_data,
    tied_whole_data,
    untied,
)

from nest_opt import InstanceError, Problem, solve
from nest_opt.certify.brute_force import brute_force, enumerate_cells
from nest_opt.cost.build import build_cost_table
from nest_opt.cost.table import MAX_TOTAL
from nest_opt.cost.table_file import table_digest, table_from_json, table_to_json
from nest_opt.dp.levels import LevelVectors
from nest_opt.errors import PlanError
from nest_opt.milp.build import build as build_program
from nest_opt.milp.cells import FreeCell, free_cells
from nest_opt.milp.coefficients import CoefficientSource
from nest_opt.milp.exact import exact
from nest_opt.models.parameters import parameters
from nest_opt.models.request import Request, derive_problem
from nest_opt.plan import Placement
from nest_opt.plan.check import check
from nest_opt.plan.evaluate import TIED, Costs, evaluate, exchange_level
from nest_opt.problem import Configuration
from nest_opt.problem.schedule import Schedule
from nest_opt.problem.validation import build
from nest_opt.problem.zero import Zero
from nest_opt.solver.highs import HighsSession

US = 10**6
EMBEDDING, HEAD, TIED_PARAMETERS = 1000, 1600, 1000

# Where the ties matter, among the problems below, at least so many: see the test of that name.
SEEDS = range(240)
STAGED_SEEDS = range(100)
SCHEDULE_SEEDS = range(100)
SEEDS_A_TEST = 20
MOST_ASSIGNMENTS = 3_000


def data_of(batch: int = 4, **search: Any) -> Data:
    """Return an embedding, a block and a head for four devices, in two nodes of two."""

    def layer(dense: int, **fields: Any) -> Data:
        profile = {
            "microbatch": 1,
            "forward_s": "1e-6",
            "backward_input_s": "1e-6",
            "backward_weight_s": "1e-6",
            "dense_parameters": dense,
            "recompute": {"none": {"stash_bytes": 0, "work_bytes": 7}},
            **fields,
        }
        wide = {**profile, "tp": 2}
        return {"output_bytes": {"1": 0}, "profiles": [profile, wide]}

    return {
        "format": "nest-opt-problem",
        "version": 1,
        "name": "tied",
        "model": {
            "layer_types": {
                "embedding": layer(EMBEDDING),
                "head": layer(HEAD, tied_parameters=TIED_PARAMETERS),
            },
            "layers": [{"id": "embedding", "type": "embedding"}, {"id": "head", "type": "head"}],
        },
        "cluster": {
            "device_kinds": {"device": {"memory_bytes": 10**6}},
            "devices": [{"kind": "device", "count": 4}],
            "network": {
                "type": "hierarchical",
                "levels": [
                    {
                        "name": "node",
                        "size": 2,
                        "bandwidth_bytes_per_s": 10**9,
                        "latency_s": "1e-6",
                    },
                    {
                        "name": "rack",
                        "size": 2,
                        "bandwidth_bytes_per_s": 5 * 10**8,
                        "latency_s": "3e-6",
                    },
                ],
            },
        },
        "job": {
            "global_batch": batch,
            "bytes_per_parameter": {"weights": 2, "gradients": 4, "optimizer": 12},
        },
        "search": {"tp": [1], "zero": [0, 1, 2, 3], **search},
    }


def problem_of(batch: int = 4, **search: Any) -> Problem:
    """Return that problem."""
    return build(Problem, data_of(batch, **search), "tied")


def placement_of(
    stages: int, replicas: int, order: Any = "pp-inner", zero: int = 0, tp: tuple[int, ...] = (1,)
) -> Placement:
    """Return one or two stages, one after the other."""
    k = tuple(Configuration(width) for width in (tp * stages)[:stages])
    inner = stages if order == "pp-inner" else replicas
    ends = (2,) if stages == 1 else (1, 2)
    pitch = inner * max(tp)
    return Placement(1, k, replicas, order, pitch, ends, ("none",) * stages, zero=Zero(zero, zero))


# An all-reduce over 2 ranks takes two latencies, 2 us in a node and 6 us between nodes, and
# 4,000 bytes of the 1,000 tied gradients 4 us and 8 us; of the head's own 600, 2.4 us and 4.8 us.
@pytest.mark.parametrize(
    ("stages", "replicas", "order", "batch", "zero", "sync_us"),
    [
        (1, 1, "pp-inner", 4, 0, [0]),
        (1, 2, "pp-inner", 4, 0, [2 + 4 + 2.4]),
        (2, 1, "pp-inner", 4, 0, [2 + 4] * 2),
        (2, 2, "pp-inner", 4, 0, [6 + 8 + 6, 6 + 12.8 + 6]),
        (2, 2, "dp-inner", 4, 0, [2 + 4 + 14, 2 + 6.4 + 14]),
        # Reduce-scatter and all-gather take half each; gradients are exchanged in whole,
        (1, 2, "pp-inner", 4, 1, [1 + 2 + 1.2 + 1 + 1 + 0.6]),
        (2, 2, "dp-inner", 4, 1, [1 + 2 + 1 + 1 + 14, 1 + 3.2 + 1 + 1.6 + 14]),
        # or by the share that each of two copies has.
        (2, 2, "dp-inner", 2, 2, [1 + 2 + 1 + 1 + 10, 1 + 3.2 + 1 + 1.6 + 10]),
        (2, 2, "dp-inner", 4, 2, [1 + 1 + 10, 1 + 1.6 + 10]),
        (2, 2, "dp-inner", 4, 3, [10, 10]),
        (1, 2, "pp-inner", 4, 3, [0]),
    ],
)
def test_sync_by_hand(
    stages: int, replicas: int, order: str, batch: int, zero: int, sync_us: list[float]
) -> None:
    """Y counts tied parameters once in one stage, and has their exchange with two."""
    evaluation = evaluate(
        Costs(problem_of(batch)), placement_of(stages, replicas, order, zero=zero)
    )
    assert [stage.sync_ps for stage in evaluation.stages] == [round(US * us) for us in sync_us]
    assert all((TIED in stage.sync_terms_ps) == (stages > 1) for stage in evaluation.stages)


@pytest.mark.parametrize(
    ("stages", "replicas", "zero", "states", "work"),
    [
        (1, 1, 0, [18 * (EMBEDDING + HEAD - TIED_PARAMETERS)], [7]),
        (2, 1, 0, [18 * EMBEDDING, 18 * HEAD], [7, 7]),
        (1, 2, 1, [(6 + 6) * (EMBEDDING + HEAD - TIED_PARAMETERS)], [7]),
        (1, 2, 3, [9 * (EMBEDDING + HEAD - TIED_PARAMETERS)], [7 + 6 * HEAD]),
        (2, 2, 3, [9 * EMBEDDING, 9 * HEAD], [7 + 6 * EMBEDDING, 7 + 6 * HEAD]),
    ],
)
def test_memory_by_hand(
    stages: int, replicas: int, zero: int, states: list[int], work: list[int]
) -> None:
    """States count tied parameters once in one stage; what a layer at work has whole does not."""
    found = evaluate(Costs(problem_of()), placement_of(stages, replicas, zero=zero)).stages
    assert [stage.memory_terms_bytes["states"] for stage in found] == states
    assert [stage.memory_terms_bytes["work"] for stage in found] == work


def test_the_drain_hides_the_exchange() -> None:
    """X of the last stage is Y with the exchange, less the backward time before it."""
    first, last = evaluate(Costs(problem_of()), placement_of(2, 1)).stages
    assert (first.exposed_sync_ps, last.exposed_sync_ps) == (6 * US, 4 * US)


def test_the_level_is_that_of_the_worst_pair() -> None:
    """Of replicas whose ends are near and far, the far one counts, for both ends."""
    data = data_of()
    data["cluster"]["devices"] = [{"kind": "device", "count": 5}]
    data["cluster"]["network"]["levels"][1]["size"] = 3
    # Replica 0 has devices 0 and 1, replica 1 devices 3 and 4.
    placement = placement_of(2, 2)
    apart = Placement(**{**vars(placement), "pitch": 3})
    costs = Costs(build(Problem, data, "five devices"))
    for stage in evaluate(costs, apart).stages:
        assert (stage.sync_terms_ps[TIED], stage.levels[TIED]) == (14 * US, 1)


@pytest.mark.parametrize("name", ["interleaved", "gpipe", "zb-h1"])
def test_other_schedules_exchange_alike(name: Any) -> None:
    """Whatever the schedule, first and last stage pay, and hold what the last layer ties."""
    data = data_of(schedule=[name], chunks=[2]) if name == "interleaved" else data_of()
    data["model"]["layers"][1:1] = [
        {"id": "block", "type": "block", "repeat": 2},
    ]
    data["model"]["layer_types"]["block"] = data["model"]["layer_types"]["embedding"]
    data["search"]["schedule"] = [name]
    schedule = Schedule(name, 2 if name == "interleaved" else 1)
    ends = (1, 2, 3, 4) if name == "interleaved" else (2, 4)
    placement = Placement(
        1, (Configuration(1),) * 2, 1, "pp-inner", 2, ends, ("none",) * 2, schedule=schedule
    )
    found = evaluate(Costs(build(Problem, data, name)), placement).stages
    assert [stage.sync_ps for stage in found] == [6 * US, 6 * US]
    assert [stage.memory_terms_bytes["states"] for stage in found] == [
        18 * 2 * EMBEDDING,
        18 * (EMBEDDING + HEAD),
    ]


# Searches


@pytest.mark.parametrize("first", range(SEEDS.start, SEEDS.stop, SEEDS_A_TEST))
def test_dynamic_program_equals_brute_force(first: int) -> None:
    """Value and placement are those of brute force; evaluator and oracle agree."""
    for seed in thinned(range(first, first + SEEDS_A_TEST)):
        assert compare(tied_data(seed)).difference is None, f"seed {seed}"


@pytest.mark.parametrize("first", range(STAGED_SEEDS.start, STAGED_SEEDS.stop, SEEDS_A_TEST))
def test_staged_dynamic_program_equals_brute_force(first: int) -> None:
    """So it is where tp or sp may differ by stage, between ends of one tp."""
    for seed in thinned(range(first, first + SEEDS_A_TEST)):
        assert compare(tied_staged_data(seed)).difference is None, f"seed {seed}"


@pytest.mark.parametrize("first", range(SCHEDULE_SEEDS.start, SCHEDULE_SEEDS.stop, SEEDS_A_TEST))
def test_schedules_are_searched_alike(first: int) -> None:
    """So it is with other schedules, chunks included."""
    for seed in thinned(range(first, first + SEEDS_A_TEST)):
        assert compare(tied_schedule_data(seed)).difference is None, f"seed {seed}"


@of_all_seeds
def test_ties_matter() -> None:
    """The comparisons say something: without the ties the optimum is often another one.

    It is higher where the best plan has one stage, and lower where an exchange is paid.
    """
    values = []
    for seed in SEEDS[::3]:
        tied, alone = (
            solved(build(Problem, data, f"seed {seed}"))[0]
            for data in (tied_data(seed), untied(tied_data(seed)))
        )
        if tied is not None:
            values.append((tied, alone))
    assert len(values) > 40
    assert sum(alone is None or alone > tied for tied, alone in values) >= 4
    assert sum(alone is not None and alone < tied for tied, alone in values) >= 20


def test_program_equals_dynamic_program() -> None:
    """The integer program's optimum is that of the dynamic program and of brute force."""
    for seed in thinned(range(40)):
        found = compare_optimum(build(Problem, tied_whole_data(seed), f"seed {seed}"))
        assert found is None or found.difference is None, f"seed {seed}"


def test_every_fixed_placement_is_judged_and_valued_alike() -> None:
    """Fixed placements are feasible as the checker says, at the evaluator's value."""
    seen = illegal = 0
    for seed in range(40):
        problem = build(Problem, tied_whole_data(seed), f"seed {seed}")
        cells = [k for k in exact_coefficients(problem) or () if placement_count(k) <= 20]
        rng = random.Random(seed)
        found = compare_fixed(problem, rng.sample(cells, min(len(cells), 3)))
        assert found.difference is None, f"seed {seed}"
        seen, illegal = seen + found.placements, illegal + found.illegal
    assert seen >= 301
    assert 0.2 < illegal / seen < 0.8


def test_program_equals_brute_force_where_stages_choose() -> None:
    """With tp and sp by stage, program, dynamic program and brute force agree."""
    compared = 0
    for seed in thinned(range(40)):
        problem = build(Problem, tied_free_data(seed), f"seed {seed}")
        if not problem.search.per_stage:
            continue
        try:
            found = solve(problem).evaluation
        except InstanceError:
            continue
        value = None if found is None else found.value_ps
        result = exact(problem)
        assert brute_force(problem).value_ps == value, f"seed {seed}"
        assert result.value_ps == result.bound_ps == value, f"seed {seed}"
        compared += 1
    assert compared >= enough(13)


@pytest.mark.parametrize("first", range(0, 40, 10))
def test_free_program_equals_brute_force(first: int) -> None:
    """With any devices, value, bound and infeasibility are those of brute force."""
    for seed in thinned(range(first, first + 10)):
        problem = build(Problem, tied_free_data(seed), f"seed {seed}")
        try:
            best = free_brute_force(problem, MOST_ASSIGNMENTS)
        except InstanceError:
            continue
        if best is not None:
            found = exact(problem, family="free")
            assert found.value_ps == found.bound_ps == best.value_ps, f"seed {seed}"


def test_fixed_free_placements_are_judged_and_valued_alike() -> None:
    """On devices of a placement, a free program is feasible as the checker says, and valued so."""
    told = FreeComparison()
    for seed in thinned(range(60)):
        compare_free_fixed(build(Problem, tied_free_data(seed), f"seed {seed}"), f"{seed}", told)
    assert told.problems >= enough(40)
    assert 0.1 < told.illegal / told.placements < 0.9


def relaxed_value(costs: Costs, cell: FreeCell, keep: Callable[[str], bool]) -> float | None:
    """Return the value of a relaxed program with the counting rows whose text is kept."""
    formulation = build_program(costs, CoefficientSource(costs).of(cell), relaxed=True)
    for row in formulation.model.counting.values():
        if not keep(str(row.expr)):
            row.deactivate()
    answer = HighsSession(formulation.model).solve()
    return None if answer.solution is None else round(answer.solution.objective, 3)


def test_counting_the_ends_raises_bounds() -> None:
    """Rows (51) of runs that go round by the exchange lower no bound, and raise some."""
    raised = compared = 0
    for seed in thinned(range(40)):
        costs = Costs(build(Problem, tied_free_data(seed), f"seed {seed}"))
        try:
            cells = [cell for cell in free_cells(costs) if cell.stages > 1][:3]
        except InstanceError:
            continue
        for cell in cells:
            without, bound = (
                relaxed_value(costs, cell, keep)
                for keep in (lambda row: "exchange" not in row, lambda _: True)
            )
            if without is None or bound is None:
                assert without == bound, f"seed {seed}"
                continue
            assert bound >= without, f"seed {seed}"
            raised, compared = raised + (bound > without), compared + 1
    assert compared >= enough(30)
    assert raised >= enough(3)


@pytest.mark.parametrize("seed", thinned(range(0, 90, 3)))
def test_levels_are_those_of_the_devices(seed: int) -> None:
    """The level of the ends, found by arithmetic, is that of the devices of every block."""
    problem = build(Problem, tied_data(seed), f"seed {seed}")
    costs = Costs(problem)
    for cell in enumerate_cells(problem):
        if cell.device_map.stages > 1:
            vectors = LevelVectors(costs.network.spreads, cell.configuration)
            found = vectors.exchange_level(cell.device_map)
            assert found == exchange_level(costs.network, cell.device_map)
            # The bound of a group has the least level of ends so many blocks apart.
            span = (cell.device_map.stages - 1) * cell.configuration.block_size
            assert vectors.level_of_span(span) <= found


@pytest.mark.parametrize("make", [tied_data, tied_staged_data])
def test_a_diagnosis_names_the_least_memory(make: Any) -> None:
    """Where nothing fits, the bytes it names are enough, and one less is not."""
    told = 0
    for seed in range(100):
        data = make(seed)
        try:
            result = solve(build(Problem, data, "small"))
        except InstanceError:
            continue
        if result.diagnosis is None or result.diagnosis.memory_bytes is None:
            continue
        status = []
        for less in (0, 1):
            kind = data["cluster"]["device_kinds"]["device"]
            kind["memory_bytes"] = result.diagnosis.memory_bytes - less
            status.append(solve(build(Problem, data, "named")).status)
        assert status == ["optimal", "infeasible"], f"seed {seed}"
        told += 1
    assert told >= 6


@pytest.mark.parametrize("make", [tied_data, tied_staged_data])
def test_a_diagnosis_names_the_fewest_devices(make: Any) -> None:
    """Where some number of devices would do, that many do, and fewer do not."""
    told = 0
    for seed in thinned(range(180)):
        data = make(seed)
        try:
            result = solve(build(Problem, data, "small"))
        except InstanceError:
            continue
        devices = result.diagnosis and result.diagnosis.devices
        have = sum(group["count"] for group in data["cluster"]["devices"])
        if not devices or devices <= have or data.get("constraints"):
            continue
        levels = data["cluster"]["network"]["levels"]
        levels[-1]["size"] *= 1 + devices // have
        status = []
        for count in (devices, devices - 1):
            data["cluster"]["devices"] = [{"kind": "device", "count": count}]
            status.append(solve(build(Problem, data, "named")).status)
        assert status == ["optimal", "infeasible"], f"seed {seed}"
        told += 1
    assert told >= enough(2)


# What is refused, and files


def test_ends_of_two_widths_are_refused() -> None:
    """Checker, evaluator and program say no to ends of two tps, and the search has none."""
    data = data_of(tp=[1, 2], zero=[0], per_stage=["tp"])
    problem = build(Problem, data, "by stage")
    placement = placement_of(2, 1, tp=(1, 2))
    (violation,) = check(Costs(problem), placement)
    assert (violation.rule, violation.found) == (
        "degrees",
        "tp 1 in the first stage and 2 in the last",
    )
    with pytest.raises(PlanError, match="one tp is needed for both"):
        evaluate(Costs(problem), placement)
    free = build(Problem, untied(data), "untied")
    assert not check(Costs(free), placement)


def test_tables_with_ties_are_read_back() -> None:
    """A table with tied parameters is the one that was written."""
    table = build_cost_table(problem_of(tp=[1, 2]))
    assert table_from_json(table_to_json(table)) == table
    assert "tied" not in table_to_json(build_cost_table(build(Problem, untied(data_of()), "no")))


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("row",), 1),
        (("row",), None),
        (("exchange",), []),
        (("exchange", 0, "tp"), 3),
        (("exchange", 0, "share"), 0),
        (("exchange", 0, "level"), 2),
        (("exchange", 0, "exchange_ps"), -1),
        (("exchange", 0, "exchange_ps"), MAX_TOTAL - 1),
        (("exchange", 1, "exchange_ps"), 0),
        (("surprise",), 1),
    ],
)
def test_malformed_ties_of_a_table_are_refused(place: tuple[Any, ...], value: Any) -> None:
    """A wrong row, exchange, share, level or time is refused, and so is an unknown field."""
    data = table_to_json(build_cost_table(problem_of(zero=[0])))
    holder = data["tied"]
    for key in place[:-1]:
        holder = holder[key]
    holder[place[-1]] = value
    with pytest.raises(InstanceError):
        table_from_json(data)


def test_ties_of_a_table_are_not_more_than_there_is() -> None:
    """A last layer that needs less than without its tied parameters is refused."""
    written = table_to_json(build_cost_table(problem_of(zero=[0])))
    for rows in (written["pairs"][0]["states_bytes"], written["sync"][-1]["row_ps"]):
        data = copy.deepcopy(written)
        kept, rows[2] = rows[2], rows[1] + 1
        with pytest.raises(InstanceError, match="which has more parameters"):
            table_from_json(written)
        rows[2] = kept
        assert table_digest(table_from_json(data)) == table_digest(table_from_json(written))


@pytest.mark.parametrize("model", ["gpt3-175b", "bert-large", "qwen3-0.6b"])
def test_derived_heads_name_their_ties(model: str) -> None:
    """All layers less the tied parameters are the model's parameters, exactly."""
    derived = derive_problem(
        Request(model=model, cluster="dgx-h100", devices=8, microbatches=(1,), global_batch=8)
    )
    profiles = [kind.by_key[1, Configuration(1)] for kind in derived.problem.model.types]
    dense = sum(profile.dense_parameters for profile in profiles)
    assert [bool(profile.tied_parameters) for profile in profiles] == [False] * (
        len(profiles) - 1
    ) + [True]
    assert dense - profiles[-1].tied_parameters == parameters(derived.spec)


def test_the_command_line_shows_the_exchange(tmp_path: Any) -> None:
    """The terms of a stage name the exchange, its level and its time."""
    path = write(tmp_path / "tied.json", data_of(zero=[0], pp=[2], dp=[1]))
    text = run("solve", path, "--explain").stdout
    assert TIED in text
