"""From a model's dimensions and an accelerator to layer types with profiles.

`docs/costs.md` states every formula with its source. Times are a roofline:
each kernel takes the longer of its FLOPs and its bytes at what its kind attains in
training runs; kernels of a phase follow one another, and take no less than their launch.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import Any

from nest_opt.errors import InstanceError
from nest_opt.models.accelerator import Accelerator, Precision
from nest_opt.models.activations import (
    checkpoint_bytes,
    products_bytes,
    selective_bytes,
    stash_bytes,
    work_bytes,
)
from nest_opt.models.collectives import collectives_data, counts_by_phase, layer_calls
from nest_opt.models.memory import PLAIN_MEMORY, MemoryRules
from nest_opt.models.operations import ELEMENT_BYTES, LayerWork, Work, core_kernels, layer_work
from nest_opt.models.parameters import parameters_per_rank, tied_parameters_per_rank
from nest_opt.models.roofline import busy_s, layer_time, rounded
from nest_opt.models.share import Attention, ContextParallel, Share
from nest_opt.models.spec import LinearSpec, ModelSpec, TransformerSpec
from nest_opt.models.weight import Weight
from nest_opt.models.weights import block_weights, embedding_weights, final_weights
from nest_opt.problem import Configuration

# Families whose published training passes attention and MLP outputs through dropout.
DROPOUT_FAMILIES = frozenset({"gpt2", "gpt3", "megatron", "bert", "opt"})


@dataclass(frozen=True, kw_only=True)
class Training:
    """How a model is trained, as far as layer costs depend on it.

    Attributes
    ----------
    sequence_length
        Tokens of a sequence.
    dropout, attention, context_parallel, capacity, imbalance, element_bytes, memory
        See `nest_opt.models.share.Share`.
    precision
        Of matrix products. With fp8 they attain the same share of its peak as of that of 16
        bits, which is optimistic. A fused attention core stays in 16 bits.
    """

    sequence_length: int
    dropout: bool = False
    attention: Attention = "flash"
    context_parallel: ContextParallel = "ring"
    capacity: Fraction = Fraction(1)
    imbalance: Fraction = Fraction(1)
    element_bytes: int = 2
    precision: Precision = "bf16"
    memory: MemoryRules = PLAIN_MEMORY


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
    accelerator = accelerator.at_precision(training.precision)
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
        context_parallel=training.context_parallel,
        capacity=training.capacity,
        imbalance=training.imbalance,
        dropout=training.dropout,
        attention=training.attention,
        element_bytes=training.element_bytes,
        memory=training.memory,
    )
    work = layer_work(spec, weights, share, kind)
    counts = parameters_per_rank(weights, configuration.tp, configuration.ep)
    tied = tied_parameters_per_rank(weights, configuration.tp)
    stash, kept = stash_bytes(spec, share, kind), checkpoint_bytes(spec, share, kind)
    peak = work_bytes(spec, share, kind)
    fp32 = training.element_bytes == 4
    calls = layer_calls(spec, share, kind)
    times = layer_time(work, accelerator, counts_by_phase(calls), fp32)
    return {
        "microbatch": microbatch,
        "tp": configuration.tp,
        **({"cp": configuration.cp} if configuration.cp > 1 else {}),
        "ep": configuration.ep,
        "sp": configuration.sp,
        "forward_s": times.forward_s,
        "backward_input_s": times.backward_input_s,
        "backward_weight_s": times.backward_weight_s,
        # A tied head holds a copy of the embedding's weight, on a stage without the embedding.
        "dense_parameters": counts.dense + tied,
        "expert_parameters": counts.expert,
        **({"tied_parameters": tied} if tied else {}),
        "collectives": collectives_data(calls, accelerator, times.idle_s),
        "recompute": {
            "none": {"stash_bytes": ceil(stash), "work_bytes": ceil(peak)},
            **_selective(spec, accelerator, share, kind, work, times.forward_s),
            "full": {
                "stash_bytes": ceil(kept),
                "work_bytes": ceil(peak) + ceil(stash) - ceil(kept),
            },
        },
    }


def _selective(
    spec: ModelSpec,
    accelerator: Accelerator,
    share: Share,
    kind: str,
    work: LayerWork,
    forward_s: int | float | str,
) -> dict[str, Any]:
    """Return the footprint under selective recomputation, if it gains.

    Flash attention keeps no scores and computes them again as it is. Experts and
    latent attention have other products than `products_bytes` knows.
    """
    if not isinstance(spec, TransformerSpec):
        return {}
    products = share.memory.selective == "products"
    if (spec.moe or spec.mla) if products else share.attention == "flash":
        return {}
    stash = stash_bytes(spec, share, kind)
    kept = (products_bytes if products else selective_bytes)(spec, share, kind)
    core, _ = core_kernels(spec, share) if kind in ("block", "experts") else ((), ())
    forward = _repeated_products(work, len(core)) if products and core else core
    # Where launches are a layer's time, its forward pass may take less than its kernels.
    repeated_s = min(busy_s(forward, accelerator), Fraction(str(forward_s)))
    return {
        "selective": {
            "stash_bytes": ceil(kept),
            "work_bytes": ceil(work_bytes(spec, share, kind)) + max(0, ceil(stash) - ceil(kept)),
            "repeated_forward_s": rounded(repeated_s),
        }
    }


def _repeated_products(work: LayerWork, core_kernels: int) -> tuple[Work, ...]:
    """Return the kernels of a block that are repeated but for every second product and the core.

    `layer_work` has products first, in the order in which they run, then the core.
    """
    products = len(work.backward_weight)
    return (*work.forward[1:products:2], *work.forward[products + core_kernels :])
