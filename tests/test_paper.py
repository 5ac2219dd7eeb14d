"""The paper instances: derived by their script, and right in their counts."""

import subprocess
import sys
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest

from nest_opt import Problem
from nest_opt.problem import Configuration, Profile
from nest_opt.problem.files import read_problem

PAPER = Path(__file__).resolve().parent.parent / "instances" / "paper"
PATHS = sorted(PAPER.glob("*.json"))
LARGEST_FILE = 150_000

# FLOP/s of an H100 (dense bf16) and the share of them that derive.py assumes.
ATTAINED_FLOPS = Fraction(989 * 10**12, 2)


def paper(name: str) -> Problem:
    """Return a paper instance."""
    return read_problem(PAPER / f"{name}.json")


def profile(problem: Problem, kind: str, microbatch: int, tp: int = 1, ep: int = 1) -> Profile:
    """Return a profile of a layer type."""
    return problem.model.layer_types[kind].by_key[microbatch, Configuration(tp, 1, ep)]


def parameters(problem: Problem) -> int:
    """Return the parameters of all layers, unsplit."""
    profiles = [kind.by_key[1, Configuration(1)] for kind in problem.model.types]
    return sum(p.dense_parameters + p.expert_parameters for p in profiles)


def test_committed_instances_are_the_derived_ones() -> None:
    """`derive.py --check` finds no difference, and every file is small."""
    subprocess.run([sys.executable, str(PAPER / "derive.py"), "--check"], check=True)
    assert len(PATHS) == 8
    assert all(path.stat().st_size < LARGEST_FILE for path in PATHS)


@pytest.mark.parametrize(
    ("name", "published"),
    [
        # Parameters of the released checkpoints.
        ("llama-2-7b-h100-64", 6_738_415_616),
        ("llama-3-70b-h100-64", 70_553_706_496),
        ("mixtral-8x7b-h100-64", 46_702_792_704),
        # L (12 h^2 + 13 h) + (V + s) h (Narayanan et al. 2021, eq. 2), a second copy of
        # the V h of embedding and head, and the final norm.
        ("gpt-3-175b-h100-64", 96 * (12 * 12288**2 + 13 * 12288) + (2 * 51200 + 2050) * 12288),
        # The same, with two segment embeddings.
        ("bert-large-h100-64", 24 * (12 * 1024**2 + 13 * 1024) + (2 * 30528 + 516) * 1024),
    ],
)
def test_parameters_are_the_published_ones(name: str, published: int) -> None:
    """All layers together have the published number of parameters."""
    assert parameters(paper(name)) == published


@pytest.mark.parametrize(
    ("name", "flops"),
    [
        # Forward and backward, per sequence: s (12 L h^2 (1 + k/a + s/2h) + 18 L f h K + 6 V h)
        # with causal attention; router 6 L s h E.
        (
            "llama-2-7b-h100-64",
            4096 * (12 * 32 * 4096**2 * Fraction(5, 2) + 18 * 32 * 11008 * 4096 + 6 * 32000 * 4096),
        ),
        (
            "llama-3-70b-h100-64",
            8192
            * (12 * 80 * 8192**2 * Fraction(13, 8) + 18 * 80 * 28672 * 8192 + 6 * 128256 * 8192),
        ),
        (
            "mixtral-8x7b-h100-64",
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
            "gpt-3-175b-h100-64",
            72
            * 96
            * 2048
            * 12288**2
            * (1 + Fraction(2048, 12 * 12288) + Fraction(51200, 12 * 12288 * 96)),
        ),
        # Bidirectional.
        (
            "bert-large-h100-64",
            72
            * 24
            * 512
            * 1024**2
            * (1 + Fraction(512, 6 * 1024) + Fraction(30528, 12 * 1024 * 24)),
        ),
    ],
)
def test_times_are_the_published_flops_at_half_the_peak(name: str, flops: Fraction) -> None:
    """Blocks and head of one sequence take the FLOPs of the published formula, to the rounding."""
    problem = paper(name)
    kinds = [kind for entry in problem.model.layers for kind in [entry.type] * entry.repeat]
    profiles = [profile(problem, kind, 1) for kind in kinds if kind != "embedding"]
    total = sum(p.forward_s + p.backward_input_s + p.backward_weight_s for p in profiles)
    assert problem.model.flops_per_sequence == flops
    # Three times a layer, each rounded to a picosecond.
    assert abs(Fraction(total) - flops / ATTAINED_FLOPS) <= len(profiles) * Fraction(3, 2 * 10**12)


def test_activation_bytes_are_those_of_korthikanti() -> None:
    """A GPT-3 block keeps sbh (10 + 24/t) bytes, with full recomputation 2sbh."""
    problem = paper("gpt-3-175b-h100-64")
    for microbatch in (1, 2, 4):
        for tp in (1, 2, 4, 8):
            footprints = profile(problem, "block", microbatch, tp).recompute
            element = 2048 * microbatch * 12288
            assert footprints["none"].stash_bytes == element * (10 + 24 // tp)
            assert footprints["full"].stash_bytes == 2 * element


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_tensor_parallelism_splits_and_communicates(path: Path) -> None:
    """A block's compute falls as 1/t; it all-reduces 2sbh bytes twice in each phase."""
    problem = read_problem(path)
    one, eight = profile(problem, "block", 2), profile(problem, "block", 2, tp=8)
    router = Decimal("0.01") if problem.model.experts else Decimal(0)
    assert abs(8 * eight.forward_s / one.forward_s - 1) <= router + Decimal("1e-6")
    assert one.collectives == ()
    hidden = problem.model.layer_types["block"].output_bytes["2"]
    calls = [c for c in eight.collectives if c.group == "tp"]
    assert [(c.phase, c.bytes, c.count) for c in calls] == [
        ("forward", hidden, 2),
        ("backward", hidden, 2),
    ]


def test_experts_are_split_and_exchanged() -> None:
    """Mixtral's experts fall as 1/ep; two all-to-alls a phase move every token twice (K = 2)."""
    problem = paper("mixtral-8x7b-h100-64")
    one, eight = profile(problem, "block", 1), profile(problem, "block", 1, ep=8)
    assert eight.expert_parameters * 8 == one.expert_parameters == 8 * 3 * 4096 * 14336
    assert eight.dense_parameters == one.dense_parameters
    assert eight.forward_s == one.forward_s
    hidden = problem.model.layer_types["block"].output_bytes["1"]
    assert [(c.operation, c.phase, c.bytes, c.count) for c in eight.collectives] == [
        ("all-to-all", "forward", 2 * hidden, 2),
        ("all-to-all", "backward", 2 * hidden, 2),
    ]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_note_says_what_is_guessed(path: Path) -> None:
    """The note names source, byte convention and guesses; the job has that convention."""
    problem = read_problem(path)
    assert all(
        word in problem.note for word in ("arXiv:", "2 + 2 + 12", "Guesses:", "half the peak")
    )
    assert problem.job.bytes_per_parameter.total == 16
