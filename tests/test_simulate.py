"""The simulator of pipeline schedules: closed forms, longest paths, syncs, errors."""

import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from longest_path import Node, finish_times, steps

from nest_opt.errors import ScheduleError
from nest_opt.simulate import (
    HOPS,
    SYNC_STARTS,
    Hops,
    Operation,
    Schedule,
    StageTimes,
    Sync,
    gpipe,
    interleaved,
    one_f_one_b,
    peak_in_flight,
    peak_stash_bytes,
    simulate,
    zb_h1,
    zb_h2,
)

Orders = Sequence[Sequence[tuple[str, int, int]]]
PLAIN: dict[str, Callable[[int, int], Schedule]] = {
    "gpipe": gpipe,
    "1f1b": one_f_one_b,
    "zb-h1": zb_h1,
    "zb-h2": zb_h2,
}


def uniform(schedule: Schedule, f: int, b: int, w: int, hop: int = 0) -> list[StageTimes]:
    """Return equal times for all stages."""
    return [StageTimes(f, b, w, hop, hop)] * schedule.stages


SHAPES = [(1, 1), (1, 4), (2, 2), (2, 7), (3, 2), (4, 1), (4, 4), (4, 8), (5, 12), (8, 24)]


@pytest.mark.parametrize(("p", "m"), SHAPES)
def test_uniform_gpipe_and_1f1b(p: int, m: int) -> None:
    """Both take (m + p - 1)(F + B) for any m, blocking hops as a part of F and B."""
    for name in ("gpipe", "1f1b"):
        schedule = PLAIN[name](p, m)
        simulation = simulate(schedule, uniform(schedule, 70, 60, 50))
        assert simulation.compute_ps == (m + p - 1) * 180
        assert simulation.bubble_ps == ((p - 1) * 180,) * p
        # A device pays what it receives: with that, all stages take 180 again.
        last = p - 1
        paying = [StageTimes(70 - 4 * (i > 0), 60 - 5 * (i < last), 50, 4, 5) for i in range(p)]
        assert simulate(schedule, paying).compute_ps == (m + p - 1) * 180


@pytest.mark.parametrize(("p", "m"), SHAPES)
def test_uniform_zero_bubble(p: int, m: int) -> None:
    """Bubbles are (p - 1)(F + B - W), and in the span (p - 1)(F + B - 2 W) for enough m."""
    f, b, w = 70, 60, 50
    h1 = simulate(zb_h1(p, m), uniform(zb_h1(p, m), f, b, w))
    if m >= p:
        assert h1.compute_ps == m * (f + b + w) + (p - 1) * (f + b - w)
    else:
        assert h1.compute_ps == (m + p - 1) * (f + b) + w
    h2 = simulate(zb_h2(p, m), uniform(zb_h2(p, m), f, b, w))
    if m >= 2 * p - 1:
        assert h2.span_ps == m * (f + b + w) + (p - 1) * (f + b - 2 * w)


