"""The artifact's baselines, as released and as corrected, and the page about them."""

import csv
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from random_instances import random_artifact_data

from nest_opt import InstanceError, Problem
from nest_opt.models.nest_artifact import read_baselines
from nest_opt.plan.evaluate import Costs
from nest_opt.planners.artifact_baselines import (
    Fixed,
    corrected_placement,
    corrected_score,
    layer_counts,
    released_score,
)
from nest_opt.problem.validation import build

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def program() -> ModuleType:
    """Return the benchmark as a module."""
    folder = ROOT / "benchmarks"
    sys.path.append(str(folder))
    try:
        place = folder / "paper_rescore.py"
        spec = importlib.util.spec_from_file_location("paper_rescore", place)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        # Dataclasses look their module up.
        sys.modules["paper_rescore"] = module
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(folder))
    return module


@pytest.fixture(scope="module")
def scored(program: ModuleType, shared_data: Path) -> Any:
    """Return the scores of every input, and the recorded rows."""
    return program.all_scores(shared_data / "nest", search=False)


def test_every_recorded_baseline_is_met(program: ModuleType, scored: Any) -> None:
    """100 rows as released and 112 as corrected have the recorded times, or no plan as there."""
    counts, off = program.mismatches(*scored)
    assert counts == {"released": 100, "corrected": 112}
    assert off == []


def test_the_release_gives_what_is_published(program: ModuleType, scored: Any) -> None:
    """All figures but seven that the page names, to the last digit."""
    same, figures, other = program.agreement(scored[0])
    assert (same, figures) == (132, 139)
    assert {line.partition(":")[0] for line in other} == {
        f"figure 5, tpuv4_fatTree__{name}"
        for name in (
            "mixtral__mbs1__1024, Manual",
            "mixtral__mbs1__1024, MCMC",
            "gpt3__mbs1__512, MCMC",
            "gpt3__mbs1__512, NEST",
            "gpt3__mbs1__1024, MCMC",
            "gpt3__mbs1__1024, Phaze",
            "gpt3__mbs1__1024, NEST",
        )
    }


def test_the_page_shows_the_tables(program: ModuleType, scored: Any) -> None:
    """docs/paper.md has the tables that the program makes, and the CSV file its multiples."""
    page = (ROOT / "docs" / "paper.md").read_text(encoding="utf-8")
    shown = page.partition("<!-- artifact -->")[2].partition("<!-- end of artifact -->")[0]
    assert shown.strip() == "\n".join(program.tables(scored[0])).strip()
    with (ROOT / "docs" / "figures" / "paper_artifact.csv").open(newline="") as file:
        header, *rows = csv.reader(file)
    assert tuple(header) == program.Multiple._fields
    assert rows == [list(map(str, each)) for each in program.multiples(scored[0])]


def test_layers_run_out() -> None:
    """ceil(L / p) layers a stage, from the first on; a partition of p entries is taken as it is."""
    assert layer_counts(6, 3) == (2, 2, 2)
    assert layer_counts(7, 3) == (3, 3, 1)
    assert layer_counts(6, 4) == (2, 2, 2, 0)
    assert layer_counts(8, 5) == (2, 2, 2, 2, 0)
    assert layer_counts(5, 3, (1, 1, 3)) == (1, 1, 3)
    assert layer_counts(6, 3, (1, 5)) == (2, 2, 2)


def chain(layers: int, recompute: str, memory_bytes: int = 10**6) -> Problem:
    """Return an artifact's problem: an embedding of no time, then layers of 1 s and 2 s.

    Links take no time, a layer has 10 bytes of weights and 100 of activations.
    """
    levels = [
        {"name": "all", "size": 8, "bandwidth_bytes_per_s": 10**12, "latency_s": 0},
    ]

    def kind(forward_s: int, backward_s: int) -> dict[str, Any]:
        profile = {
            "microbatch": 1,
            "forward_s": forward_s,
            "backward_input_s": backward_s,
            "backward_weight_s": 0,
            "dense_parameters": 10,
            "recompute": {
                "none": {"stash_bytes": 100},
                "full": {"stash_bytes": 0, "work_bytes": 100},
            },
        }
        return {"output_bytes": {"1": 0}, "profiles": [profile]}

    data = {
        "name": "chain",
        "model": {
            "layer_types": {"embedding": kind(0, 0), "block": kind(1, 2)},
            "layers": [
                {"id": "-1", "type": "embedding"},
                *({"id": str(place), "type": "block"} for place in range(layers)),
            ],
        },
        "cluster": {
            "device_kinds": {"device": {"memory_bytes": memory_bytes}},
            "devices": [{"kind": "device", "count": 8}],
            "network": {"type": "hierarchical", "levels": levels},
        },
        "job": {
            "global_batch": 10,
            "bytes_per_parameter": {"weights": 1, "gradients": 1, "optimizer": 0},
            "objective": "nest",
            "pad": True,
            "cost_model": "artifact",
        },
        "search": {
            "microbatch": [1],
            "recompute": [recompute],
            "order": ["pp-inner"],
            "pitch": ["tight"],
        },
    }
    return build(Problem, data, "chain")


