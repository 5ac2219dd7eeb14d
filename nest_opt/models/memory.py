"""What launchers keep in device memory where they differ: rules that profiles are derived by.

Every rule is what a launcher's own source does; `docs/runtimes.md` names the
places. None of them is fitted to a measurement.
"""

from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from nest_opt.errors import InstanceError
from nest_opt.models.accelerator import Precision
from nest_opt.problem.job import BytesPerParameter

# What selective recomputation computes again: the attention core (Korthikanti et
# al., arXiv:2205.05198, section 5), or every second matrix product and all that
# lies between products (torchtitan's per-operator checkpointing).
Selective = Literal["core", "products"]

# A compiled loss keeps 16-bit logits and their 16-bit gradients, nothing in 32 bits.
FUSED_LOGIT_BYTES = 4


@dataclass(frozen=True, kw_only=True)
class MemoryRules:
    """What is kept, as far as launchers differ.

    Attributes
    ----------
    logit_bytes, split_logit_bytes
        Bytes of a logit at the peak of the loss, where a rank has the whole
        vocabulary, and where tensor-parallel ranks share it out.
    embedding_norm_input
        Whether the input of a norm after the embedding is kept for the backward
        pass.
    selective
        What selective recomputation computes again.
    """

    logit_bytes: int = 4
    split_logit_bytes: int = 4
    embedding_norm_input: bool = False
    selective: Selective = "core"

    def bytes_of_logit(self, tp: int) -> int:
        """Return the bytes of a logit at the peak of the loss on each of `tp` ranks."""
        return self.logit_bytes if tp == 1 else self.split_logit_bytes


# 32-bit logits alone, as problems have been derived from the beginning.
PLAIN_MEMORY = MemoryRules()

# Megatron's loss works in place: 16-bit logits beside 32-bit ones, then 32-bit
# gradients beside 16-bit ones (vocab_parallel_cross_entropy).
_MEGATRON_LOGIT = 6
# PyTorch's: log-softmax, its gradient and the gradient of the logits, in 32 bits;
# split over ranks (loss_parallel) one more of them, the exponential.
_PYTORCH_LOGIT, _PYTORCH_SPLIT_LOGIT = 12, 16

MEMORY_RULES: dict[str, MemoryRules] = {
    "megatron": MemoryRules(
        logit_bytes=_MEGATRON_LOGIT,
        split_logit_bytes=_MEGATRON_LOGIT,
        embedding_norm_input=True,
    ),
    "deepspeed": MemoryRules(
        logit_bytes=_MEGATRON_LOGIT,
        split_logit_bytes=_MEGATRON_LOGIT,
        embedding_norm_input=True,
    ),
    "torchtitan": MemoryRules(
        logit_bytes=_PYTORCH_LOGIT,
        split_logit_bytes=_PYTORCH_SPLIT_LOGIT,
        embedding_norm_input=True,
        selective="products",
    ),
}


def memory_rules(runtime: str | None) -> MemoryRules:
    """Return what a runtime keeps; None is no runtime in particular.

    Raises
    ------
    InstanceError
        If there is no such runtime.
    """
    if runtime is None:
        return PLAIN_MEMORY
    if runtime not in MEMORY_RULES:
        raise InstanceError(
            f"runtime: found {str(runtime)[:40]!r}, one of {', '.join(MEMORY_RULES)} is needed: "
            "correct the name"
        )
    return MEMORY_RULES[runtime]


def runtime_state_bytes(runtime: str, precision: Precision, zero: int) -> BytesPerParameter:
    """Return the bytes of training state per parameter that a runtime keeps.

    Parameters
    ----------
    runtime
        A name of `MEMORY_RULES`.
    precision
        fp8 keeps what bf16 does.
    zero
        The ZeRO level.

    Notes
    -----
    megatron: 2 + 4 + 12 in bf16, 2 + 2 + 12 in fp16 (Megatron-LM docs,
    dist_optimizer, less the 32-bit copy of fp16 gradients: it is made when a
    step begins, and no activations are left).

    deepspeed: fp16 under ZeRO keeps of its partition, besides 32-bit weights and
    two moments, averaged 16-bit gradients and their 32-bit copy
    (runtime/zero/stage_1_and_2.py): 2 + 2 + 18. bf16 sums whole 32-bit gradients
    up beside the 16-bit ones (runtime/bf16_optimizer.py): 2 + 4 + 12, and 2 more.

    torchtitan: 32-bit weights, gradients and moments, all shared out; under
    level 3 weights are gathered in 16 bits, so that 2 + 4 + 10 moves and holds
    what it does. Where weights stay gathered (levels 1 and 2, its pipelines),
    these and the 32-bit gradients that are summed up come on top: 2 + 4 + 16.
    """
    fp16 = precision == "fp16"
    if runtime == "deepspeed" and fp16:
        return _parts(2, 2, 18 if zero else 12)
    if runtime == "deepspeed":
        return _parts(2, 4, 12, 2)
    if runtime == "torchtitan":
        return _parts(2, 4, 16 if zero in (1, 2) else 10)
    return _parts(2, 2 if fp16 else 4, 12)


def _parts(weights: int, gradients: int, optimizer: int, unsharded: int = 0) -> BytesPerParameter:
    return BytesPerParameter(
        weights=Decimal(weights),
        gradients=Decimal(gradients),
        optimizer=Decimal(optimizer),
        unsharded=Decimal(unsharded),
    )
