"""Bytes of training state per parameter."""

from fractions import Fraction

from nest_opt.problem.job import BytesPerParameter


def state_bytes(convention: BytesPerParameter, zero_level: int, copies: int) -> Fraction:
    """Return the exact bytes that one rank holds per parameter of its shard.

    ZeRO level 1 shards optimizer states over the copies, 2 gradients too, 3
    weights too (Rajbhandari et al., arXiv:1910.02054, figure 1). Tensor
    parallelism is no part of it: it makes the shard, once.

    Parameters
    ----------
    convention
        Bytes of weights, gradients and optimizer states, and of what is not sharded.
    zero_level
        0 to 3.
    copies
        R, the ranks that hold the same parameters.
    """
    over = [copies if zero_level >= level else 1 for level in (3, 2, 1)]
    parts = (convention.weights, convention.gradients, convention.optimizer)
    return sum(
        (Fraction(part) / share for part, share in zip(parts, over, strict=True)),
        Fraction(convention.unsharded),
    )


def whole_bytes(convention: BytesPerParameter, zero_level: int, copies: int) -> Fraction:
    """Return the exact bytes per parameter that a layer holds in whole while it computes.

    Level 2 makes a layer's gradients before it shares them out, level 3
    gathers its weights too; with one copy nothing is shared.
    """
    if copies == 1:
        return Fraction(0)
    gradients = Fraction(convention.gradients) if zero_level >= 2 else Fraction(0)
    return gradients + (Fraction(convention.weights) if zero_level == 3 else Fraction(0))