def test_the_last_stage_has_one_layer_more() -> None:
    """Four layers on two stages: two of 3 s each as meant, three in the last as released."""
    costs = Costs(chain(4, "none"))
    fixed = Fixed(1, 1, layer_counts(4, 2))
    # (10 + 2 - 1) rounds of the slowest stage.
    assert corrected_score(costs, fixed).value_ps == 11 * 6 * 10**12
    assert released_score(costs, fixed).value_ps == 11 * 9 * 10**12
    assert corrected_placement(costs, fixed).ends == (3, 5)


def test_the_wrong_end_recomputes() -> None:
    """With recomputation a stage but the last repeats 2 s a layer; as released, but the first."""
    costs = Costs(chain(4, "full"))
    fixed = Fixed(1, 1, layer_counts(4, 2))
    assert corrected_score(costs, fixed).value_ps == 11 * (6 + 4) * 10**12
    assert released_score(costs, fixed).value_ps == 11 * (9 + 6) * 10**12


def test_memory_is_taken_from_the_wrong_end() -> None:
    """The last of three stages is charged for two stashes more, the first for none."""
    fixed = Fixed(1, 1, (3, 1, 1))
    # The first stage: embedding and 3 layers, 4 * (20 + 100) bytes and 2 * 400 of stashes.
    for memory_bytes, expected in ((1280, None), (1279, "memory")):
        costs = Costs(chain(5, "none", memory_bytes))
        assert corrected_score(costs, fixed).reason == expected
    # As released: 3 * 120; 1 * 120 + 100; 2 * 120 + 2 * 200 bytes.
    for memory_bytes, expected in ((640, None), (639, "memory")):
        costs = Costs(chain(5, "none", memory_bytes))
        assert released_score(costs, fixed).reason == expected


def test_stages_without_layers() -> None:
    """Left out as corrected; as released the last one has the layer left over, others crash."""
    costs = Costs(chain(4, "none"))
    one, two = Fixed(1, 1, layer_counts(4, 3)), Fixed(1, 1, (2, 2, 0, 0))
    assert one.counts == (2, 2, 0)
    assert corrected_score(costs, one).value_ps == 11 * 6 * 10**12
    assert released_score(costs, one).value_ps == 12 * 6 * 10**12
    assert corrected_score(costs, two).value_ps == 11 * 6 * 10**12
    assert released_score(costs, two).reason == "empty stage"


def test_too_many_devices() -> None:
    """More devices than there are is no plan, either way."""
    costs = Costs(chain(4, "none"))
    fixed = Fixed(1, 5, layer_counts(4, 2))
    assert corrected_score(costs, fixed).reason == "devices"
    assert released_score(costs, fixed).reason == "devices"


def test_equal_where_the_slips_change_nothing() -> None:
    """One stage has no order, and no layer can be in another: both scores are the same."""
    met = 0
    for seed in range(20):
        problem = build(Problem, random_artifact_data(seed), f"seed {seed}")
        costs = Costs(problem)
        layers = len(problem.model.ids) - 1
        if layers < 1 or 1 not in {k.tp for _, k in problem.candidates}:
            continue
        for replicas in (1, 2, 3):
            fixed = Fixed(1, replicas, (layers,))
            scores = corrected_score(costs, fixed), released_score(costs, fixed)
            assert scores[0].value_ps == scores[1].value_ps
            assert (scores[0].reason is None) == (scores[1].reason is None)
            met += scores[0].value_ps is not None
    assert met > 5


def test_baselines_of_a_file_are_read(tmp_path: Path) -> None:
    """Names, degrees and partition; none where the file has none, an error where they are wrong."""
    path = tmp_path / "input.json"
    path.write_text(
        '{"baselines": {"MCMC": {"num_transformer_layers": 4, "p": 2, "d": 3, "t": 1, '
        '"layer_partition": [1, 3]}}}'
    )
    (baseline,) = read_baselines(path).values()
    assert (baseline.layers, baseline.pp, baseline.dp, baseline.tp) == (4, 2, 3, 1)
    assert baseline.partition == (1, 3)
    path.write_text("{}")
    assert read_baselines(path) == {}
    path.write_text('{"baselines": {"MCMC": {"p": 0}}}')
    with pytest.raises(InstanceError, match="baselines"):
        read_baselines(path)
