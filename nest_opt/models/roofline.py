"""A roofline: the time of kernels on an accelerator."""

from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction

from nest_opt.errors import InstanceError
from nest_opt.models.accelerator import Accelerator
from nest_opt.models.operations import Work
from nest_opt.problem.base import json_number

PS_PER_S = 10**12


def roofline_s(
    works: Iterable[Work], accelerator: Accelerator, fp32: bool = False
) -> int | float | str:
    """Return the time of kernels in a row, in seconds rounded half up to picoseconds.

    Each takes the longer of its FLOPs at the attained peak and its bytes at
    the attained memory bandwidth.

    Raises
    ------
    InstanceError
        If 32-bit products are asked for and their peak is not known.
    """
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
