"""The paper instances: derived by their program, and right in their counts."""

import importlib.util
import json
from fractions import Fraction
from pathlib import Path

import pytest

from nest_opt import Problem
from nest_opt.problem import Configuration
from nest_opt.problem.files import read_problem

ROOT = Path(__file__).resolve().parent.parent
PAPER = ROOT / "instances" / "paper"


def paper(name: str) -> Problem:
    """Return the instance of a model on 64 H100."""
    return read_problem(PAPER / f"{name}-dgx-h100-64.json")


def test_committed_instances_are_the_derived_ones() -> None:
    """Five models on three clusters of five sizes, each file as the program writes it."""
    place = ROOT / "benchmarks" / "paper_instances.py"
    spec = importlib.util.spec_from_file_location("paper_instances", place)
    assert spec is not None
    assert spec.loader is not None
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    derived = dict(program.instances())
    assert set(derived) == set(PAPER.glob("*.json"))
    assert len(derived) == 75
    for path, text in derived.items():
        assert path.read_text() == text


@pytest.mark.parametrize(
    ("name", "published"),
    [
        # Parameters of the released checkpoints.
        ("llama-2-7b", 6_738_415_616),
        ("llama-3-70b", 70_553_706_496),
        ("mixtral-8x7b", 46_702_792_704),
        # L (12 h^2 + 13 h) + (V + s) h (Narayanan et al. 2021, eq. 2) and the final norm.
        ("gpt-3-175b", 96 * (12 * 12288**2 + 13 * 12288) + (50257 + 2048 + 2) * 12288),
    ],
)
def test_parameters_are_the_published_ones(name: str, published: int) -> None:
    """All layers together have the published number of parameters, tied ones once."""
    profiles = [kind.by_key[1, Configuration(1)] for kind in paper(name).model.types]
    every = sum(p.dense_parameters + p.expert_parameters for p in profiles)
    assert every - sum(p.tied_parameters for p in profiles) == published


@pytest.mark.parametrize(
    ("name", "flops"),
    [
        # Forward and backward, per sequence: s (12 L h^2 (1 + k/a + s/2h) + 18 L f h K + 6 V h)
        # with causal attention; router 6 L s h E.
        (
            "llama-2-7b",
            4096 * (12 * 32 * 4096**2 * Fraction(5, 2) + 18 * 32 * 11008 * 4096 + 6 * 32000 * 4096),
        ),
        (
            "llama-3-70b",
            4096
            * (12 * 80 * 8192**2 * Fraction(11, 8) + 18 * 80 * 28672 * 8192 + 6 * 128256 * 8192),
        ),
        (
            "mixtral-8x7b",
            4096
            * (
                12 * 32 * 4096**2 * Fraction(7, 4)
                + 2 * 18 * 32 * 14336 * 4096
                + 6 * 32000 * 4096
                + 6 * 32 * 4096 * 8
            ),
        ),
        # 72 L s h^2 (1 + s/6h + V/12hL) (Korthikanti et al. 2022, eq. 7), causal: s/12h.
        (
            "gpt-3-175b",
            72
            * 96
            * 2048
            * 12288**2
            * (1 + Fraction(2048, 12 * 12288) + Fraction(50257, 12 * 12288 * 96)),
        ),
        # Bidirectional; the head's transform of h x h on every token, and the pooler of
        # h x h and the classifier of 2 x h on one.
        (
            "bert-large",
            72
            * 24
            * 512
            * 1024**2
            * (1 + Fraction(512, 6 * 1024) + Fraction(30522, 12 * 1024 * 24))
            + 6 * 512 * 1024**2
            + 6 * (1024**2 + 2 * 1024),
        ),
    ],
)
def test_flops_are_those_of_published_formulas(name: str, flops: Fraction) -> None:
    """Model FLOPs of a sequence are exactly those of the published formula."""
    assert paper(name).model.flops_per_sequence == flops


def test_experts_are_split_and_exchanged() -> None:
    """Mixtral's experts fall as 1/ep; two all-to-alls a phase move every token twice (K = 2)."""
    types = paper("mixtral-8x7b").model.layer_types
    one, eight = (types["experts"].by_key[1, Configuration(1, 1, ep)] for ep in (1, 8))
    assert eight.expert_parameters * 8 == one.expert_parameters == 8 * 3 * 4096 * 14336
    assert eight.dense_parameters == one.dense_parameters
    hidden = types["experts"].output_bytes["1"]
    assert [(c.operation, c.phase, c.bytes, c.count) for c in eight.collectives] == [
        ("all-to-all", "forward", 2 * hidden, 2),
        ("all-to-all", "backward", 2 * hidden, 2),
    ]


@pytest.mark.parametrize("path", sorted(PAPER.glob("*-64.json")), ids=lambda path: path.stem)
def test_batch_and_length_are_stated(path: Path) -> None:
    """Each instance states the global batch of 4,096 sequences and the sequence length."""
    problem = read_problem(path)
    lengths = {"bert": 512, "gpt": 2048, "llama": 4096, "mixtral": 4096}
    assert problem.job.global_batch == 4096
    assert problem.job.sequence_length == lengths[path.stem.partition("-")[0]]
    assert problem.job.bytes_per_parameter.total == 18


def test_the_page_shows_the_best_known_plans() -> None:
    """Each instance has its row with the recorded value; rows outside 30 to 65% are named."""
    page = (ROOT / "docs" / "paper_plans.md").read_text()
    outside = page.partition("<!-- outside -->")[2].partition("<!-- table -->")[0]
    table, _, a100 = page.partition("<!-- table -->")[2].partition("## On A100")
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if "%" in line]
    shown = {cells[0]: cells[2].removesuffix(" s") for cells in rows}
    recorded = json.loads((ROOT / "instances" / "best_known.json").read_text())["instances"]
    values = {
        name.removeprefix("paper/"): int(entry["objective"]["value_ps"]) / 1e12
        for name, entry in recorded.items()
        if name.startswith("paper/")
    }
    assert shown == {name: f"{value:.3f}" for name, value in values.items()}
    named = [(cells[0], cells[3]) for cells in rows]
    for line in a100.splitlines():
        if "%" in line:
            cells = line.strip("| ").split(" | ")
            named.append((f"{cells[0]}-dgx-a100-{cells[1]}", cells[4]))
    assert len(named) == 100
    for name, share in named:
        assert (30 <= int(share.strip("% |")) <= 65) != (f"`{name}`" in outside)
