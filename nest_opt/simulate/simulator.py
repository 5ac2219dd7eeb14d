"""The simulator: when each operation of a schedule runs, event by event.

A device runs its operations in the order of the schedule, each as soon as the
device is free and what the operation needs is there: F the activations of the
stage before, B and BW the gradient of the stage after (on the last stage the
F of the same microbatch), W its own B. So the times are the longest paths of
the graph of operations; each operation is visited once, and looked at a
second time where it had to wait.

Nothing here knows the closed forms of `nest_opt.cost`: the two are compared.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Literal, NamedTuple, get_args

from nest_opt.errors import ScheduleError
from nest_opt.simulate.schedule import Kind, Operation, Schedule

Hops = Literal["blocking", "delay"]
SyncStart = Literal["device", "stage", "gradients"]
HOPS: tuple[Hops, ...] = get_args(Hops)
SYNC_STARTS: tuple[SyncStart, ...] = get_args(SyncStart)


@dataclass(frozen=True)
class StageTimes:
    """Times of one stage, in integer picoseconds.

    Attributes
    ----------
    forward_ps, backward_input_ps, backward_weight_ps
        One microbatch's F, B and W; BW takes B and W together.
    hop_in_ps
        Transfer of one microbatch's activations from the stage before.
    hop_out_ps
        Transfer of one microbatch's gradient from the stage after.
    sync_ps
        Gradient synchronisation, once per batch.

    Hops between stages on one device, and of the model's two ends, take no
    time, whatever is given for them.
    """

    forward_ps: int
    backward_input_ps: int
    backward_weight_ps: int = 0
    hop_in_ps: int = 0
    hop_out_ps: int = 0
    sync_ps: int = 0

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) < 0:
                raise ScheduleError(
                    f"{field.name}: found {getattr(self, field.name)}, at least 0 is needed: "
                    "correct it"
                )

    def compute_ps(self, kind: Kind) -> int:
        """Return the time of an operation without its hop."""
        if kind == "F":
            return self.forward_ps
        if kind == "B":
            return self.backward_input_ps
        if kind == "W":
            return self.backward_weight_ps
        return self.backward_input_ps + self.backward_weight_ps


class Event(NamedTuple):
    """One operation as it ran.

    The first `receive_ps` of it are the transfer of what it needs; 0 unless
    hops are blocking.
    """

    device: int
    start_ps: int
    end_ps: int
    kind: Kind
    microbatch: int
    chunk: int
    receive_ps: int


class Sync(NamedTuple):
    """The gradient synchronisation of one stage as it ran, beside the events of its device."""

    chunk: int
    start_ps: int
    end_ps: int


@dataclass(frozen=True)
class Simulation:
    """What a schedule takes with given times.

    Attributes
    ----------
    schedule
        The schedule.
    timelines
        One per device: its events in order.
    syncs
        One per device: the syncs of its stages in order.
    hops, sync
        As given to `simulate`.
    """

    schedule: Schedule
    timelines: tuple[tuple[Event, ...], ...]
    syncs: tuple[tuple[Sync, ...], ...]
    hops: Hops
    sync: SyncStart

    @cached_property
    def sync_end_ps(self) -> tuple[int, ...]:
        """For each device when the last sync of its stages is done."""
        return tuple(syncs[-1].end_ps for syncs in self.syncs)

    @cached_property
    def iteration_ps(self) -> int:
        """Time of a batch: from the first event to the end of the last event or sync."""
        return max(self.compute_ps, *self.sync_end_ps)

    @cached_property
    def compute_ps(self) -> int:
        """Time of a batch without sync: from the first event to the end of the last."""
        return max(timeline[-1].end_ps for timeline in self.timelines)

    @cached_property
    def span_ps(self) -> int:
        """Longest time from a device's first event to its last.

        Batches can follow each other at this distance where no device waits
        for all others between them (Qi et al. 2023, section 4, and the cost
        that their bubble rates refer to).
        """
        return max(timeline[-1].end_ps - timeline[0].start_ps for timeline in self.timelines)

    @cached_property
    def busy_ps(self) -> tuple[int, ...]:
        """For each device the time of its events, blocking hops included."""
        return tuple(
            sum(event.end_ps - event.start_ps for event in timeline) for timeline in self.timelines
        )

    @property
    def bubble_ps(self) -> tuple[int, ...]:
        """For each device what of `compute_ps` it is idle."""
        return tuple(self.compute_ps - busy for busy in self.busy_ps)

    @property
    def bubble_rate(self) -> tuple[float, ...]:
        """For each device the bubble as a share of `compute_ps`; 0 where nothing takes time."""
        return tuple(bubble / self.compute_ps if bubble else 0.0 for bubble in self.bubble_ps)

    @property
    def bubble_share(self) -> float:
        """The bubbles of all devices as a share of their `compute_ps` together."""
        bubble = sum(self.bubble_ps)
        return bubble / (self.compute_ps * self.schedule.devices) if bubble else 0.0


def simulate(
    schedule: Schedule,
    times: Sequence[StageTimes],
    *,
    hops: Hops = "blocking",
    sync: SyncStart = "stage",
) -> Simulation:
    """Run a schedule.

    Parameters
    ----------
    schedule
        Which operations each device runs, in which order.
    times
        One per stage; stage c * S + i is chunk c of device i.
    hops
        `blocking`: the receiving device is busy while it receives, after
        which the operation runs; nothing is received before its turn (11).
        `delay`: data arrives a hop after it was made, and keeps no device.
    sync
        When a stage's sync may start. `stage`: when its last gradient of the
        weights is done (16), beside what its device runs after that. `device`:
        when its device has run everything, as a runtime does that overlaps
        nothing. `gradients`: with the operation that makes its last gradients
        of the weights, and it ends with that at the earliest: the limit of
        many small buckets, each sent as soon as it is full (Li et al. 2020,
        arXiv:2006.15704, section 3.2.3). Syncs of one device follow each other.

    Returns
    -------
    Simulation
        All events, and all syncs.

    Raises
    ------
    ScheduleError
        If there is not one `StageTimes` per stage, operations wait for each
        other in a circle, or there is no such `hops` or `sync`.
    """
    for name, value, allowed in (("hops", hops, HOPS), ("sync", sync, SYNC_STARTS)):
        if value not in allowed:
            raise ScheduleError(
                f"{name}: found {str(value)[:40]!r}, one of {', '.join(allowed)} is needed: "
                "choose one"
            )
    if len(times) != schedule.stages:
        raise ScheduleError(
            f"times: found {len(times)} stages, {schedule.name} has {schedule.stages} "
            f"({schedule.devices} devices of {schedule.chunks} chunks): give one per stage"
        )
    run = _Run(schedule, times, hops)
    run.finish()
    timelines = tuple(tuple(timeline) for timeline in run.timelines)
    syncs = tuple(
        tuple(_syncs(line, times[device :: schedule.devices], sync))
        for device, line in enumerate(timelines)
    )
    return Simulation(schedule, timelines, syncs, hops, sync)


class _Run:
    """One run: what each device has done, and who waits for what."""

    def __init__(self, schedule: Schedule, times: Sequence[StageTimes], hops: Hops) -> None:
        self.schedule, self.times, self.blocking = schedule, times, hops == "blocking"
        # Asked for at every operation.
        self.devices, self.stages = schedule.devices, schedule.stages
        self.timelines: list[list[Event]] = [[] for _ in schedule.orders]
        # When the data is there that an operation passes on, by what is waited for.
        self.done_ps: dict[_Result, int] = {}
        self.waiting: dict[_Result, list[int]] = {}

    def finish(self) -> None:
        """Run everything, or raise ScheduleError."""
        ready = deque(range(self.devices))
        while ready:
            device = ready.popleft()
            order, timeline = self.schedule.orders[device], self.timelines[device]
            while len(timeline) < len(order):
                operation = order[len(timeline)]
                need = self.need(device, operation)
                if need is not None and need not in self.done_ps:
                    self.waiting.setdefault(need, []).append(device)
                    break
                result = self.run(device, operation, need)
                if result in self.waiting:
                    ready.extend(self.waiting.pop(result))
        if self.waiting:
            raise ScheduleError(self.deadlock())

    def run(self, device: int, operation: Operation, need: "_Result | None") -> "_Result":
        """Run a device's next operation; return what others may wait for."""
        kind, microbatch, chunk = operation
        stage, timeline = chunk * self.devices + device, self.timelines[device]
        free = timeline[-1].end_ps if timeline else 0
        there = 0 if need is None else self.done_ps[need]
        hop = self.hop_ps(kind, stage, need)
        receive = hop if self.blocking else 0
        start = max(free, there + hop - receive)
        end = start + receive + self.times[stage].compute_ps(kind)
        timeline.append(Event(device, start, end, kind, microbatch, chunk, receive))
        result = _Result(_MAKES[kind], microbatch, stage)
        self.done_ps[result] = end
        return result

    def hop_ps(self, kind: Kind, stage: int, need: "_Result | None") -> int:
        """Return the transfer of what an operation needs; 0 if it was made on the same device."""
        if need is None or (need.stage - stage) % self.devices == 0:
            return 0
        return self.times[stage].hop_in_ps if kind == "F" else self.times[stage].hop_out_ps

    def need(self, device: int, operation: Operation) -> "_Result | None":
        """Return what an operation waits for; None for F on the first stage."""
        kind, microbatch, chunk = operation
        stage = chunk * self.devices + device
        if kind == "W":
            return _Result("B", microbatch, stage)
        if kind == "F":
            return _Result("F", microbatch, stage - 1) if stage > 0 else None
        if stage == self.stages - 1:
            return _Result("F", microbatch, stage)
        return _Result("B", microbatch, stage + 1)

    def deadlock(self) -> str:
        """Say which devices wait for each other."""
        devices, orders = self.schedule.devices, self.schedule.orders
        needs = {device: need for need, waiters in self.waiting.items() for device in waiters}
        seen: list[int] = []
        device = min(needs)
        while device not in seen:
            seen.append(device)
            device = needs[device].stage % devices
        waits = ", ".join(
            f"device {waiter} cannot run {orders[waiter][len(self.timelines[waiter])]} before "
            f"device {needs[waiter].stage % devices} has run {needs[waiter].name(self.schedule)}"
            for waiter in seen[seen.index(device) :]
        )
        done = sum(map(len, self.timelines))
        total = sum(map(len, orders))
        return (
            f"{self.schedule.name}: deadlock after {done} of {total} operations: {waits}: "
            "order the operations so that none comes before what it waits for"
        )


class _Result(NamedTuple):
    """What an operation makes: activations (F), gradient of the input (B) or of the weights (W)."""

    kind: Kind
    microbatch: int
    stage: int

    def name(self, schedule: Schedule) -> str:
        chunk = self.stage // schedule.devices
        return str(Operation(self.kind, self.microbatch, chunk))


# BW passes on the gradient of the input when all of it is done.
_MAKES: dict[Kind, Kind] = {"F": "F", "B": "B", "W": "W", "BW": "B"}


def _syncs(
    timeline: Sequence[Event], times: Sequence[StageTimes], start: SyncStart
) -> Iterator[Sync]:
    """Yield the syncs of a device's chunks, in the order in which their gradients are done."""
    last = {event.chunk: event for event in timeline if event.kind in ("W", "BW")}
    free = 0
    for event in sorted(last.values(), key=lambda event: event.end_ps):
        ready = {
            "device": timeline[-1].end_ps,
            "stage": event.end_ps,
            "gradients": event.start_ps + event.receive_ps,
        }[start]
        begin = max(free, ready)
        free = max(begin + times[event.chunk].sync_ps, event.end_ps)
        yield Sync(event.chunk, begin, free)
