"""Context and expert parallelism in derived problems against closed forms and hand counts."""

from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

import pytest

from nest_opt import InstanceError, solve
from nest_opt.cost.build import build_cost_table
from nest_opt.models.activations import checkpoint_bytes, stash_bytes, work_bytes
from nest_opt.models.catalogue import find_model
from nest_opt.models.collectives import collectives_data, layer_calls
from nest_opt.models.derive import layer_kinds
from nest_opt.models.hardware import find_accelerator
from nest_opt.models.operations import attention_core, layer_work, model_flops
from nest_opt.models.request import Request, derive_problem
from nest_opt.models.roofline import busy_s
from nest_opt.models.share import ContextParallel, Share
from nest_opt.models.spec import TransformerSpec
from nest_opt.models.weights import block_weights, final_weights
from nest_opt.problem import Configuration

H100 = find_accelerator("h100")
WAYS: tuple[ContextParallel, ...] = ("ring", "all-gather")
LONG = 131_072
LLAMA = "llama-3-8b"
HIDDEN, KEYS = 4096, 8 * 128
FORWARD, BACKWARD = "forward", "backward"


def model(name: str) -> TransformerSpec:
    """Return a transformer of the catalogue."""
    spec = find_model(name)
    assert isinstance(spec, TransformerSpec)
    return spec


def share(way: ContextParallel = "ring", length: int = LONG, **degrees: Any) -> Share:
    """Return a rank's share of a microbatch of one sequence."""
    return Share(
        microbatch=1,
        sequence_length=length,
        configuration=Configuration(**{"tp": 1, **degrees}),
        context_parallel=way,
    )


def calls(name: str, kind: str, rank: Share, group: str) -> list[dict[str, Any]]:
    """Return the collectives of a layer in one kind of group."""
    found = collectives_data(layer_calls(model(name), rank, kind), H100, Fraction(0))
    return [call for call in found if call["group"] == group]


# Context parallelism


