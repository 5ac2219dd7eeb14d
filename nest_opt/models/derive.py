"""From a model's dimensions and an accelerator to layer types with profiles.

`docs/costs.md` states every formula with its source. Times are a roofline:
each kernel takes the longer of its FLOPs at the attained peak and its bytes at
the attained memory bandwidth; kernels of a phase follow one another.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from math import ceil
from typing import Any

from nest_opt.errors import InstanceError
from nest_opt.models.accelerator import Accelerator
from nest_opt.models.activations import checkpoint_bytes, stash_bytes, work_bytes
from nest_opt.models.operations import ELEMENT_BYTES, Work, layer_work
from nest_opt.models.parameters import parameters_per_rank, tied_parameters_per_rank
from nest_opt.models.share import Attention, Share
from nest_opt.models.spec import LinearSpec, ModelSpec, TransformerSpec
from nest_opt.models.weight import Weight
from nest_opt.models.weights import block_weights, embedding_weights, final_weights
from nest_opt.problem import Configuration
from nest_opt.problem.base import json_number

# Families whose published training passes attention and MLP outputs through dropout.
DROPOUT_FAMILIES = frozenset({"gpt2", "gpt3", "megatron", "bert", "opt"})

PS_PER_S = 10**12


@dataclass(frozen=True, kw_only=True)
class Training:
    """How a model is trained, as far as layer costs depend on it.

    Attributes
    ----------
    sequence_length
        Tokens of a sequence.
    dropout, attention, capacity, element_bytes
        See `nest_opt.models.share.Share`.
    """

    sequence_length: int
    dropout: bool = False
    attention: Attention = "flash"
    capacity: Fraction = Fraction(1)
    element_bytes: int = 2


def default_training(spec: ModelSpec, sequence_length: int | None = None) -> Training:
    """Return the usual training of a model.

    Raises
    ------
    InstanceError
        If a sequence is longer than the model's table of positions.
    """
    if isinstance(spec, LinearSpec):
        return Training(sequence_length=sequence_length or 1)
    length = sequence_length or spec.sequence_length
    if spec.learned_positions and length > spec.learned_positions:
        raise InstanceError(
            f"sequence length: found {length} tokens, at most {spec.learned_positions} are "
            f"allowed (learned positions of {spec.name}): shorten it"
        )
    return Training(sequence_length=length, dropout=spec.family in DROPOUT_FAMILIES)


def layer_kinds(spec: ModelSpec) -> list[tuple[str, str, int]]:
    """Return (id, kind, repeat) of the layers of a model, in order.

    Kinds are "embedding", "block", "experts" (a block with experts) and
    "head" (final norm and head).
    """
    if isinstance(spec, LinearSpec):
        return [("block", "block", spec.layers)]
    runs: list[tuple[str, str, int]] = []
    for layer in range(spec.layers):
        kind = "experts" if spec.is_moe_layer(layer) else "block"
        if runs and runs[-1][1] == kind:
            runs[-1] = (*runs[-1][:2], runs[-1][2] + 1)
        else:
            runs.append((f"{kind}-{len(runs)}", kind, 1))
    if len(runs) == 1:
        runs = [("block", *runs[0][1:])]
    return [("embedding", "embedding", 1), *runs, ("head", "head", 1)]


def layer_types(
    spec: ModelSpec,
    accelerator: Accelerator,
    training: Training,
    microbatches: Iterable[int],
    configurations: Iterable[Configuration],
) -> dict[str, Any]:
    """Return the layer types of a model, as data of a problem file.

    Raises
    ------
    InstanceError
        If a degree does not divide what it splits.
    """
    weights = _weights_by_kind(spec)
    pairs = [(b, k) for b in microbatches for k in configurations]
    return {
        kind: {
            "output_bytes": {
                str(b): _output_bytes(spec, training, b) for b in dict.fromkeys(b for b, _ in pairs)
            },
            "profiles": [
                _profile(spec, accelerator, training, kind, weights[kind], b, k) for b, k in pairs
            ],
        }
        for kind in weights
    }


def _weights_by_kind(spec: ModelSpec) -> dict[str, tuple[Weight, ...]]:
    makers: dict[str, Callable[[], tuple[Weight, ...]]] = {
        "embedding": lambda: embedding_weights(spec),
        "head": lambda: final_weights(spec),
    }
    kinds: dict[str, tuple[Weight, ...]] = {}
    layer = 0
    for _, kind, repeat in layer_kinds(spec):
        if kind not in kinds:
            kinds[kind] = makers[kind]() if kind in makers else block_weights(spec, layer)
        layer += repeat if kind not in makers else 0
    return kinds


def _output_bytes(spec: ModelSpec, training: Training, microbatch: int) -> int:
    tokens = microbatch * training.sequence_length
    if isinstance(spec, LinearSpec):
        return tokens * spec.width * training.element_bytes
    return tokens * spec.hidden * ELEMENT_BYTES


def _profile(
    spec: ModelSpec,
    accelerator: Accelerator,
    training: Training,
    kind: str,
    weights: tuple[Weight, ...],
    microbatch: int,
    configuration: Configuration,
) -> dict[str, Any]:
    share = Share(
        microbatch=microbatch,
        sequence_length=training.sequence_length,
        configuration=configuration,
        capacity=training.capacity,
        dropout=training.dropout,
        attention=training.attention,
        element_bytes=training.element_bytes,
    )
    work = layer_work(spec, weights, share, kind)
    counts = parameters_per_rank(weights, configuration.tp, configuration.ep)
    stash, kept = stash_bytes(spec, share, kind), checkpoint_bytes(spec, share, kind)
    peak = work_bytes(spec, share, kind)
    fp32 = training.element_bytes == 4
    return {
        "microbatch": microbatch,
        "tp": configuration.tp,
        "ep": configuration.ep,
        "sp": configuration.sp,
        "forward_s": _seconds(work.forward, accelerator, fp32),
        "backward_input_s": _seconds(work.backward_input, accelerator, fp32),
        "backward_weight_s": _seconds(work.backward_weight, accelerator, fp32),
        # A tied head holds a copy of the embedding's weight.
        "dense_parameters": counts.dense + tied_parameters_per_rank(weights, configuration.tp),
        "expert_parameters": counts.expert,
        "collectives": _collectives(spec, share, kind),
        "recompute": {
            "none": {"stash_bytes": ceil(stash), "work_bytes": ceil(peak)},
            "full": {
                "stash_bytes": ceil(kept),
                "work_bytes": ceil(peak) + ceil(stash) - ceil(kept),
            },
        },
    }


def _seconds(works: tuple[Work, ...], accelerator: Accelerator, fp32: bool) -> int | float | str:
    """Return the roofline time of kernels in a row, rounded half up to picoseconds."""
    peak = Fraction(accelerator.matmul_16bit_flops.value)
    if fp32:
        if accelerator.vector_fp32_flops is None:
            raise InstanceError(
                f"accelerator {accelerator.name}: found no 32-bit peak, one is needed for 4-byte "
                "elements: choose another accelerator"
            )
        peak = Fraction(accelerator.vector_fp32_flops.value)
    flops_per_s = peak * Fraction(accelerator.matmul_efficiency.value)
    bytes_per_s = Fraction(accelerator.memory_bandwidth_bytes_per_s.value) * Fraction(
        accelerator.memory_efficiency.value
    )
    total = sum(
        (max(work.flops / flops_per_s, work.moved_bytes / bytes_per_s) for work in works),
        Fraction(0),
    )
    picoseconds = (2 * total * PS_PER_S + 1) // 2
    return json_number(Decimal(picoseconds) / PS_PER_S)


def _collectives(spec: ModelSpec, share: Share, kind: str) -> list[dict[str, Any]]:
    """Return the collectives of a layer.

    Megatron-LM: an all-reduce after attention and one after the MLP, forward
    and backward (arXiv:1909.08053, section 3); under sequence parallelism an
    all-gather before and a reduce-scatter after each (arXiv:2205.05198,
    section 4.2.2; gathering inputs once more for the weight gradients overlaps
    with them and is not charged).
    """
    calls: list[tuple[str, str, str, int, int]] = []
    if isinstance(spec, LinearSpec):
        if share.tp > 1:
            size = share.tokens * spec.width * share.element_bytes
            # Columns are split: outputs are gathered, input gradients added up.
            calls = [("all-gather", "tp", "forward", size, 1)]
            calls.append(("all-reduce", "tp", "backward", size, 1))
    else:
        if share.tp > 1:
            calls = _tensor_parallel_calls(spec, share, kind)
        if share.ep > 1 and kind == "experts" and spec.moe:
            # Dispatch and combine; of what each rank sends, 1/ep stays.
            routed = share.sequence_tokens * spec.moe.top_k * share.capacity * spec.hidden
            size = ceil(routed * ELEMENT_BYTES)
            calls += [("all-to-all", "ep", phase, size, 2) for phase in ("forward", "backward")]
    return [
        {"operation": operation, "group": group, "phase": phase, "bytes": size, "count": count}
        for operation, group, phase, size, count in calls
    ]


def _tensor_parallel_calls(
    spec: TransformerSpec, share: Share, kind: str
) -> list[tuple[str, str, str, int, int]]:
    size = share.tokens * spec.hidden * ELEMENT_BYTES
    sp = share.configuration.sp
    gather, scatter = ("all-gather", "reduce-scatter")
    if kind == "embedding":
        # Each rank looks up its rows of the vocabulary.
        if not sp:
            return [("all-reduce", "tp", "forward", size, 1)]
        return [(scatter, "tp", "forward", size, 1), (gather, "tp", "backward", size, 1)]
    if kind == "head":
        if spec.head == "none":
            return []
        # Maximum, sum and target of the loss, 4 bytes a token each.
        loss = ("all-reduce", "tp", "forward", 4 * share.tokens, 3)
        if not sp:
            return [loss, ("all-reduce", "tp", "backward", size, 1)]
        return [(gather, "tp", "forward", size, 1), loss, (scatter, "tp", "backward", size, 1)]
    operations = (gather, scatter) if sp else ("all-reduce",)
    return [
        (operation, "tp", phase, size, 2)
        for phase in ("forward", "backward")
        for operation in operations
    ]
