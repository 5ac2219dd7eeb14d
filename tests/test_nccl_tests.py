"""Reading nccl-tests' output, refusing what is wrong with it, and fitting constants to it."""

from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nest_opt.errors import InstanceError
from nest_opt.models.fabrics import build_fabric
from nest_opt.models.nccl_tests import bus_factor, parse_nccl_tests, read_nccl_tests
from nest_opt.network.collectives import (
    Collective,
    Fabric,
    Measurement,
    Spread,
    calibrate,
    calibrate_together,
    collective_time,
    relative_errors,
)

HEADER = (
    "#       size   count   type  redop  root    time   algbw   busbw #wrong"
    "    time   algbw   busbw #wrong\n"
    "#        (B)  (elements)                    (us)  (GB/s)  (GB/s)"
    "           (us)  (GB/s)  (GB/s)\n"
)


def times(size: int, us: float, factor: float) -> str:
    """Return time, both bandwidths and the count of wrong values, as printed."""
    rate = size / us / 1000
    return f"{us:.2f} {rate:.2f} {rate * factor:.2f} 0"


def output(
    rows: list[tuple[int, float]],
    program: str = "all_reduce_perf",
    hosts: tuple[int, ...] = (8,),
    operation: Collective = "all-reduce",
) -> str:
    """Return what nccl-tests would print; in place takes twice the time."""
    ranks = [(host, device) for host, count in enumerate(hosts) for device in range(count)]
    listed = "".join(
        f"#  Rank {rank:2} Group  0 Pid {rank + 7} on  host{host} device {device} [0x1b] H100\n"
        for rank, (host, device) in enumerate(ranks)
    )
    factor = float(bus_factor(operation, len(ranks)))
    body = "".join(
        f" {size} {size // 4} float sum -1 "
        f"{times(size, us, factor)} {times(size, 2 * us, factor)}\n"
        for size, us in rows
    )
    start = f"# Collective test starting: {program}\n# nThread 1 nGpus 1\n#\n# Using devices\n"
    return f"{start}{listed}#\n{HEADER}{body}# Avg bus bandwidth    : 1.0\n#\n"


ROWS = [(2**20, 28.5), (2**26, 325.0), (2**30, 4030.0)]


def test_operation_ranks_and_times_are_read() -> None:
    """Program and hosts give operation and spread; either placement's times can be asked for."""
    found = parse_nccl_tests(output(ROWS, hosts=(8, 8)), "a.txt")
    assert [(row.size_bytes, row.time_s) for row in found] == [
        (size, pytest.approx(us / 1e6)) for size, us in ROWS
    ]
    assert {row.spread for row in found} == {Spread((8, 2))}
    assert {row.operation for row in found} == {"all-reduce"}
    in_place = parse_nccl_tests(output(ROWS), "a.txt", placement="in-place")
    assert [row.time_s for row in in_place] == [pytest.approx(2 * us / 1e6) for _, us in ROWS]


def test_logs_tags_and_other_layouts_are_passed_over() -> None:
    """A launcher's tags, log lines, blank columns, one placement alone and size 0 do no harm."""
    tagged = "".join(f"[1,0]<stdout>:{line}\n" for line in output(ROWS).splitlines())
    noise = f"host:17:17 [0] NCCL INFO Bootstrap\n{tagged}host:17:17 [0] NCCL INFO Abort\n"
    assert parse_nccl_tests(noise, "a.txt") == parse_nccl_tests(output(ROWS), "a.txt")
    one = "# size count type redop root time algbw busbw #wrong\n 0 0 float 0.5 0.00 0.00 0\n"
    one += f" 4194304 1048576 float {times(4194304, 100.0, 0.5)}\n"
    found = parse_nccl_tests(one, "a.txt", "all-to-all", Spread((2,)))
    assert [(row.size_bytes, row.time_s) for row in found] == [(4194304, pytest.approx(1e-4))]


