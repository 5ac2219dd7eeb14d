"""The time of a collective: the fastest algorithm, why it is, the others, and a lower bound."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from nest_opt.errors import InstanceError
from nest_opt.network.collectives.bounds import (
    Bound,
    bound_of_volumes,
    lower_bound,
    torus_bound,
)
from nest_opt.network.collectives.fabric import Fabric, Line, line, shapes
from nest_opt.network.collectives.shape import Collective, Shape, Spread, uniform
from nest_opt.network.collectives.torus import Torus, torus_shape


@dataclass(frozen=True)
class Candidate:
    """An algorithm under a protocol, its line, and its time for the buffer."""

    algorithm: str
    protocol: str
    line: Line
    time_s: Fraction


@dataclass(frozen=True)
class CollectiveTime:
    """The time of a collective, and what it was chosen from.

    Attributes
    ----------
    size_bytes
        The full buffer; of an all-to-all what one rank holds, of an uneven one
        what the rank holds that holds most.
    candidates
        Fastest first; the first is taken. Empty for one rank, which has nothing to do.
    bound
        What no algorithm is below.
    """

    operation: Collective
    ranks: int
    size_bytes: Fraction
    candidates: tuple[Candidate, ...]
    bound: Bound

    @property
    def time_s(self) -> Fraction:
        """Seconds of the fastest candidate."""
        return self.candidates[0].time_s if self.candidates else Fraction(0)

    @property
    def gap(self) -> Fraction:
        """(time - bound) / time."""
        return (self.time_s - self.bound.time_s) / self.time_s if self.time_s else Fraction(0)

    @property
    def reason(self) -> str:
        """Why the first candidate is taken: against the next one of another algorithm."""
        if not self.candidates:
            return "one rank has nothing to exchange"
        best = self.candidates[0]
        other = next((each for each in self.candidates if each.algorithm != best.algorithm), None)
        if other is None:
            return f"{best.algorithm} is the only algorithm of this fabric for {self.operation}"
        return (
            f"{best.algorithm} ({best.protocol}) takes {_parts(best, self.size_bytes)}, "
            f"{other.algorithm} ({other.protocol}) {_parts(other, self.size_bytes)}"
        )


def collective_time(
    fabric: Fabric, operation: Collective, spread: Spread, size_bytes: Fraction | int
) -> CollectiveTime:
    """Return the time of a collective over a spread of ranks.

    Raises
    ------
    InstanceError
        If the fabric has no algorithm for it, or fewer levels than the spread.
    """
    size = Fraction(size_bytes)
    bound = lower_bound(fabric, operation, spread, size)
    if spread.ranks == 1:
        return CollectiveTime(operation, 1, size, (), bound)
    named = [(str(name), shape) for name, shape in shapes(fabric, operation, spread)]
    candidates = _candidates(fabric, operation, spread, named, size)
    return CollectiveTime(operation, spread.ranks, size, candidates, bound)


def torus_time(
    fabric: Fabric, operation: Collective, torus: Torus, size_bytes: Fraction | int
) -> CollectiveTime:
    """Return the time of a collective on a torus; the fabric's first link is one of its links."""
    size = Fraction(size_bytes)
    bound = torus_bound(fabric, operation, torus, size)
    if torus.ranks == 1:
        return CollectiveTime(operation, 1, size, (), bound)
    named = [("torus-rings", torus_shape(operation, torus))]
    candidates = _candidates(fabric, operation, Spread((1,)), named, size)
    return CollectiveTime(operation, torus.ranks, size, candidates, bound)


def uneven_all_to_all_time(
    fabric: Fabric, spread: Spread, sent_bytes: Sequence[Sequence[int]]
) -> CollectiveTime:
    """Return the time of an all-to-all in which every pair has its own bytes.

    Parameters
    ----------
    sent_bytes
        sent_bytes[i][j] goes from rank i to rank j, ranks numbered along the
        levels. What a rank keeps takes no time.

    Notes
    -----
    All transfers start at once; a level takes as long as the subgroup that
    sends or receives most over it, shared out over its devices. Equal bytes give
    `direct`.

    Raises
    ------
    InstanceError
        If the table is not n by n, or a number in it is negative.
    """
    ranks = spread.ranks
    if len(sent_bytes) != ranks or any(len(row) != ranks for row in sent_bytes):
        raise InstanceError(
            f"all-to-all: found a table of {len(sent_bytes)} rows, {ranks} rows of {ranks} numbers "
            "are needed (one for each pair of ranks): correct it"
        )
    least = min(min(row) for row in sent_bytes)
    if least < 0:
        raise InstanceError(
            f"all-to-all: found {least} bytes, at least 0 are needed between all ranks: correct it"
        )
    fabric.check(spread)
    size = Fraction(max(sum(row) for row in sent_bytes))
    if ranks == 1 or not size:
        nothing = Bound(Fraction(0), Fraction(0), Fraction(0))
        return CollectiveTime("all-to-all", ranks, size, (), nothing)
    volumes = tuple(_busiest(sent_bytes, below) / size for below in spread.below)
    crossed = max(level for level, count in enumerate(spread.counts) if count > 1)
    steps = tuple(int(level == crossed) for level in range(len(volumes)))
    shape = uniform("exchange", steps, volumes, overlapped=True)
    bound = bound_of_volumes(fabric, "all-to-all", spread, volumes, size)
    candidates = _candidates(fabric, "all-to-all", spread, [("direct", shape)], size)
    return CollectiveTime("all-to-all", ranks, size, candidates, bound)


def _busiest(sent_bytes: Sequence[Sequence[int]], below: int) -> Fraction:
    """Return the most bytes that leave or enter a subgroup, per device of it."""
    ranks = len(sent_bytes)
    most = 0
    for first in range(0, ranks, below):
        inside = range(first, first + below)
        outside = [rank for rank in range(ranks) if rank not in inside]
        leave = sum(sent_bytes[one][other] for one in inside for other in outside)
        enter = sum(sent_bytes[other][one] for one in inside for other in outside)
        most = max(most, leave, enter)
    return Fraction(most, below)


def _candidates(
    fabric: Fabric,
    operation: Collective,
    spread: Spread,
    named: Sequence[tuple[str, Shape]],
    size_bytes: Fraction,
) -> tuple[Candidate, ...]:
    """Return all algorithms under all protocols, fastest first."""
    candidates = []
    for name, shape in named:
        for protocol in fabric.protocols:
            found = line(fabric, protocol, shape, spread)
            if found is not None:
                time_s = found.time_s(size_bytes)
                candidates.append(Candidate(name, protocol.name, found, time_s))
    if not candidates:
        raise InstanceError(
            f"fabric {fabric.name}: found no algorithm for {operation}, at least one is needed: "
            f"add one to its algorithms ({', '.join(fabric.algorithms)})"
        )
    return tuple(sorted(candidates, key=lambda candidate: candidate.time_s))


def _parts(candidate: Candidate, size_bytes: Fraction) -> str:
    fixed, streamed = candidate.line.fixed_s, candidate.line.per_byte_s * size_bytes
    return f"{float(fixed) * 1e6:.1f} us for steps and {float(streamed) * 1e6:.1f} us for bytes"
