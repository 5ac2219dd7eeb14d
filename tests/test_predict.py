"""Predictions of runs as launchers state them: the same cost model, every degree fixed."""

from dataclasses import replace
from fractions import Fraction

import pytest

from nest_opt import InstanceError, RunConfiguration, predict, verify
from nest_opt.models.hardware import find_accelerator
from nest_opt.prediction.predict import Prediction

GPT_175B = RunConfiguration(
    model="gpt3-175b",
    cluster="dgx-a100",
    devices=1024,
    tp=8,
    pp=16,
    global_batch=1536,
    recompute="full",
    zero=1,
)


@pytest.fixture(scope="module")
def gpt() -> Prediction:
    """Return the prediction of a GPT of 175 billion parameters on 1,024 devices."""
    return predict(GPT_175B)


def test_the_plan_of_a_run_verifies_to_the_same_value(gpt: Prediction) -> None:
    """`verify` finds no violation in the run's plan and the value that its claim states."""
    result = verify(gpt.plan())
    assert result.violations == ()
    assert result.evaluation is not None
    assert result.evaluation.value_ps == gpt.formula_ps


def test_layers_are_split_equally_and_ranks_are_in_the_launchers_order(gpt: Prediction) -> None:
    """Each stage has 6 blocks, ends besides, and replicas are inside stages."""
    plan = gpt.plan()
    assert [len(stage.layers) for stage in plan.stages] == [7, *[6] * 14, 7]
    assert (plan.order, plan.pitch, plan.dp) == ("dp-inner", 8 * 8, 8)


def test_rates_name_their_conventions(gpt: Prediction) -> None:
    """Model FLOPs of a GPT are 72 B s l h^2 (1 + s / 6h + V / 12lh), 96 with recomputation.

    Narayanan et al., arXiv:2104.04473, appendix, which counts no mask. The
    catalogue's vocabulary is not padded, so V is its own.
    """
    batch, s, layers, h, v = 1536, 2048, 96, 12288, 50257
    squares = {"full": Fraction(1), "causal": Fraction(1, 2)}
    for rate in gpt.rates:
        passes = 4 if rate.recomputation else 3
        blocks = passes * 24 * (1 + squares[rate.attention] * Fraction(s, 6 * h))
        head = Fraction(3 * 24 * v, 12 * layers * h)
        assert rate.flops == batch * s * layers * h * h * (blocks + head)
        assert rate.flops_per_s == pytest.approx(rate.flops / gpt.iteration_s / 1024)
    assert len(gpt.rates) == 4


def test_bubble_and_sync_are_what_is_left_of_the_iteration(gpt: Prediction) -> None:
    """Under 1F1B with nearly equal stages the bubble is close to (p - 1) / (m + p - 1)."""
    assert gpt.simulation is not None
    assert gpt.busy_ps == 192 * max(stage.time_ps for stage in gpt.evaluation.stages)
    assert gpt.simulation.compute_ps + gpt.exposed_sync_ps + gpt.step_ps == gpt.iteration_ps
    assert gpt.bubble_share == pytest.approx(15 / (192 + 15), rel=0.1)


def test_hops_that_keep_no_stage_busy_are_bubble_where_they_are_waited_for() -> None:
    """With one microbatch on slow links a stage works a p-th of the time, less the hops."""
    run = replace(GPT_175B, pp=8, tp=1, devices=64, global_batch=8, zero=0)
    blocking, delay = predict(run), predict(run, hops="delay")
    assert delay.simulation is not None
    assert delay.busy_ps == max(delay.simulation.busy_ps) < blocking.busy_ps
    assert delay.bubble_share > blocking.bubble_share


def test_a_run_that_does_not_fit_is_predicted() -> None:
    """Without recomputation or sharding the same run takes more memory than there is."""
    found = predict(replace(GPT_175B, tp=1, pp=1, recompute="none", zero=0, devices=8))
    assert not found.fits
    assert found.iteration_ps > 0
    assert found.peak_bytes == found.memory[0].used_bytes > found.memory[0].usable_bytes


def test_the_closed_form_stands_where_nothing_is_simulated() -> None:
    """Without a simulation the schedule takes what `fill-drain` says."""
    found = predict(GPT_175B, simulate=False)
    assert found.simulation is None
    assert found.schedule_ps == found.formula_ps == found.evaluation.value_ps