@pytest.mark.parametrize("cp", [1, 2, 3, 4])
def test_every_rank_and_step_has_the_same_causal_work(cp: int) -> None:
    """Pairs of a query and an earlier key, counted one by one, are the core's on every rank.

    Rank i has chunks i and 2 cp - 1 - i. The core counts half the square, without
    the half of its diagonal.
    """
    length = 24
    chunk = length // (2 * cp)
    tokens = [
        [t for t in range(length) if t // chunk in (rank, 2 * cp - 1 - rank)] for rank in range(cp)
    ]
    spec = model(LLAMA)
    core, _ = attention_core(spec, share(length=length, cp=cp))
    per_pair = 2 * spec.heads * (spec.key_dim + spec.value_dim)
    for own in range(cp):
        steps = [sum(q >= k for q, k in product(tokens[own], tokens[other])) for other in range(cp)]
        assert all(
            pairs == Fraction((length // cp) ** 2, 2) + (chunk if other == own else 0)
            for other, pairs in enumerate(steps)
        )
        assert core.flops == per_pair * (sum(steps) - chunk)


@pytest.mark.parametrize("name", [LLAMA, "mixtral-8x7b", "deepseek-v3", "gpt3-175b", "bert-large"])
@pytest.mark.parametrize("way", WAYS)
def test_a_rank_keeps_its_share_of_every_tensor(name: str, way: ContextParallel) -> None:
    """The stash, recomputed or not, is 1 / cp of that without context parallelism, exactly."""
    spec = model(name)
    for (_, kind, _), tp, sp, cp in product(layer_kinds(spec), (1, 4), (False, True), (2, 8)):
        one = share(way, 2048, tp=tp, sp=sp)
        some = share(way, 2048, tp=tp, sp=sp, cp=cp)
        for count in (stash_bytes, checkpoint_bytes):
            assert cp * count(spec, some, kind) == count(spec, one, kind)


@pytest.mark.parametrize("cp", [2, 4, 8])
@pytest.mark.parametrize("way", WAYS)
def test_ranks_share_all_products(cp: int, way: ContextParallel) -> None:
    """FLOPs of a rank are 1 / cp of the layer's, in blocks and head, attention included."""
    spec = model(LLAMA)
    for kind, weights in (("block", block_weights(spec, 0)), ("head", final_weights(spec))):
        one, some = (layer_work(spec, weights, share(way, cp=degree), kind) for degree in (1, cp))
        for phase in ("forward", "backward_input", "backward_weight"):
            whole, part = (sum(w.flops for w in getattr(work, phase)) for work in (one, some))
            assert cp * part == whole > 0
    assert model_flops(spec, final_weights(spec), 1, LONG) == whole


@pytest.mark.parametrize(("tp", "cp"), [(1, 2), (2, 8), (8, 4), (16, 2)])
def test_all_gather_by_hand(tp: int, cp: int) -> None:
    """Keys and values forward, again backward, gradients scattered: 2 s (k d) elements each.

    Eight key heads on 16 ranks are held twice.
    """
    size = 2 * 2 * LONG * max(KEYS // tp, 128)
    found = calls(LLAMA, "block", share("all-gather", tp=tp, cp=cp), "cp")
    assert [(c["operation"], c["phase"], c["bytes"], c["count"]) for c in found] == [
        ("all-gather", FORWARD, size, 1),
        ("all-gather", BACKWARD, size, 1),
        ("reduce-scatter", BACKWARD, size, 1),
    ]
    assert not any("hidden_s" in call for call in found)
    for kind in ("embedding", "head"):
        assert not calls(LLAMA, kind, share("all-gather", tp=tp, cp=cp), "cp")


@pytest.mark.parametrize("bandwidth", [10**8, 10**10, 10**12])
@pytest.mark.parametrize("cp", [2, 4])
def test_ring_steps_by_hand(bandwidth: int, cp: int) -> None:
    """Of each of cp - 1 steps what exceeds attention to one block is charged.

    A step passes 2 b (s / c) k d elements forward and twice that backward (Liu et al.
    2023; gradients travel with their keys and values in Transformer Engine).
    """
    length = 8192
    request = Request(
        model=LLAMA,
        cluster="dgx-h100",
        devices=8,
        global_batch=8,
        sequence_length=length,
        microbatches=(1,),
        context_parallel_degrees=(cp,),
    )
    problem = derive_problem(request).problem
    cluster = problem.cluster.model_dump(mode="json")
    cluster["network"]["levels"][0]["bandwidth_bytes_per_s"] = bandwidth
    latency = Fraction(str(cluster["network"]["levels"][0]["latency_s"]))
    problem = problem.model_copy(update={"cluster": type(problem.cluster).model_validate(cluster)})
    pair = build_cost_table(problem).pairs[1, Configuration(1, cp)]
    block = list(dict.fromkeys(entry.type for entry in problem.model.layers)).index("block")
    # Attention is bound by FLOPs here: 2 products of 2 s^2 h / 2, of which a block is 1 / cp^2.
    forward = Fraction(2 * length**2 * HIDDEN, cp**2) / Fraction(H100.attention_flops.value)
    step = Fraction(2 * 2 * length * KEYS, cp) / bandwidth
    rounded = Fraction(2, 10**12)
    for phase, compute, transfer in (
        (pair.forward_collective_ps, forward, latency + step),
        (pair.backward_collective_ps, Fraction(5, 2) * forward, latency + 2 * step),
    ):
        expected = (cp - 1) * max(Fraction(0), transfer - compute)
        assert abs(Fraction(phase["cp"][0][block], 10**12) - expected) <= rounded
        assert (expected > 0) == (bandwidth < 10**12)


def test_a_ring_passes_what_an_all_gather_gathers() -> None:
    """Bytes are equal, forward and backward; only what is hidden differs, and is cp - 1 blocks."""
    rank = share(tp=2, cp=8)
    ring = calls(LLAMA, "block", rank, "cp")
    gathered = calls(LLAMA, "block", share("all-gather", tp=2, cp=8), "cp")
    for phase, core in zip((FORWARD, BACKWARD), attention_core(model(LLAMA), rank), strict=True):
        (call,) = (c for c in ring if c["phase"] == phase)
        assert call["bytes"] == sum(c["bytes"] for c in gathered if c["phase"] == phase)
        whole = busy_s([core], H100)
        assert abs(Fraction(str(call["hidden_s"])) - whole * Fraction(7, 8)) <= Fraction(1, 10**12)


def test_memory_while_attention_runs_by_hand() -> None:
    """Gradients of q, k, v, output, and keys, values and gradients: all of them or two blocks."""
    spec, cp = model(LLAMA), 16
    tokens = LONG // cp
    own = 2 * tokens * (2 * HIDDEN + 2 * KEYS)
    ends = 2 * 2 * tokens * HIDDEN
    gathered = own + 2 * 2 * 2 * LONG * KEYS
    activation = 3 * 2 * tokens * 14336
    assert gathered > activation > own + 2 * 2 * 2 * 2 * tokens * KEYS
    assert work_bytes(spec, share("all-gather", cp=cp), "block") == gathered + ends
    assert work_bytes(spec, share("ring", cp=cp), "block") == activation + ends


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"context_parallel_degrees": (3,)}, "multiple of 6 tokens is needed"),
        ({"sequence_length": 4100}, "found 4 .* multiple of 8 tokens is needed"),
        ({"context_parallel_degrees": ()}, "cp: found no size, 1 at least is needed"),
        ({"context_parallel_degrees": (2, 2)}, "cp: found 2 twice, once is allowed"),
        ({"context_parallel_degrees": (0,)}, "cp: found 0, a whole number from 1"),
        ({"attention": "stored"}, "found 'stored' with cp 4, 'flash' is needed"),
        (
            {"context_parallel_degrees": (1,), "context_parallel": "all-gather"},
            "found 'all-gather' with cp 1 alone",
        ),
        ({"model": "linear-8x2304"}, "cp: found 4, only 1 is allowed"),
        ({"expert_imbalance": Fraction(2)}, "expert imbalance: found 2, only 1 is allowed"),
        ({"model": "mixtral-8x7b", "expert_imbalance": Fraction(1, 2)}, "found 0.5, 1 to 100"),
    ],
)
def test_what_cannot_be_is_refused(change: dict[str, Any], message: str) -> None:
    """Degrees, lengths, attentions and factors that do not go together: a message says why."""
    request = Request(
        model=LLAMA,
        cluster="dgx-h100",
        devices=8,
        global_batch=8,
        sequence_length=4096,
        context_parallel_degrees=(1, 2, 4),
    )
    with pytest.raises(InstanceError, match=message):
        derive_problem(replace(request, **change))