def test_uniform_stages_take_the_closed_forms() -> None:
    """Whatever p, m, v, F, B, W and hops that delay: times to the picosecond, 60 of each schedule.

    Qi et al. 2023 (arXiv:2401.10241), table 2, and Narayanan et al. 2021 (arXiv:2104.04473),
    section 2.2; the hops are those that the rates of Qi et al., table 5, contain.
    """
    rng = random.Random(0)
    for _ in range(60):
        p, v, w = rng.randint(1, 8), rng.randint(1, 4), rng.randint(0, 10**6)
        f, b = rng.randint(w, 10**7), rng.randint(w, 10**7)
        m, t = p * rng.randint(2, 4), f + b + w
        # Longer hops than that outlast what a device has to do meanwhile.
        c = rng.randint(0, w // 2)

        def took(schedule: Schedule, hop: int, times: tuple[int, int, int] = (f, b, w)) -> int:
            return simulate(schedule, uniform(schedule, *times, hop), hops="delay").span_ps

        for hop in (0, c):
            assert took(gpipe(p, m), hop) == (m + p - 1) * t + 2 * (p - 1) * hop
            hops = max(0, 2 * (p - 1) * (m // p + 1) - 2) if p > 1 else 0
            assert took(one_f_one_b(p, m), hop) == (m + p - 1) * t + hops * hop
            wrapped = 2 * p * v - 2 if p > 1 else 0
            assert took(interleaved(p, m, v), hop) == (m * v + p - 1) * t + wrapped * hop
            filled = m * t + (p - 1) * (f + b - w)
            assert took(zb_h1(p, m), hop) == filled + 4 * (p - 1) * hop
            twice = m * t + (p - 1) * (f + b - 2 * w)
            assert took(zb_h2(p, m), hop) == twice + 2 * (p - 1) * hop


@pytest.mark.parametrize(("p", "m"), [shape for shape in SHAPES if shape[1] % shape[0] == 0])
@pytest.mark.parametrize("v", [1, 2, 3])
def test_uniform_interleaved(p: int, m: int, v: int) -> None:
    """The bubble of v chunks is (p - 1)(F + B) of a chunk, a v-th of that of 1F1B."""
    schedule = interleaved(p, m, v)
    simulation = simulate(schedule, uniform(schedule, 70, 60, 50))
    assert simulation.bubble_ps == ((p - 1) * 180,) * p


@pytest.mark.parametrize(("p", "m"), SHAPES)
def test_peaks_in_flight(p: int, m: int) -> None:
    """GPipe holds m, 1F1B min(p - i, m), ZB-H1 min(p, m), ZB-H2 min(2 p - 1, m) microbatches."""
    assert peak_in_flight(gpipe(p, m)) == (m,) * p
    assert peak_in_flight(one_f_one_b(p, m)) == tuple(min(p - i, m) for i in range(p))
    assert peak_in_flight(zb_h1(p, m)) == (min(p, m),) * p
    assert peak_in_flight(zb_h2(p, m)) == (min(2 * p - 1, m),) * p
    if m % p == 0:
        for v in (1, 2, 3):
            found = peak_in_flight(interleaved(p, m, v))
            assert found == tuple(min(2 * (p - 1 - i) + (v - 1) * p + 1, m * v) for i in range(p))


def test_peak_bytes() -> None:
    """A stash is full until B and what W needs until W; BW frees all of it."""
    assert peak_stash_bytes(one_f_one_b(3, 5), [10, 20, 30]) == (30, 40, 30)
    # Last device: microbatches 0 and 1 wait for W while the third is full.
    assert peak_stash_bytes(zb_h1(3, 5), [10, 10, 10], [4, 4, 4]) == (30, 24, 18)
    with pytest.raises(ScheduleError, match="found 2 numbers, 1f1b has 3 stages"):
        peak_stash_bytes(one_f_one_b(3, 5), [1, 2])


def random_case(seed: int, *names: str) -> tuple[Schedule, list[StageTimes], Hops]:
    """Return one of some schedules, of all if none is named, with uneven times, some of them 0."""
    rng = random.Random(seed)
    p, v = rng.randint(1, 5), rng.randint(1, 3)
    name = rng.choice(names or (*PLAIN, "interleaved"))
    if name == "interleaved":
        schedule = interleaved(p, p * rng.randint(1, 3), v)
    else:
        schedule = PLAIN[name](p, rng.randint(1, 9))
    top = rng.choice((1, 5, 100))
    times = [
        StageTimes(*(rng.randint(0, top) for _ in range(3)), *(rng.randint(0, top) for _ in "ab"))
        for _ in range(schedule.stages)
    ]
    return schedule, times, rng.choice(HOPS)


def found_and_expected(
    schedule: Schedule, times: list[StageTimes], hops: Hops, orders: Orders
) -> tuple[dict[Node, int], dict[Node, int]]:
    """Return when each operation ends in the simulator and by relaxing all dependencies."""

    def work(node: Node) -> int:
        t = times[node[2]]
        parts = {"F": t.forward_ps, "B": t.backward_input_ps, "W": t.backward_weight_ps}
        return parts["B"] + parts["W"] if node[0] == "BW" else parts[node[0]]

    def hop(maker: Node, user: Node) -> int:
        return times[user[2]].hop_in_ps if user[0] == "F" else times[user[2]].hop_out_ps

    found = {
        (event.kind, event.microbatch, event.chunk * schedule.devices + event.device): event.end_ps
        for timeline in simulate(schedule, times, hops=hops).timelines
        for event in timeline
    }
    return found, finish_times(orders, schedule.chunks, work, hop, blocking=hops == "blocking")


def test_uneven_pipelines_are_longest_paths() -> None:
    """On 1,200 uneven pipelines of three schedules, orders and dependencies written apart."""
    seen = defaultdict(int)
    for seed in range(1200):
        schedule, times, hops = random_case(seed, "1f1b", "interleaved", "zb-h1")
        orders = steps(schedule.name, schedule.devices, schedule.rounds, schedule.chunks)
        found, expected = found_and_expected(schedule, times, hops, orders)
        assert found == expected, (seed, schedule.name)
        seen[schedule.name, hops] += 1
    assert len(seen) == 6
    assert min(seen.values()) >= 150


def test_the_other_schedules_are_longest_paths() -> None:
    """Under GPipe and ZB-H2 too each operation ends where relaxing all dependencies puts it."""
    for seed in range(300):
        schedule, times, hops = random_case(seed, "gpipe", "zb-h2")
        found, expected = found_and_expected(schedule, times, hops, schedule.orders)
        assert found == expected, (seed, schedule.name)


def test_timelines_keep_the_order_and_never_overlap() -> None:
    """A device's events are its order, one after another, and its busy time is their sum."""
    for seed in range(50):
        schedule, times, hops = random_case(seed)
        simulation = simulate(schedule, times, hops=hops)
        for order, timeline in zip(schedule.orders, simulation.timelines, strict=True):
            ran = tuple(Operation(e.kind, e.microbatch, e.chunk) for e in timeline)
            assert ran == order
            for before, after in pairwise(timeline):
                assert before.end_ps <= after.start_ps
            assert all(e.receive_ps == 0 for e in timeline) or hops == "blocking"
        idle = zip(simulation.busy_ps, simulation.bubble_ps, strict=True)
        assert {busy + bubble for busy, bubble in idle} == {simulation.compute_ps}


def test_a_sync_starts_after_the_last_gradient() -> None:
    """A stage's sync starts after its last W; chunks sync in turn beside the other operations."""
    schedule = one_f_one_b(2, 1)
    times = [StageTimes(1, 1, 1, sync_ps=2), StageTimes(1, 1, 1, sync_ps=5)]
    simulation = simulate(schedule, times)
    assert simulation.compute_ps == 6
    assert simulation.sync_end_ps == (8, 9)
    assert simulation.iteration_ps == 9
    chunks = interleaved(1, 1, 2)
    # Chunk 1 is done at 6 and syncs until 13, while chunk 0 goes on until 8.
    times = [StageTimes(2, 1, 1, sync_ps=3), StageTimes(2, 1, 1, sync_ps=7)]
    assert simulate(chunks, times).syncs == ((Sync(1, 6, 13), Sync(0, 13, 16)),)


def test_a_sync_may_wait_for_the_device_or_overlap_the_last_backward() -> None:
    """It starts after all operations, or with the last backward, and ends no earlier than it."""
    chunks = interleaved(1, 1, 2)
    times = [StageTimes(2, 1, 1, sync_ps=3), StageTimes(2, 1, 1, sync_ps=7)]
    assert simulate(chunks, times, sync="device").syncs == ((Sync(1, 8, 15), Sync(0, 15, 18)),)
    # Chunk 1 has its last backward from 4 to 6.
    assert simulate(chunks, times, sync="gradients").syncs == ((Sync(1, 4, 11), Sync(0, 11, 14)),)
    short = [StageTimes(2, 1, 1, sync_ps=1)] * 2
    assert simulate(chunks, short, sync="gradients").sync_end_ps == (8,)
    # W alone is what it overlaps where it is apart, and not what a device receives before it.
    split = simulate(zb_h1(1, 2), [StageTimes(5, 5, 4, sync_ps=6)], sync="gradients")
    assert split.syncs == ((Sync(0, 24, 30),),)
    received = [StageTimes(1, 2, 2, hop_out_ps=10, sync_ps=4), StageTimes(1, 1)]
    assert simulate(one_f_one_b(2, 1), received, sync="gradients").syncs[0] == (Sync(0, 13, 17),)


def test_less_overlap_is_never_faster() -> None:
    """A batch with syncs that overlap more ends no later, and by no more than the last backward."""
    for seed in range(200):
        schedule, times, hops = random_case(seed)
        times = [replace(time, sync_ps=(7 * seed + i) % 50) for i, time in enumerate(times)]
        runs = [simulate(schedule, times, hops=hops, sync=start) for start in SYNC_STARTS]
        device, stage, gradients = (run.iteration_ps for run in runs)
        assert gradients <= stage <= device
        assert {run.timelines for run in runs} == {runs[0].timelines}
        # With one chunk nothing runs after a stage's last gradient.
        assert schedule.chunks > 1 or stage == device
        longest = max(time.compute_ps("BW") for time in times)
        assert stage <= gradients + longest


def test_a_deadlock_is_named() -> None:
    """Orders that wait for each other are refused with the circle that they form."""
    first = (Operation("F", 1), Operation("F", 0), Operation("BW", 0), Operation("BW", 1))
    second = (Operation("F", 0), Operation("BW", 0), Operation("F", 1), Operation("BW", 1))
    schedule = Schedule("mine", 2, 1, (first, first))
    simulate(schedule, [StageTimes(1, 1)] * 2)
    stuck = (first[0], first[2], first[1], first[3])
    with pytest.raises(
        ScheduleError,
        match="mine: deadlock after 1 of 8 operations: device 0 cannot run BW of microbatch 0, "
        "chunk 0 before device 1 has run B of microbatch 0, chunk 0, device 1 cannot run F of "
        "microbatch 0, chunk 0 before device 0 has run F of microbatch 0, chunk 0",
    ):
        simulate(Schedule("mine", 2, 1, (stuck, second)), [StageTimes(1, 1)] * 2)
    early = (Operation("F", 0), Operation("W", 0), Operation("B", 0))
    with pytest.raises(
        ScheduleError, match="device 0 cannot run W of microbatch 0, chunk 0 before"
    ):
        simulate(Schedule("mine", 1, 1, (early, early)), [StageTimes(1, 1)] * 2)


def test_malformed_schedules_are_refused() -> None:
    """Missing, repeated and unknown operations, and numbers that do not fit, are named."""
    f, bw = Operation("F", 0), Operation("BW", 0)
    for order, message in (
        ((f,), "B of microbatch 0, chunk 0 is missing"),
        ((f, bw, Operation("F", 1)), "found F of microbatch 1, chunk 0, there are 1 microbatches"),
        ((f, bw, Operation("W", 0)), "BW takes the place of B and W"),
        ((f, f, bw), "found F of microbatch 0, chunk 0 2 times"),
    ):
        with pytest.raises(ScheduleError, match=message):
            Schedule("mine", 1, 1, (order,))
    with pytest.raises(ScheduleError, match="found rounds 0, at least 1"):
        one_f_one_b(2, 0)
    with pytest.raises(ScheduleError, match="found devices 0, at least 1"):
        interleaved(0, 2, 1)
    with pytest.raises(ScheduleError, match="found chunks 0, at least 1"):
        interleaved(2, 2, 0)
    with pytest.raises(ScheduleError, match="found 5 microbatches on 2 devices"):
        interleaved(2, 5, 1)
    with pytest.raises(ScheduleError, match="found 1 stages, 1f1b has 2"):
        simulate(one_f_one_b(2, 1), [StageTimes(1, 1)])
    for name in ("hops", "sync"):
        with pytest.raises(ScheduleError, match=f"{name}: found 'none', one of"):
            simulate(one_f_one_b(1, 1), [StageTimes(1, 1)], **{name: "none"})  # type: ignore[arg-type]
    with pytest.raises(ScheduleError, match="hop_in_ps: found -1"):
        StageTimes(1, 1, hop_in_ps=-1)
