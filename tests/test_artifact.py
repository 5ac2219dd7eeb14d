"""The artifact's inputs: exact values, counterexamples, refusals."""

import csv
from pathlib import Path

import pytest

from nest_opt import InstanceError, Plan, solve, verify
from nest_opt.models.nest_artifact import read_nest_artifact
from nest_opt.plan.plan import PlanStage

INFEASIBLE = "tpuv4_fatTree_mbs8__llama2__mbs8__256"

COUNTEREXAMPLES = {
    "01_first_stage_link_ignored": 28_000_000_000_000,
    "02_lossy_dp_update": 29_250_000_000_000,
    "03_replica_spacing": 24_000_000_000_000,
    "04a_nonmonotone_N8": 36_000_000_000_000,
    "04b_nonmonotone_small": 36_000_000_000_000,
    "10_two_levels_segfault": 8_062_500_000_000,
    "13_branching_graph_fail": 8_750_000_000_000,
}


def results(shared_data: Path, method: str) -> dict[str, dict[str, str]]:
    """Return the rows of results.csv of one method, by input file stem."""
    with (shared_data / "nest" / "results.csv").open() as file:
        return {
            f"{row['setup']}__{row['model']}__mbs{row['mbs']}__{row['devices']}": row
            for row in csv.DictReader(file)
            if row["method"] == method
        }


def half_last_digit(text: str) -> float:
    """Return half a unit of the last printed digit of a decimal number."""
    decimals = len(text.partition(".")[2])
    return 0.5 * 10.0**-decimals


def test_every_exact_row_is_met(shared_data: Path) -> None:
    """All 56 inputs with an exact value are solved to it, and none is above the NEST row."""
    exact = results(shared_data, "EXACT-same-cost-model")
    nest = results(shared_data, "NEST")
    inputs = sorted((shared_data / "nest" / "inputs").glob("*.json"))
    assert len(exact) == 56
    assert {path.stem for path in inputs} == {*exact, INFEASIBLE}
    for path in inputs:
        if path.stem == INFEASIBLE:
            continue
        result = solve(read_nest_artifact(path))
        assert result.status == "optimal"
        assert result.evaluation is not None
        value = result.evaluation.value_ps / 1e12
        assert value == pytest.approx(float(exact[path.stem]["time_per_batch_s"]), rel=1e-9)
        printed = nest[path.stem]["time_per_batch_s"] if path.stem in nest else ""
        if printed:
            limit = float(printed) * (1 + 1e-9) + half_last_digit(printed)
            assert value <= limit


def test_printed_exact_plans_evaluate_to_their_value(shared_data: Path) -> None:
    """The evaluator gives each exact row's printed plan the row's value."""
    for stem, row in results(shared_data, "EXACT-same-cost-model").items():
        problem = read_nest_artifact(shared_data / "nest" / "inputs" / f"{stem}.json")
        counts = [int(part.split("x")[0]) for part in row["stages"].split()]
        recomputes = problem.search.recompute == ("full",)
        ids, stages = list(problem.model.ids), []
        for place, count in enumerate(counts):
            last = place == len(counts) - 1
            mode = "full" if recomputes and not last else "none"
            stages.append(PlanStage(layers=tuple(ids[:count]), recompute=mode))
            ids = ids[count:]
        tp, ep = int(row["t"]), problem.search.ep[0]  # type: ignore[index]
        plan = Plan(
            problem=problem,
            microbatch=1,
            tp=tp,
            ep=ep,
            dp=int(row["d"]),
            order="pp-inner-reversed",
            pitch=tp * ep * len(counts),
            stages=tuple(stages),
        )
        result = verify(plan)
        assert not result.violations
        assert result.evaluation is not None
        value = result.evaluation.value_ps / 1e12
        assert value == pytest.approx(float(row["time_per_batch_s"]), rel=1e-9)


@pytest.mark.parametrize("name", COUNTEREXAMPLES)
def test_counterexamples_reach_the_true_optimum(shared_data: Path, name: str) -> None:
    """The instances on which the artifact's own DP errs are solved exactly."""
    folder = shared_data / "nest" / "counterexamples"
    result = solve(read_nest_artifact(folder / f"{name}.json"))
    assert result.evaluation is not None
    assert result.evaluation.value_ps == COUNTEREXAMPLES[name]


def test_more_devices_than_the_network_is_refused(shared_data: Path) -> None:
    """Sixteen devices in a network of eight are refused with both numbers."""
    folder = shared_data / "nest" / "counterexamples"
    with pytest.raises(InstanceError, match=r"found 16, at most 8 are allowed"):
        read_nest_artifact(folder / "11_more_devices_than_network_segfault.json")


def test_llama2_at_microbatch_8_is_infeasible_and_says_why(shared_data: Path) -> None:
    """One block is too large for a device: the diagnosis names it and the bytes needed."""
    path = shared_data / "nest" / "inputs" / f"{INFEASIBLE}.json"
    result = solve(read_nest_artifact(path, microbatch=8))
    assert result.status == "infeasible"
    diagnosis = result.diagnosis
    assert diagnosis is not None
    assert diagnosis.heaviest is not None
    assert diagnosis.heaviest.memory_bytes > diagnosis.heaviest.usable_bytes
    assert diagnosis.memory_bytes == diagnosis.heaviest.memory_bytes
    assert diagnosis.devices is None