LONG_CONTEXT = Request(
    model=LLAMA,
    cluster="dgx-h100",
    devices=64,
    global_batch=64,
    sequence_length=LONG,
    microbatches=(1,),
)


def test_long_sequences_want_context_parallelism() -> None:
    """Llama-3-8B at 131,072 tokens on 64 H100: the best plan has cp > 1, by more than a fifth.

    Gathering everything first is slower than the ring, and faster than no cp.
    """
    degrees = (1, 2, 4, 8)
    results = [
        solve(derive_problem(request).problem)
        for request in (
            LONG_CONTEXT,
            replace(LONG_CONTEXT, context_parallel_degrees=degrees, context_parallel="all-gather"),
            replace(LONG_CONTEXT, context_parallel_degrees=degrees),
        )
    ]
    values, plans = [], []
    for result in results:
        assert result.evaluation is not None
        assert result.plan is not None
        values.append(result.evaluation.value_ps)
        plans.append(result.plan)
    assert values[0] > values[1] > values[2]
    assert [plan.cp > 1 for plan in plans] == [False, True, True]
    assert 5 * values[0] > 6 * values[2]


def test_a_degree_beyond_the_devices_is_never_chosen() -> None:
    """On 8 devices cp 16 adds nothing to cp 2; alone it is refused with both numbers."""
    request = replace(LONG_CONTEXT, devices=8, context_parallel_degrees=(2,))
    both = derive_problem(replace(request, context_parallel_degrees=(2, 16))).problem
    assert both.search.cp == (2, 16)
    assert solve(both).bound_ps == solve(derive_problem(request).problem).bound_ps
    alone = derive_problem(replace(request, context_parallel_degrees=(16,))).problem
    with pytest.raises(InstanceError, match="has 16 devices, the cluster has 8"):
        solve(alone)


def test_llama_3_405b_at_long_context_fits() -> None:
    """Degrees of Llama 3's 128K phase (table 4: tp 8, cp 16, pp 16, dp 8) fit 80 GB."""
    request = replace(
        LONG_CONTEXT,
        model="llama-3.1-405b",
        devices=16_384,
        global_batch=128,
        context_parallel_degrees=(16,),
        context_parallel="all-gather",
    )
    problem = derive_problem(request).problem
    search = {"tp": (8,), "cp": (16,), "sp": (True,), "pp": (16,), "dp": (8,)}
    result = solve(problem.model_copy(update={"search": problem.search.model_copy(update=search)}))
    assert result.plan is not None


# Expert parallelism


