"""Closed forms of `docs/schedules.md` for stages of uneven times, to be held against the simulator.

A stage is (F, B, W); backward is B + W. All are without hops, or with hops as
part of F and B where they are blocking.
"""

from collections.abc import Sequence
from itertools import accumulate

Stage = tuple[int, int, int]
Stages = Sequence[Stage]


def forwards(stages: Stages) -> list[int]:
    """Return F of each stage."""
    return [f for f, _, _ in stages]


def backwards(stages: Stages) -> list[int]:
    """Return B + W of each stage."""
    return [b + w for _, b, w in stages]


def totals(stages: Stages) -> list[int]:
    """Return F + B + W of each stage."""
    return [sum(stage) for stage in stages]


def gpipe(stages: Stages, m: int) -> int:
    """Return sum T + (m - 1)(max F + max (B + W))."""
    both = max(forwards(stages)) + max(backwards(stages))
    return sum(totals(stages)) + (m - 1) * both


def fill_drain(stages: Stages, m: int) -> int:
    """Return sum T + (m - 1) max T."""
    return sum(totals(stages)) + (m - 1) * max(totals(stages))


def one_f_one_b_through(stages: Stages, m: int) -> int:
    """Return the longest path of 1F1B that keeps to one stage but for waits and both ends."""
    return zb_h1_through([(f, b + w, 0) for f, b, w in stages], m)


def interleaved(chunks: Stages, m: int, v: int) -> int:
    """Return the bound of interleaved 1F1B: GPipe's of m v microbatches on S stages of a chunk.

    `chunks` has S * v stages in the model's order; a device counts with the
    largest F and the largest B + W of its chunks.
    """
    devices = len(chunks) // v
    largest = [
        (max(forwards(chunks[i::devices])), max(backwards(chunks[i::devices])), 0)
        for i in range(devices)
    ]
    return gpipe(largest, m * v)


def interleaved_mean(chunks: Stages, m: int, v: int) -> float:
    """Return (sum G + (m v - 1) max G) / v, G the time of all chunks of a device."""
    devices = len(chunks) // v
    sums = [sum(totals(chunks[i::devices])) for i in range(devices)]
    return (sum(sums) + (m * v - 1) * max(sums)) / v


def zb_h1(stages: Stages, m: int) -> int:
    """Return m T_k + sum over the others of F + B - W, k the stage of the largest T = F + B + W."""
    k = max(range(len(stages)), key=lambda i: sum(stages[i]))
    others = (f + b - w for i, (f, b, w) in enumerate(stages) if i != k)
    return m * sum(stages[k]) + sum(others)


def zb_h1_through(stages: Stages, m: int) -> int:
    """Return the longest path of ZB-H1 that keeps to one stage k but for waits and both ends.

    It reaches k over the forwards of the stages before, may leave k once
    between F and B of microbatch 0 and once between those of m - 1, to pass
    all stages after k, and ends with the W of k or of a stage before k.
    """
    size = len(stages)
    found = []
    for k, (f, b, w) in enumerate(stages):
        beyond = sum(x + y for x, y, _ in stages[k + 1 :])
        ahead = min(size - 1 - k, m - 1)
        # W between the last F and the last B: of the microbatches that are due by then.
        due = max(0, m - 1 - max(m - 1 - ahead, k))
        first, last = max(0, beyond - ahead * f), max(0, beyond - ahead * b - due * w)
        # With m <= S - k all F come before all B, and a path leaves k once.
        waits = first + last if m > size - k else max(first, last)
        work = m * (f + b) + max(0, m - 1 - k) * w
        # The path after the last B of k: its own W, or B of the stages before it and their W.
        down = list(accumulate((stages[j][1] for j in reversed(range(k))), initial=0))
        ends = (down[k - j] + min(m, j + 1) * stages[j][2] for j in range(k + 1))
        found.append(sum(forwards(stages[:k])) + work + waits + max(ends))
    return max(found)


def zb_h2_span(stages: Stages, m: int) -> int:
    """Return the largest over k of m T_k + sum over the others of max(0, F + B - 2 W_k)."""
    return max(
        m * sum(stages[k])
        + sum(max(0, f + b - 2 * stages[k][2]) for i, (f, b, _) in enumerate(stages) if i != k)
        for k in range(len(stages))
    )


def hops_1f1b(size: int, m: int) -> int:
    """Return how many hops that only delay are on 1F1B's longest path of S equal stages."""
    groups, rest = divmod(m - 1, size)
    return 2 * (size - 1) * (groups + 1) + 2 * max(0, rest - 1) if size > 1 else 0