def test_the_optimizer_step_follows_the_schedule() -> None:
    """A shard's 28 bytes per parameter (2 + 2 + 2 * 12) pass memory, after what is fixed."""
    found = predict(replace(GPT_175B, bytes_per_parameter=16), simulate=False)
    assert found.iteration_ps == found.schedule_ps + found.step_ps
    h, vocabulary, copies = 12288, 50257, 8
    shard = (6 * 12 * h * h + vocabulary * h) / 8 / copies
    fixed = float(find_accelerator("a100-80").batch_s.value)
    expected = fixed + 28 * shard / (2039e9 * 0.824)
    assert found.step_ps / 10**12 == pytest.approx(expected, rel=0.01)


def test_overlap_hides_gradients_behind_the_last_backward_pass() -> None:
    """What is left of the synchronisation shrinks by no more than a microbatch's backward pass."""
    plain = predict(replace(GPT_175B, pp=1, devices=64, global_batch=32), simulate=False)
    hidden = predict(replace(plain.run, overlap_gradients=True), simulate=False)
    backward = plain.evaluation.stages[0].time_terms_ps["backward"]
    saved = plain.iteration_ps - hidden.iteration_ps
    assert saved == min(plain.exposed_sync_ps, backward) > 0


def test_selective_recomputation_with_flash_attention_is_none() -> None:
    """Flash attention keeps no scores: nothing is repeated, and nothing is saved."""
    small = replace(GPT_175B, recompute="selective", pp=8)
    plain = predict(replace(small, recompute="none"))
    assert predict(small).iteration_ps == plain.iteration_ps


def test_stage_layers_are_those_stated() -> None:
    """Launchers may put fewer blocks on the ends."""
    found = predict(replace(GPT_175B, pp=4, devices=256, stage_layers=(22, 26, 26, 22)))
    assert [len(stage.layers) for stage in found.plan().stages] == [23, 26, 26, 23]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"dp": 9}, ("devices", "1024", "1152", "dp 9")),
        ({"tp": 5, "devices": 5 * 16 * 8}, ("tp", "5", "96", "heads")),
        ({"pp": 64}, ("layers", "96", "64", "pp 64")),
        ({"virtual_stages": 5}, ("layers", "96", "80", "virtual stages 5")),
        ({"microbatch": 5}, ("global batch", "1536", "40", "microbatch 5")),
        ({"tp": 3, "pp": 16, "devices": 1000}, ("devices", "1000", "48")),
        ({"model": "mixtral-8x7b", "ep": 8, "pp": 32}, ("ep", "8", "dp 4")),
        ({"ep": 2}, ("ep", "2", "1", "experts")),
        ({"tp": 1, "sequence_parallel": True}, ("sequence parallelism", "tp 1")),
        ({"schedule": "interleaved"}, ("virtual stages", "1", "interleaved")),
        ({"virtual_stages": 3, "global_batch": 1528}, ("microbatches", "191", "16")),
        ({"sequence_length": 2047, "sequence_parallel": True}, ("2047", "multiple of 8", "tp 8")),
        ({"stage_layers": (96,)}, ("stage layers", "1", "16")),
        ({"stage_layers": (7, *[6] * 15)}, ("stage layers", "97", "96")),
        ({"zero": 4}, ("zero", "4")),
        ({"zero": True}, ("zero", "True")),
        ({"algorithms": ("ring", "star")}, ("algorithms", "star", "tree")),
        ({"sequence_length": 2048.0}, ("sequence length", "2048.0")),
        ({"zero": 0, "zero_instances": 2}, ("zero instances", "2", "zero 0")),
        ({"devices": 0}, ("devices", "0")),
        ({"recompute": "some"}, ("recompute", "some", "full")),
        ({"precision": "fp8"}, ("fp8", "a100-80")),
        ({"sequence_length": 4096}, ("sequence length", "4096", "2048")),
    ],
)
def test_contradictions_are_refused_by_name(
    changes: dict[str, object], words: tuple[str, ...]
) -> None:
    """The message names what contradicts what, with both numbers."""
    run = replace(GPT_175B, **changes)  # type: ignore[arg-type]
    with pytest.raises(InstanceError) as error:
        predict(run)
    for word in words:
        assert word in str(error.value)