@pytest.mark.parametrize("imbalance", [Fraction(1), Fraction(3, 2)])
@pytest.mark.parametrize(("name", "top_k", "hidden"), [("mixtral-8x7b", 2, 4096),
                                                       ("deepseek-v3", 8, 7168)])  # fmt: skip
def test_all_to_all_by_hand(name: str, top_k: int, hidden: int, imbalance: Fraction) -> None:
    """Dispatch and combine of s / (t c) K h elements each way, times what is padded or uneven."""
    for tp, cp, sp in ((1, 1, False), (2, 1, True), (2, 2, True), (2, 2, False)):
        rank = replace(
            share(length=4096, tp=tp, cp=cp, ep=4, sp=sp),
            capacity=Fraction(5, 4),
            imbalance=imbalance,
        )
        tokens = Fraction(4096, cp * (tp if sp else 1))
        size = 2 * tokens * top_k * hidden * Fraction(5, 4) * imbalance
        found = calls(name, "experts", rank, "ep")
        assert [(c["operation"], c["phase"], c["bytes"], c["count"]) for c in found] == [
            ("all-to-all", phase, size, 2) for phase in (FORWARD, BACKWARD)
        ]


@pytest.mark.parametrize(("name", "shared"), [("mixtral-8x7b", 0), ("deepseek-v3", 1)])
def test_routed_tokens_are_gathered_where_their_experts_are(name: str, shared: int) -> None:
    """Under sp and ep the tp gather before the MLP is of K times as many tokens.

    Attention and shared experts gather each token once; with ep 1 so do all.
    """
    spec = model(name)
    assert spec.moe is not None
    for cp in (1, 2):
        size = 2 * 4096 // cp * spec.hidden
        for ep, expected in (
            (1, [(size, 2)]),
            (4, [(size, 1 + shared), (size * spec.moe.top_k, 1)]),
        ):
            rank = share(length=4096, tp=2, cp=cp, ep=ep, sp=True)
            for operation, phase in product(("all-gather", "reduce-scatter"), (FORWARD, BACKWARD)):
                found = [
                    (call["bytes"], call["count"])
                    for call in calls(name, "experts", rank, "tp")
                    if (call["operation"], call["phase"]) == (operation, phase)
                ]
                assert found == expected


def test_imbalance_is_the_work_of_the_busiest_rank() -> None:
    """Twice the mean: products of routed experts and their tensors double, nothing else does."""
    spec = model("mixtral-8x7b")
    weights = block_weights(spec, 0)
    even = share(length=4096, ep=4)
    busy = replace(even, imbalance=Fraction(2))
    routed = [weight for weight in weights if weight.tokens == "routed"]
    other = [weight for weight in weights if weight.tokens == "all"]
    for part, factor in ((routed, 2), (other, 1)):
        before, after = (
            sum(w.flops for w in layer_work(spec, part, rank, "block").backward_weight)
            for rank in (even, busy)
        )
        assert after == factor * before > 0
    # Gate, up and product of K experts; their inputs and outputs.
    kept = 2 * 4096 * 2 * (3 * 14336 + 2 * spec.hidden)
    assert stash_bytes(spec, busy, "experts") - stash_bytes(spec, even, "experts") == kept


def test_imbalance_is_between_ranks() -> None:
    """A rank that has all experts is as busy as the mean, and none has more than all tokens."""
    spec = model("mixtral-8x7b")
    for ep, most in ((1, 1), (2, 2), (8, 3)):
        rank = replace(share(ep=ep), imbalance=Fraction(3))
        capped = replace(share(ep=ep), imbalance=Fraction(most))
        assert stash_bytes(spec, rank, "experts") == stash_bytes(spec, capped, "experts")
        assert rank.expert_load == most


def test_experts_multiply_whole_tokens_under_sequence_parallelism() -> None:
    """Sorted inputs are not split by t: 2 K T h bytes, outputs before weighting 2 K T h / t."""
    spec, length, tp = model("mixtral-8x7b"), 4096, 4
    plain, split = (
        stash_bytes(spec, share(length=length, tp=tp, ep=2, sp=sp), "experts")
        for sp in (False, True)
    )
    # Inputs of norms, attention and router, outputs before weighting, router scores.
    shared_out = 2 * length * (4 * spec.hidden + 2 * spec.hidden) + 4 * length * 8
    assert plain - split == shared_out - Fraction(shared_out, tp)
