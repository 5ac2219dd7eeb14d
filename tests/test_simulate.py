"""The simulator of pipeline schedules: published rates, closed forms, longest paths."""

import csv
import random
from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from longest_path import Node, finish_times

from nest_opt.errors import ScheduleError
from nest_opt.simulate import (
    Operation,
    Schedule,
    Simulation,
    StageTimes,
    gpipe,
    interleaved,
    one_f_one_b,
    peak_in_flight,
    peak_stash_bytes,
    simulate,
    zb_h1,
    zb_h2,
)
from nest_opt.simulate.simulator import Hops

PLAIN: dict[str, Callable[[int, int], Schedule]] = {
    "gpipe": gpipe,
    "1f1b": one_f_one_b,
    "zb-h1": zb_h1,
    "zb-h2": zb_h2,
}


def uniform(schedule: Schedule, f: int, b: int, w: int, hop: int = 0) -> list[StageTimes]:
    """Return equal times for all stages."""
    return [StageTimes(f, b, w, hop, hop)] * schedule.stages


def rate(simulation: Simulation, compute: int) -> float:
    """Return the bubble rate of Qi et al.: (cost - m (F + B + W)) / cost, cost the longest span."""
    return 1 - compute / simulation.span_ps


# Two rows each of tables 9 and 5 of Qi et al. 2023 (arXiv:2401.10241): the 1.5B model, 22 layers on
# p = 8, and the 28.3B model, 62 layers on p = 32. Times are in microseconds.
# (p, m, v, (T_F, T_B, T_W, T_comm), rate by schedule)
CITED = (
    (8, 24, 3, (18522, 18086, 9337, 601), (0.2431, 0.1055, 0.1585, 0.1083)),
    (32, 256, 2, (10402, 10248, 7698, 460), (0.1352, 0.0624, 0.0594, 0.0257)),
)
Case = tuple[int, int, int, tuple[int, int, int, int], tuple[float, float, float, float]]
RATES = ("1F1B", "1F1B-I", "ZB-H1", "ZB-H2")


def check_published(case: Case) -> None:
    """Reproduce a row's four bubble rates to the printed digits."""
    p, m, v, (f, b, w, hop), published = case
    # Chunks take a v-th of a stage: everything times v keeps the numbers whole.
    compute = m * (f + b + w)
    for build, found in ((one_f_one_b, published[0]), (zb_h1, published[2]), (zb_h2, published[3])):
        schedule = build(p, m)
        simulation = simulate(schedule, uniform(schedule, f, b, w, hop), hops="delay")
        assert rate(simulation, compute) == pytest.approx(found, abs=0.00005001)
    schedule = interleaved(p, m, v)
    times = uniform(schedule, f, b, w, v * hop)

    def later_in_its_group(maker: Node, user: Node) -> bool:
        """Whether this passes between chunks, of another than the first of S microbatches."""
        return maker[2] // p != user[2] // p and user[1] % p > 0

    ends = finish_times(
        schedule.orders,
        v,
        lambda node: f if node[0] == "F" else b + w,
        lambda maker, user: v * hop,
        blocking=False,
        dropped=later_in_its_group,
    )
    assert 1 - v * compute / max(ends.values()) == pytest.approx(published[1], abs=0.00005001)
    # If all wait it takes S hops more.
    complete = simulate(schedule, times, hops="delay").compute_ps
    assert complete == max(ends.values()) + p * v * hop


@pytest.mark.parametrize("case", CITED, ids=["1.5B", "28.3B"])
def test_cited_rows_of_the_zero_bubble_paper(case: Case) -> None:
    """Hops that only delay give the published bubble rates to the printed digits.

    That of interleaved 1F1B needs, as its authors' program has it, that only
    the first of each S microbatches waits for its transfer between chunks.
    """
    check_published(case)


def test_all_rows_of_the_zero_bubble_paper(shared_data: Path) -> None:
    """The same holds for all 12 settings of table 5."""
    path = shared_data / "facts" / "published_schedule_timings.csv"
    if not path.is_file():
        pytest.skip(f"published timings not found at {path}")
    cases: dict[tuple[int, int, int], dict[str, float]] = defaultdict(dict)
    for row in csv.DictReader(path.read_text(encoding="utf-8").splitlines()):
        if row["source"].startswith("Zero Bubble") and row["table"] in ("Table 5", "Table 9"):
            p, m = int(row["p"]), int(row["m"])
            cases[p, m, (int(row["layers"]) + 2) // p][row["quantity"]] = float(row["value"])
    assert len(cases) == 12
    for (p, m, v), values in cases.items():
        f, b, w, hop = (
            round(1000 * values[name])
            for name in ("T_F", "T_B (input grad)", "T_W (weight grad)", "T_comm")
        )
        rates = [values[f"theoretical bubble rate {name}"] for name in RATES]
        check_published((p, m, v, (f, b, w, hop), (rates[0], rates[1], rates[2], rates[3])))


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


def random_case(seed: int) -> tuple[Schedule, list[StageTimes], Hops]:
    """Return a schedule with uneven times; some of them 0."""
    rng = random.Random(seed)
    p, v = rng.randint(1, 5), rng.randint(1, 3)
    if rng.random() < 0.4:
        schedule = interleaved(p, p * rng.randint(1, 3), v)
    else:
        schedule = PLAIN[rng.choice(tuple(PLAIN))](p, rng.randint(1, 9))
    top = rng.choice((1, 5, 100))
    times = [
        StageTimes(*(rng.randint(0, top) for _ in range(3)), *(rng.randint(0, top) for _ in "ab"))
        for _ in range(schedule.stages)
    ]
    return schedule, times, rng.choice(("blocking", "delay"))


def test_every_event_is_a_longest_path() -> None:
    """On 1200 uneven pipelines each operation ends where relaxing all dependencies puts it."""
    seen = defaultdict(int)
    for seed in range(1200):
        schedule, times, hops = random_case(seed)
        p = schedule.devices

        def work(node: Node, times: list[StageTimes] = times) -> int:
            t = times[node[2]]
            parts = {"F": t.forward_ps, "B": t.backward_input_ps, "W": t.backward_weight_ps}
            return parts["B"] + parts["W"] if node[0] == "BW" else parts[node[0]]

        def hop(maker: Node, user: Node, times: list[StageTimes] = times) -> int:
            return times[user[2]].hop_in_ps if user[0] == "F" else times[user[2]].hop_out_ps

        expected = finish_times(
            schedule.orders, schedule.chunks, work, hop, blocking=hops == "blocking"
        )
        found = {
            (event.kind, event.microbatch, event.chunk * p + event.device): event.end_ps
            for timeline in simulate(schedule, times, hops=hops).timelines
            for event in timeline
        }
        assert found == expected, (seed, schedule.name)
        seen[schedule.name, hops] += 1
    assert len(seen) == 10
    assert min(seen.values()) >= 50


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


def test_sync_starts_with_the_last_gradient() -> None:
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
    assert simulate(chunks, times).sync_end_ps == (16,)


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
    with pytest.raises(ScheduleError, match="hop_in_ps: found -1"):
        StageTimes(1, 1, hop_in_ps=-1)
