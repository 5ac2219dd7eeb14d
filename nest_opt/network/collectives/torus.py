"""Collectives on a torus or mesh: rings along every axis, all axes at work at once."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import prod

from nest_opt.errors import InstanceError
from nest_opt.network.collectives.shape import PASSES, Collective, Shape, uniform


@dataclass(frozen=True)
class Torus:
    """A box of devices, each with one link per axis and direction.

    Attributes
    ----------
    sizes
        Devices along each axis.
    wrapped
        Whether the ends of each axis are joined; an axis of two that is
        wrapped has two links between them.
    """

    sizes: tuple[int, ...]
    wrapped: tuple[bool, ...]

    def __post_init__(self) -> None:
        if len(self.sizes) != len(self.wrapped) or not self.sizes or min(self.sizes) < 1:
            raise InstanceError(
                f"torus: found sizes {self.sizes} and {len(self.wrapped)} marks of wrapping, at "
                "least one axis of at least 1 device and a mark for each axis are needed: "
                "correct them"
            )

    @property
    def ranks(self) -> int:
        """Number of devices."""
        return prod(self.sizes)

    @property
    def axes(self) -> tuple[tuple[int, bool], ...]:
        """Size and wrapping of the axes that have more than one device."""
        pairs = zip(self.sizes, self.wrapped, strict=True)
        return tuple((size, joined) for size, joined in pairs if size > 1)

    @property
    def diameter(self) -> int:
        """Steps between the two devices farthest from each other."""
        return sum(size // 2 if joined else size - 1 for size, joined in self.axes)


def torus_shape(operation: Collective, torus: Torus) -> Shape:
    """Return the steps, and the bytes of the busiest link per byte of the buffer.

    The buffer is cut into as many parts as there are axes; each part takes the
    axes one after the other, each starting at another one, so that all links
    work ("How to Scale Your Model", jax-ml/scaling-book, sharding.md: bytes over all
    links of all axes, whatever their length). A phase lasts as long as its slowest
    axis. A broadcast is a scatter, which loads the root's links like a
    reduce-scatter, and an all-gather.
    """
    if operation == "send-receive":
        crossed = Fraction(int(torus.ranks > 1))
        return uniform("exchange", (torus.diameter,), (crossed,), overlapped=True)
    if operation == "all-to-all":
        steps, volume = _sum_of_phases(torus, exchange_share, gathered=False)
        return uniform("exchange", (steps,), (volume,), overlapped=True)
    passes = PASSES.get(operation, 2)
    steps, volume = _sum_of_phases(torus, _gather_share, gathered=True)
    return uniform("stream", (passes * steps,), (passes * volume,), overlapped=True)


def exchange_share(size: int, joined: bool) -> Fraction:
    """Return what the busiest link of an axis carries in an all-to-all, in buffers of a rank.

    Around a ring by the shorter way, ties half each way: floor(d^2 / 4) / 2 of
    the d-th parts; along a line, the middle link: floor(d^2 / 4). A quarter of an
    all-gather's time on a long ring, as scaling-book has it.
    """
    return Fraction(size * size // 4, size * (2 if joined else 1))


def _gather_share(size: int, joined: bool) -> Fraction:
    """Return what the busiest link of an axis carries in an all-gather, in shards of a rank.

    Both ways round a ring half of what a rank has to get; on a line the rank at the end gets
    all of it by one link.
    """
    return Fraction(size - 1, 2 if joined else 1)


def _sum_of_phases(
    torus: Torus, share: Callable[[int, bool], Fraction], *, gathered: bool
) -> tuple[int, Fraction]:
    """Return steps and bytes of all phases, of each those of its slowest axis."""
    steps, volume = 0, Fraction(0)
    for phase in range(len(torus.axes)):
        now = list(_phase(torus, phase))
        steps += max(size // 2 if joined else size - 1 for size, joined, _ in now)
        volume += max(
            share(size, joined) * (Fraction(done, torus.ranks) if gathered else 1)
            for size, joined, done in now
        ) / len(now)
    return steps, volume


def _phase(torus: Torus, phase: int) -> Iterator[tuple[int, bool, int]]:
    """Yield axis and devices already gathered over, of each part of the buffer, in a phase."""
    axes = torus.axes
    for part in range(len(axes)):
        order = [axes[(part + place) % len(axes)] for place in range(phase + 1)]
        yield (*order[-1], prod(size for size, _ in order[:-1]))