GOOD = output(ROWS)
LINE = len(GOOD.split(" 1048576")[0].splitlines()) + 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "found no name of a program"),
        ("# all_reduce_perf\n", "no list of devices"),
        (output(ROWS, hosts=(8, 4)), r"hosts of \[4, 8\] ranks"),
        (output([]), "found 0 rows"),
        (GOOD.replace(" 28.50 ", " 28.50us "), f"a.txt, line {LINE}: found time '28.50us'"),
        (GOOD.replace(" 28.50 ", " nan "), f"line {LINE}: found time 'nan'"),
        (GOOD.replace(" 28.50 ", " -1 "), f"line {LINE}: found time '-1'"),
        (GOOD.replace(" 28.50 ", " 0 "), f"line {LINE}: found time '0'"),
        (GOOD.replace(" 28.50 ", " 0.0285 "), f"line {LINE}: found algbw 36.79 GB/s"),
        (GOOD.replace(" 28.50 36.79", " 28.50"), f"line {LINE}: found time '-1'"),
        (GOOD.replace("1048576 262144 float sum -1 28.50", "1048576"), f"line {LINE}: found 8"),
        (output(ROWS, hosts=(8,), operation="all-gather"), f"line {LINE}: found busbw 32.19"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(text: str, message: str) -> None:
    """Missing, malformed and contradictory input is refused, by file and line."""
    with pytest.raises(InstanceError, match=message):
        parse_nccl_tests(text, "a.txt")


@settings(max_examples=100, deadline=None)
@given(st.integers(0, len(GOOD)), st.integers(0, 12), st.text("0123456789.#-/ \nNA", max_size=12))
def test_damaged_text_is_read_or_refused(place: int, removed: int, written: str) -> None:
    """Any piece cut out and any other put in: times above 0, or an error of this package."""
    text = GOOD[:place] + written + GOOD[place + removed :]
    with suppress(InstanceError):
        assert all(row.time_s > 0 for row in parse_nccl_tests(text, "a.txt"))


def test_what_is_said_must_agree_with_the_file(tmp_path: Path) -> None:
    """Another operation, another number of ranks and a file that is not there are refused."""
    path = tmp_path / "run.txt"
    path.write_text(GOOD)
    assert len(read_nccl_tests(path, "all-reduce", Spread((8,)))) == 3
    with pytest.raises(InstanceError, match="found a run of all-reduce, all-gather was asked"):
        read_nccl_tests(path, "all-gather")
    with pytest.raises(InstanceError, match="found 8 ranks in the list of devices, 16 were said"):
        read_nccl_tests(path, spread=Spread((8, 2)))
    with pytest.raises(InstanceError, match="cannot be read"):
        read_nccl_tests(tmp_path / "none.txt")
    one = GOOD.replace("    time   algbw   busbw #wrong\n#", "\n#")
    with pytest.raises(InstanceError, match="columns"):
        parse_nccl_tests(one, "a.txt", placement="in-place")


def sweep(fabric: Fabric, *counts: int) -> list[Measurement]:
    """Return an all-reduce's times on a fabric, from 1 MiB to 8 GiB."""
    spread = Spread(counts)
    return [
        Measurement(
            "all-reduce",
            spread,
            2**power,
            float(collective_time(fabric, "all-reduce", spread, 2**power).time_s),
        )
        for power in range(20, 34)
    ]


def test_calibration_finds_the_constants_that_made_the_times() -> None:
    """From A100's constants, times made with others lead to those, and say what is not seen."""
    start = build_fabric("a100")
    quick, wide = start.protocols
    true = replace(
        start,
        links=(
            replace(start.links[0], shares={**start.links[0].shares, "stream": Fraction(3, 5)}),
        ),
        protocols=(
            replace(quick, base_s=Fraction(20, 10**6), shares=(Fraction(1, 2),)),
            replace(wide, base_s=Fraction(150, 10**6)),
        ),
    )
    found = calibrate(start, sweep(true, 8), lambda name: "step" not in name)
    assert found.kept == ("exchange share of level 0",)
    assert dict(found.moved) == pytest.approx(
        {
            "low-latency call (s)": 20e-6,
            "low-latency share of level 0": 0.5,
            "bulk call (s)": 150e-6,
            "stream share of level 0": 0.6,
        },
        rel=0.02,
    )
    assert found.p90_error < 0.01


def test_one_network_is_calibrated_between_nodes_of_two_kinds() -> None:
    """Constants of the network alone are shared; fitted ones meet both sweeps."""
    nodes = ("a100", "h100")
    start = [build_fabric(node, "infiniband", 25 * 10**9) for node in nodes]
    true = [build_fabric(node, "efa", 25 * 10**9) for node in nodes]
    parts = [(one, sweep(other, 8, 4)) for one, other in zip(start, true, strict=True)]
    found = calibrate_together(parts, lambda name: "level 1" in name)
    assert found.median_error < 0.02
    assert max(map(abs, relative_errors(found.fabric, parts[0][1]))) < 0.1
    assert found.fabric.links[0] == start[0].links[0]
    with pytest.raises(InstanceError, match="found a fabric with 0 measurements"):
        calibrate(start[0], [])
