"""The messages that a flat ring passes."""

from nest_opt.problem.profile import Operation

# In units of n - 1 over n ranks.
_PASSES: dict[Operation, int] = {
    "all-reduce": 2,
    "all-gather": 1,
    "reduce-scatter": 1,
    "all-to-all": 1,
}


def ring_passes(operation: Operation, ranks: int) -> int:
    """Return k, the messages one after another, each of 1/n of the buffer.

    2 (n - 1) for an all-reduce and n - 1 for the other operations (Thakur,
    Rabenseifner and Gropp 2005).
    """
    return _PASSES[operation] * (ranks - 1)
