"""Reading what nccl-tests prints, to calibrate a fabric by one's own measurements.

The format is that of nccl-tests' `src/common.cu`: comments, a header, a row a size with the
columns out of place and then in place. Other lines (of NCCL's log, of a launcher) are passed over.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Literal

from nest_opt.errors import InstanceError
from nest_opt.network.collectives.calibration import Measurement
from nest_opt.network.collectives.shape import Collective, Spread

Placement = Literal["out-of-place", "in-place"]

PROGRAMS: dict[str, Collective] = {
    "all_reduce_perf": "all-reduce",
    "all_gather_perf": "all-gather",
    "reduce_scatter_perf": "reduce-scatter",
    "alltoall_perf": "all-to-all",
    "broadcast_perf": "broadcast",
    "sendrecv_perf": "send-receive",
}
MAX_FILE_BYTES = 64 * 2**20
_LAUNCHER_TAG = re.compile(r"^\s*\[[\d,]{1,20}\](<std\w{3}>:?)?")
_DEVICE = re.compile(r"^#\s+Rank\s+(\d{1,9})\s.*?\bon\s+(\S+)\s+device\b")
_PROGRAM = re.compile(r"\b(" + "|".join(PROGRAMS) + r")(?:_mpi)?\b")
_SIZE = re.compile(r"\d{1,18}$")
# Columns of one placement: time, algbw, busbw and what was wrong.
_COLUMNS = 4
# Bandwidths are printed at two digits behind the point, times at three or more in all.
_ROUNDING = 0.006
_TOLERANCE = 0.02


@dataclass(frozen=True)
class Table:
    """What a run says of itself beside its rows: operation and ranks of each host, if printed."""

    operation: Collective | None
    hosts: tuple[int, ...]


def read_nccl_tests(
    path: Path,
    operation: Collective | None = None,
    spread: Spread | None = None,
    placement: Placement = "out-of-place",
) -> list[Measurement]:
    """Return the measured times in a file that nccl-tests printed.

    Parameters
    ----------
    operation
        What was run; needed where the file does not name the program, as older versions do not.
    spread
        How the ranks lie; needed where the file does not list the devices, or
        hosts have different numbers of them.

    Raises
    ------
    InstanceError
        If the file has no row, contradicts itself or what is said of it, or a
        row is not what its header promises; the message has the line's number.
    """
    try:
        size = path.stat().st_size
        if size > MAX_FILE_BYTES:
            raise InstanceError(
                f"{path}: found {size} bytes, at most {MAX_FILE_BYTES} are allowed: keep the tables"
            )
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise InstanceError(
            f"{path}: cannot be read ({error.strerror}): correct the path"
        ) from None
    return parse_nccl_tests(text, str(path), operation, spread, placement)


def parse_nccl_tests(
    text: str,
    name: str,
    operation: Collective | None = None,
    spread: Spread | None = None,
    placement: Placement = "out-of-place",
) -> list[Measurement]:
    """Return the measured times in a text; see `read_nccl_tests`."""
    lines = [_LAUNCHER_TAG.sub("", line) for line in text.splitlines()]
    table = _about(lines)
    if operation and table.operation and operation != table.operation:
        raise InstanceError(
            f"{name}: found a run of {table.operation}, {operation} was asked for: correct one"
        )
    run = operation or table.operation
    if run is None:
        raise InstanceError(
            f"{name}: found no name of a program, one of {', '.join(PROGRAMS)} is needed in the "
            "file: say the operation"
        )
    held = spread or _spread(table, name)
    if spread and table.hosts and spread.ranks != sum(table.hosts):
        raise InstanceError(
            f"{name}: found {sum(table.hosts)} ranks in the list of devices, {spread.ranks} were "
            "said: correct the spread"
        )
    found = list(_rows(lines, name, run, held, placement))
    if not found:
        raise InstanceError(
            f"{name}: found 0 rows, at least 1 is needed (a number of bytes first, below a header "
            "with size, time, algbw and busbw): give the output of nccl-tests"
        )
    return found


def _about(lines: Sequence[str]) -> Table:
    """Return what comments say: program and devices. Hosts are in the order of their first rank."""
    operation: Collective | None = None
    hosts: Counter[str] = Counter()
    for line in lines:
        if line.lstrip().startswith("#"):
            program = _PROGRAM.search(line)
            if program and operation is None:
                operation = PROGRAMS[program.group(1)]
            device = _DEVICE.match(line.lstrip())
            if device:
                hosts[device.group(2)] += 1
    return Table(operation, tuple(hosts.values()))


def _spread(table: Table, name: str) -> Spread:
    sizes = sorted(set(table.hosts))
    if len(sizes) != 1:
        raise InstanceError(
            f"{name}: found {'no list of devices' if not sizes else f'hosts of {sizes} ranks'}, "
            "hosts with one number of ranks are needed: say the spread"
        )
    return Spread((sizes[0],) if len(table.hosts) == 1 else (sizes[0], len(table.hosts)))


def _rows(
    lines: Sequence[str], name: str, operation: Collective, spread: Spread, placement: Placement
) -> Iterator[Measurement]:
    """Yield the rows below the headers; sizes of 0, which have no time, are left out."""
    columns = 0
    for number, line in enumerate(lines, 1):
        words = line.split()
        if line.lstrip().startswith("#"):
            columns = _header_columns(words) or columns
        elif words and columns and _SIZE.match(words[0]):
            where = f"{name}, line {number}"
            row = _row(words, columns, placement, where)
            if row is not None:
                size, time_s, algorithm, bus = row
                _check(where, operation, spread, (size, time_s, algorithm, bus))
                yield Measurement(operation, spread, size, time_s)


def _header_columns(words: Sequence[str]) -> int:
    """Return how many columns of times a header has: 4, or 8 with those in place; else 0."""
    if not {"size", "count", "type", "time", "algbw", "busbw"} <= set(words):
        return 0
    return len(words) - words.index("time")


def _row(
    words: Sequence[str], columns: int, placement: Placement, where: str
) -> tuple[int, float, float, float] | None:
    """Return bytes, seconds, algorithm and bus bandwidth in bytes/s of a row."""
    # Size, count and type come before the times; redop and root may be blank.
    if not columns + 3 <= len(words) <= columns + 5:
        raise InstanceError(
            f"{where}: found {len(words)} columns, {columns + 3} to {columns + 5} are needed (the "
            "header above says so): restore the row"
        )
    first = 0 if placement == "out-of-place" else _COLUMNS
    if first + 3 > columns:
        raise InstanceError(
            f"{where}: found no columns in place, they are needed: ask for out-of-place"
        )
    size, times = int(words[0]), words[-columns:][first : first + 3]
    if size == 0 or times[0] == "N/A":
        return None
    numbers = []
    for word, title in zip(times, ("time", "algbw", "busbw"), strict=True):
        try:
            value = float(word)
        except ValueError:
            value = math.nan
        if not math.isfinite(value) or value < 0 or (title == "time" and not value):
            raise InstanceError(
                f"{where}: found {title} {word[:30]!r}, a number above 0 is needed: restore the row"
            )
        numbers.append(value)
    return size, numbers[0] / 1e6, numbers[1] * 1e9, numbers[2] * 1e9


def _check(
    where: str, operation: Collective, spread: Spread, row: tuple[int, float, float, float]
) -> None:
    """Refuse a row whose bandwidths do not follow from bytes, time, operation and ranks."""
    size, time_s, algorithm, bus = row
    slack = _ROUNDING * 1e9
    if abs(size / time_s - algorithm) > slack + _TOLERANCE * algorithm:
        raise InstanceError(
            f"{where}: found algbw {algorithm / 1e9:g} GB/s, {size} bytes in {time_s * 1e6:g} us "
            f"are {size / time_s / 1e9:.2f} GB/s: times are in us and bandwidths in 1e9 bytes/s"
        )
    factor = float(bus_factor(operation, spread.ranks))
    if abs(algorithm * factor - bus) > 2 * slack + _TOLERANCE * bus / spread.ranks:
        raise InstanceError(
            f"{where}: found busbw {bus / 1e9:g} GB/s, algbw {algorithm / 1e9:g} GB/s of "
            f"{operation} over {spread.ranks} ranks gives {algorithm * factor / 1e9:.2f} GB/s: "
            "correct operation or ranks"
        )


def bus_factor(operation: Collective, ranks: int) -> Fraction:
    """Return bus over algorithm bandwidth (nccl-tests, doc/PERFORMANCE.md)."""
    if operation in ("broadcast", "send-receive"):
        return Fraction(1)
    return Fraction((2 if operation == "all-reduce" else 1) * (ranks - 1), ranks)
