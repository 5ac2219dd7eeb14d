"""The collectives of a layer: what its ranks exchange for one microbatch.

`docs/costs.md` has them in a table with their sources.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import Any

from nest_opt.models.accelerator import Accelerator
from nest_opt.models.operations import ELEMENT_BYTES, Work, attention_core, keys_bytes
from nest_opt.models.roofline import busy_s, rounded
from nest_opt.models.share import Share
from nest_opt.models.spec import LinearSpec, ModelSpec, MoeSpec, TransformerSpec
from nest_opt.problem.profile import Group, Operation

BOTH_PHASES = ("forward", "backward")


@dataclass(frozen=True)
class Call:
    """Equal calls, of `size` bytes each; `hides` is the computation during one of them."""

    operation: Operation
    group: Group
    phase: str
    size: Fraction | int
    count: int = 1
    hides: Work | None = None


def layer_calls(spec: ModelSpec, share: Share, kind: str) -> tuple[Call, ...]:
    """Return the collectives of a layer.

    Parameters
    ----------
    kind
        "embedding", "block", "experts" (a block with experts) or "head".
    """
    calls: list[Call] = []
    if isinstance(spec, LinearSpec):
        if share.tp > 1:
            calls += _linear(spec, share)
    else:
        if share.tp > 1:
            calls += _tensor_parallel(spec, share, kind)
        if share.cp > 1 and kind in ("block", "experts"):
            calls += _context_parallel(spec, share)
        if share.ep > 1 and kind == "experts" and spec.moe:
            calls += _expert_parallel(spec, spec.moe, share)
    return tuple(calls)


def counts_by_phase(calls: Sequence[Call]) -> tuple[int, int]:
    """Return the number of calls in the forward and in the backward pass."""
    forward, backward = (
        sum(call.count for call in calls if call.phase == phase) for phase in BOTH_PHASES
    )
    return forward, backward


def collectives_data(
    calls: Sequence[Call], accelerator: Accelerator, idle_s: Fraction
) -> list[dict[str, Any]]:
    """Return the collectives of a layer, as data of a problem file.

    Parameters
    ----------
    idle_s
        Time of the layer in which the accelerator waits for the host: the host launches
        collectives as it does kernels, so that this time hides an equal part of it of each call.
    """
    each = idle_s / max(1, sum(counts_by_phase(calls)))
    return [_data(call, accelerator, each) for call in calls]


def _data(call: Call, accelerator: Accelerator, idle_s: Fraction) -> dict[str, Any]:
    data = {
        "operation": call.operation,
        "group": call.group,
        "phase": call.phase,
        "bytes": ceil(call.size),
        "count": call.count,
    }
    hidden = idle_s + busy_s([call.hides] if call.hides else [], accelerator)
    if hidden:
        data["hidden_s"] = rounded(hidden)
    return data


def _linear(spec: LinearSpec, share: Share) -> Iterator[Call]:
    """Yield what a stack split by columns needs: outputs gathered, input gradients added up."""
    size = share.tokens * spec.width * share.element_bytes
    yield Call("all-gather", "tp", "forward", size)
    yield Call("all-reduce", "tp", "backward", size)


def _tensor_parallel(spec: TransformerSpec, share: Share, kind: str) -> Iterator[Call]:
    """Yield the calls of tensor parallelism.

    Megatron-LM: an all-reduce after attention and one after the MLP, forward
    and backward (arXiv:1909.08053, section 3); under sequence parallelism an
    all-gather before and a reduce-scatter after each (arXiv:2205.05198,
    section 4.2.2; gathering inputs once more for the weight gradients overlaps
    with them and is not charged).
    """
    size = share.tokens * spec.hidden * ELEMENT_BYTES
    sp = share.configuration.sp
    if kind == "embedding":
        # Each rank looks up its rows of the vocabulary.
        yield Call("reduce-scatter" if sp else "all-reduce", "tp", "forward", size)
        if sp:
            yield Call("all-gather", "tp", "backward", size)
    elif kind == "head":
        if spec.head == "none":
            return
        if sp:
            yield Call("all-gather", "tp", "forward", size)
        # Maximum, sum and target of the loss, 4 bytes a token each.
        yield Call("all-reduce", "tp", "forward", 4 * share.tokens, 3)
        yield Call("reduce-scatter" if sp else "all-reduce", "tp", "backward", size)
    else:
        operations: tuple[Operation, ...] = ("all-gather", "reduce-scatter")
        for phase in BOTH_PHASES:
            for operation in operations if sp else ("all-reduce",):
                if spec.moe and kind == "experts" and sp and share.ep > 1:
                    # Tokens are gathered after they reached their experts' ranks,
                    # for the shared experts where they are.
                    yield Call(operation, "tp", phase, size, 2 if spec.moe.shared_ffn else 1)
                    routed = size * spec.moe.top_k * share.expert_load
                    yield Call(operation, "tp", phase, routed)
                else:
                    yield Call(operation, "tp", phase, size, 2)


def _context_parallel(spec: TransformerSpec, share: Share) -> Iterator[Call]:
    """Yield the exchange of keys and values, forward, and with their gradients, backward.

    "all-gather" (Llama 3, arXiv:2407.21783, section 3.3.2): before attention,
    again in the backward pass, with gradients scattered after it; nothing is
    hidden. "ring" (Liu et al., arXiv:2310.01889): cp - 1 steps, each of which
    passes on a block of keys and values, and of their gradients in the
    backward pass, during attention to a block. That is the time of an
    all-gather's ring of as many bytes, less that of cp - 1 of cp blocks; steps
    are equal, so that the difference of sums is the sum of differences.
    """
    size = share.cp * keys_bytes(spec, share)
    if share.context_parallel == "all-gather":
        for phase in BOTH_PHASES:
            yield Call("all-gather", "cp", phase, size)
        yield Call("reduce-scatter", "cp", "backward", size)
        return
    steps = Fraction(share.cp - 1, share.cp)
    passed = (size, 2 * size)
    for phase, each, core in zip(BOTH_PHASES, passed, attention_core(spec, share), strict=True):
        hides = Work(steps * core.flops, steps * core.moved_bytes, core.kind)
        yield Call("all-gather", "cp", phase, each, hides=hides)


def _expert_parallel(spec: TransformerSpec, moe: MoeSpec, share: Share) -> Iterator[Call]:
    """Yield dispatch and combine; of what each rank sends, 1 / ep stays."""
    routed = share.sequence_tokens * moe.top_k * share.expert_load
    for phase in BOTH_PHASES:
        yield Call("all-to-all", "ep", phase, routed * spec.hidden * ELEMENT_BYTES, 2)
