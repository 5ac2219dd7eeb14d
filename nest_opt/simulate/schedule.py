"""Pipeline schedules: which operations each device runs, in which order.

A schedule says nothing of time. Device i of S holds v chunks of the model;
chunk c of device i is stage c * S + i, so that the stages of one chunk lie on
the devices in turn and the next chunk begins on device 0 again. With v = 1
stage and device are the same.

Sources: GPipe is Huang et al. 2019 (arXiv:1811.06965); 1F1B and interleaved
1F1B are Narayanan et al. 2021 (arXiv:2104.04473), section 2.2; ZB-H1 and ZB-H2
are Qi et al. 2023 (arXiv:2401.10241), section 2.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Literal, NamedTuple

from nest_opt.errors import ScheduleError

Kind = Literal["F", "B", "W", "BW"]


class Operation(NamedTuple):
    """One operation of a device.

    Attributes
    ----------
    kind
        F: forward. B: gradient of the input. W: gradient of the weights.
        BW: both as one, after which the gradient of the input is passed on.
    microbatch
        Number of the microbatch.
    chunk
        Number of the device's chunk.
    """

    kind: Kind
    microbatch: int
    chunk: int = 0

    def __str__(self) -> str:
        return f"{self.kind} of microbatch {self.microbatch}, chunk {self.chunk}"


@dataclass(frozen=True)
class Schedule:
    """The operations of every device in the order in which it runs them.

    Attributes
    ----------
    name
        For messages.
    rounds
        m, microbatches per batch.
    chunks
        v, chunks of every device.
    orders
        One order per device: F and either BW, or B and W, of every
        microbatch and chunk, each once.

    Raises
    ------
    ScheduleError
        When built, if a number is less than 1 or a device does not run each
        of its operations exactly once.
    """

    name: str
    rounds: int
    chunks: int
    orders: tuple[tuple[Operation, ...], ...]

    def __post_init__(self) -> None:
        for item, number in (
            ("devices", len(self.orders)),
            ("rounds", self.rounds),
            ("chunks", self.chunks),
        ):
            if number < 1:
                raise ScheduleError(
                    f"{self.name}: found {item} {number}, at least 1 is needed: raise it"
                )
        for device, order in enumerate(self.orders):
            self._check_order(device, order)

    @property
    def devices(self) -> int:
        """S, devices of the pipeline."""
        return len(self.orders)

    @property
    def stages(self) -> int:
        """S * v, stages of the model."""
        return self.devices * self.chunks

    def _check_order(self, device: int, order: tuple[Operation, ...]) -> None:
        whole = {(j, c) for kind, j, c in order if kind == "BW"}
        needed = {
            Operation(kind, j, c)
            for j, c in product(range(self.rounds), range(self.chunks))
            for kind in (_WHOLE if (j, c) in whole else _SPLIT)
        }
        found = set(order)
        place = f"{self.name}: device {device} of {self.devices}"
        if missing := sorted(needed - found):
            raise ScheduleError(
                f"{place}: {missing[0]} is missing, each of {self.rounds} microbatches needs F and "
                f"BW, or F, B and W, in each of {self.chunks} chunks: add it"
            )
        if unknown := sorted(found - needed):
            raise ScheduleError(
                f"{place}: found {unknown[0]}, there are {self.rounds} microbatches and "
                f"{self.chunks} chunks, and BW takes the place of B and W: remove it"
            )
        if len(order) > len(found):
            twice, times = Counter(order).most_common(1)[0]
            raise ScheduleError(
                f"{place}: found {twice} {times} times, 1 is allowed: remove the rest"
            )


_WHOLE: tuple[Kind, ...] = ("F", "BW")
_SPLIT: tuple[Kind, ...] = ("F", "B", "W")


def gpipe(devices: int, rounds: int) -> Schedule:
    """Return GPipe: all forwards, then all backwards, both in the order of the microbatches.

    Huang et al. 2019 (arXiv:1811.06965), section 2.3. Backwards in the
    opposite order, as some runtimes have them, take as long.
    """
    order = (
        *(Operation("F", j) for j in range(rounds)),
        *(Operation("BW", j) for j in range(rounds)),
    )
    return Schedule("gpipe", rounds, 1, (order,) * devices)


def one_f_one_b(devices: int, rounds: int) -> Schedule:
    """Return 1F1B: min(S - 1 - i, m) forwards, then F and B in turn, then the rest of B.

    Narayanan et al. 2021 (arXiv:2104.04473), section 2.2.1 (PipeDream-flush).
    """
    forwards = [Operation("F", j) for j in range(rounds)]
    backwards = [Operation("BW", j) for j in range(rounds)]
    orders = tuple(_in_turn(forwards, backwards, devices - 1 - i) for i in range(devices))
    return Schedule("1f1b", rounds, 1, orders)


def interleaved(devices: int, rounds: int, chunks: int) -> Schedule:
    """Return interleaved 1F1B with v chunks per device.

    Microbatches go in groups of S: a device runs a group's forwards of chunk
    0, then of chunk 1 and so on, then the next group's; the backwards likewise
    from the last chunk down. After 2 (S - 1 - i) + (v - 1) S forwards, or all
    if there are fewer, it alternates as 1F1B does. Narayanan et al. 2021
    (arXiv:2104.04473), section 2.2.2.

    Raises
    ------
    ScheduleError
        If m is not a multiple of S.
    """
    if devices > 0 and rounds % devices:
        raise ScheduleError(
            f"interleaved: found {rounds} microbatches on {devices} devices, a multiple of "
            f"{devices} is needed: change the number of microbatches, or use 1f1b"
        )
    places = [
        (group * devices + member, chunk)
        for group in range(rounds // max(1, devices))
        for chunk in range(chunks)
        for member in range(devices)
    ]
    forwards = [Operation("F", j, chunk) for j, chunk in places]
    backwards = [Operation("BW", j, chunks - 1 - chunk) for j, chunk in places]
    orders = tuple(
        _in_turn(forwards, backwards, 2 * (devices - 1 - i) + (chunks - 1) * devices)
        for i in range(devices)
    )
    return Schedule("interleaved", rounds, chunks, orders)


def zb_h1(devices: int, rounds: int) -> Schedule:
    """Return ZB-H1: 1F1B with B and W apart; device i runs W of a microbatch i steps after its B.

    No device holds more than S microbatches between F and W. Qi et al. 2023
    (arXiv:2401.10241), section 2.1 and figure 3.
    """
    return _zero_bubble("zb-h1", devices, rounds, 1)


def zb_h2(devices: int, rounds: int) -> Schedule:
    """Return ZB-H2: ZB-H1 with twice the forwards before the first B and twice the delay of W.

    Device i begins with 2 (S - 1 - i) forwards more than the last device and
    runs W of a microbatch 2 i steps after its B: it begins as much later than
    device 0 as it ends later. No device holds more than 2 S - 1 microbatches
    between F and W. Qi et al. 2023 (arXiv:2401.10241), section 2.2 and figure 3.
    """
    return _zero_bubble("zb-h2", devices, rounds, 2)


def _zero_bubble(name: str, devices: int, rounds: int, depth: int) -> Schedule:
    orders = tuple(
        tuple(_with_weights(depth * (devices - 1 - i), rounds, depth * i)) for i in range(devices)
    )
    return Schedule(name, rounds, 1, orders)


def _with_weights(ahead: int, rounds: int, delay: int) -> Iterator[Operation]:
    """Yield 1F1B with `ahead` forwards first, each W `delay` steps after its B, the rest last."""
    forwards = [Operation("F", j) for j in range(rounds)]
    inputs = [Operation("B", j) for j in range(rounds)]
    for operation in _in_turn(forwards, inputs, ahead):
        yield operation
        if operation.kind == "B" and operation.microbatch >= delay:
            yield Operation("W", operation.microbatch - delay)
    for j in range(max(0, rounds - delay), rounds):
        yield Operation("W", j)


def _in_turn(
    forwards: list[Operation], backwards: list[Operation], ahead: int
) -> tuple[Operation, ...]:
    """Return `ahead` forwards, then one forward and one backward in turn, then the backwards."""
    ahead = min(ahead, len(forwards))
    steady = zip(forwards[ahead:], backwards, strict=False)
    rest = backwards[len(forwards) - ahead :]
    return (*forwards[:ahead], *(op for pair in steady for op in pair), *rest)
