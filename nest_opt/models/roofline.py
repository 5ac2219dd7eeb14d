"""A roofline: the time of kernels on an accelerator."""

from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction

from nest_opt.errors import InstanceError
from nest_opt.models.accelerator import Accelerator
from nest_opt.models.operations import Kernel, Work
from nest_opt.problem.base import json_number

PS_PER_S = 10**12


def roofline_s(
    works: Sequence[Work], accelerator: Accelerator, fp32: bool = False, calls: int = 0
) -> int | float | str:
    """Return the time of kernels in a row, in seconds rounded half up to picoseconds.

    Each takes the longer of its FLOPs and its bytes at what its kind of kernel
    attains; all together take no less than the host needs to launch them. To that
    come calls of collectives, by what each takes whatever its bytes and ranks.

    Raises
    ------
    InstanceError
        If 32-bit products are asked for and their peak is not known.
    """
    launched = len(works) * Fraction(accelerator.launch_s.value)
    called = calls * Fraction(accelerator.call_s.value)
    return _rounded(max(_busy_s(works, accelerator, fp32), launched) + called)


def busy_s(works: Sequence[Work], accelerator: Accelerator) -> int | float | str:
    """Return the time that kernels keep the accelerator busy, whenever they are launched."""
    return _rounded(_busy_s(works, accelerator, fp32=False))


def _rounded(seconds: Fraction) -> int | float | str:
    picoseconds = (2 * seconds * PS_PER_S + 1) // 2
    return json_number(Decimal(picoseconds) / PS_PER_S)


def _busy_s(works: Sequence[Work], accelerator: Accelerator, fp32: bool) -> Fraction:
    speeds = _speeds(accelerator, fp32)
    return sum((_kernel_s(work, *speeds[work.kind]) for work in works), Fraction(0))


def _kernel_s(work: Work, flops_per_s: Fraction, bytes_per_s: Fraction) -> Fraction:
    return max(work.flops / flops_per_s, work.moved_bytes / bytes_per_s)


def _speeds(accelerator: Accelerator, fp32: bool) -> dict[Kernel, tuple[Fraction, Fraction]]:
    """Return attained FLOP/s and bytes/s of each kind of kernel."""
    peak = accelerator.vector_fp32_flops if fp32 else accelerator.matmul_16bit_flops
    if peak is None:
        raise InstanceError(
            f"accelerator {accelerator.name}: found no 32-bit peak, one is needed for 4-byte "
            "elements: choose another accelerator"
        )
    product = Fraction(peak.value) * Fraction(accelerator.product_share.value)
    bandwidth = Fraction(accelerator.memory_bandwidth_bytes_per_s.value)
    large = bandwidth * Fraction(accelerator.memory_efficiency.value)
    elementwise = bandwidth * Fraction(accelerator.elementwise_share.value)
    return {
        "product": (product, large),
        "attention": (Fraction(accelerator.attention_flops.value), large),
        "elementwise": (product, elementwise),
    }
