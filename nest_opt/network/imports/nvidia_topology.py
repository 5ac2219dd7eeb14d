"""The table that `nvidia-smi topo -m` prints, as the graph of one node.

Its legend: NV# is a bonded set of # NVLinks; PIX at most one PCIe bridge, PXB
several, PHB a PCIe host bridge, NODE the interconnect between host bridges of
a NUMA node, SYS that between NUMA nodes.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations

from nest_opt.errors import InstanceError
from nest_opt.network.graph import Link, LinkGraph, LinkKind
from nest_opt.network.imports.text import cut, lines_of, refusal

MAX_TABLE = 256
# No NVIDIA accelerator up to Blackwell has more NVLinks.
MOST_NVLINKS = 18
PCIE_CLASSES = ("PIX", "PXB", "PHB", "NODE", "SYS")

_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
_COLUMN = re.compile(r"(GPU|NIC)[0-9]{1,4}|(mlx|bnxt|efa|irdma)\w{0,40}")
_CELL = re.compile(r"X|NV[0-9]{1,2}|" + "|".join(PCIE_CLASSES))


@dataclass(frozen=True)
class _Table:
    names: tuple[str, ...]
    cells: Mapping[tuple[str, str], str]

    def closeness(self, one: str, other: str) -> int | None:
        """Return the place of a pair in `PCIE_CLASSES`; None for NVLink."""
        cell = self.cells[one, other]
        return PCIE_CLASSES.index(cell) if cell in PCIE_CLASSES else None


def parse_nvidia_topology(
    text: str,
    kinds: Mapping[str, LinkKind],
    nvlinks_per_device: int = MOST_NVLINKS,
    name: str = "nvidia-smi topo -m",
) -> LinkGraph:
    """Return the graph of a node; GPUs are devices, NICs are vertices like switches.

    GPUs that the table joins by more NVLinks in all than `nvlinks_per_device`
    cannot have one to each other: each has its NV# to one switch. Else every
    NV# cell is a link between the two. PCIe is a tree: what a class joins
    that no closer one does hangs on a vertex of its own. GPUs with an NVLink
    between them show no class, and may meet there only through NICs.

    Parameters
    ----------
    kinds
        What links are: under "NV" one NVLink; under each PCIe class that
        the table has, the way up to where the class joins (a capacity of
        the bandwidth alone is shared by all below). Latencies are from one
        device to another, for "NV" too.
    name
        Stands for the text in errors.

    Raises
    ------
    InstanceError
        If the table is malformed, is not symmetric or contradicts itself, or
        `kinds` lacks a class of it.
    """
    table = _read(text, name)
    gpus = [label for label in table.names if label.startswith("GPU")]
    names = [*gpus, *(label for label in table.names if label not in gpus)]
    links = _nvlinks(table, gpus, names, kinds, nvlinks_per_device)
    links += _pcie(table, names, kinds, name)
    return LinkGraph(tuple(names), len(gpus), tuple(links))


def _read(text: str, name: str) -> _Table:
    names: tuple[str, ...] = ()
    cells: dict[tuple[str, str], str] = {}
    rows: dict[str, int] = {}
    for line, content in lines_of(_ESCAPE.sub("", text), name):
        words = content.split()
        if not names:
            columns = [word for word in words if _COLUMN.fullmatch(word)]
            # The last columns are not of the matrix: CPU Affinity and others.
            if columns and columns == words[: len(columns)]:
                names = tuple(columns)
                _check_names(names, name, line)
            continue
        if words[0] in ("Legend:", "NIC"):
            break
        if words[0] not in names:
            raise refusal(
                name, line, f"found the row {cut(words[0])}, which no column has: correct the table"
            )
        _read_row(words, names, cells, rows, name, line)
    if not names:
        raise InstanceError(
            f"{name}: found no line of columns (GPU0 GPU1 ...), it is needed: paste the whole table"
        )
    missing = [label for label in names if label not in rows]
    if missing:
        raise InstanceError(
            f"{name}: found no row of {cut(missing[0])}, one for each column is needed: paste the "
            "whole table"
        )
    for one, other in combinations(names, 2):
        if cells[one, other] != cells[other, one]:
            raise refusal(
                name,
                rows[other],
                f"found {cells[other, one]} from {other} to {one}, {cells[one, other]} is needed "
                f"(line {rows[one]}): make the table symmetric",
            )
    return _Table(names, cells)


def _check_names(names: tuple[str, ...], name: str, line: int) -> None:
    if len(names) > MAX_TABLE:
        raise refusal(
            name, line, f"found {len(names)} columns, at most {MAX_TABLE} are allowed: remove some"
        )
    if len(set(names)) < len(names):
        twice = next(label for label in names if names.count(label) > 1)
        raise refusal(name, line, f"found the column {twice} 2 times, 1 is allowed: remove one")
    if not any(label.startswith("GPU") for label in names):
        raise refusal(name, line, "found no GPU, 1 at least is needed: paste the whole table")


def _read_row(
    words: list[str],
    names: tuple[str, ...],
    cells: dict[tuple[str, str], str],
    rows: dict[str, int],
    name: str,
    line: int,
) -> None:
    label, row = words[0], words[1 : len(names) + 1]
    if label in rows:
        raise refusal(name, line, f"found the row {label} again (line {rows[label]}): remove one")
    rows[label] = line
    if len(row) < len(names):
        raise refusal(
            name,
            line,
            f"found {len(row)} cells in the row {label}, {len(names)} are needed (one a column): "
            "separate cells by blanks",
        )
    for column, cell in zip(names, row, strict=True):
        if not _CELL.fullmatch(cell) or (cell == "X") != (column == label) or cell == "NV0":
            raise refusal(
                name,
                line,
                f"found {cut(cell)} in column {column} of the row {label}, "
                + (
                    "X is needed"
                    if column == label
                    else "NV#, PIX, PXB, PHB, NODE or SYS is needed"
                )
                + ": correct the cell",
            )
        cells[label, column] = cell


def _nvlinks(
    table: _Table,
    gpus: list[str],
    names: list[str],
    kinds: Mapping[str, LinkKind],
    most: int,
) -> list[Link]:
    """Return the NVLinks; a switch for them is added to the names."""
    counts = {
        (one, other): int(table.cells[one, other][2:])
        for one in gpus
        for other in gpus
        if one != other and table.cells[one, other].startswith("NV")
    }
    if not counts:
        return []
    one_link = _kind(kinds, "NV")
    number = {label: place for place, label in enumerate(names)}
    totals = {gpu: sum(count for (one, _), count in counts.items() if one == gpu) for gpu in gpus}
    if max(totals.values()) <= most:
        return [
            _times(one_link, count).link(number[one], number[other])
            for (one, other), count in counts.items()
        ]
    names.append("NVSwitch")
    links: list[Link] = []
    for gpu in gpus:
        if totals[gpu]:
            widest = max(count for (one, _), count in counts.items() if one == gpu)
            links += _times(one_link, widest, 2).both_ways(number[gpu], len(names) - 1)
    return links


def _times(kind: LinkKind, count: int, hops: int = 1) -> LinkKind:
    """Return a bonded set of links; its latency is dealt to as many hops."""
    return LinkKind(kind.bandwidth * count, kind.latency_s / hops, kind.capacity * count)


def _kind(kinds: Mapping[str, LinkKind], label: str) -> LinkKind:
    if label not in kinds:
        raise InstanceError(
            f"kinds: found no figures for {label}, which the table has: add its bandwidth and "
            "latency"
        )
    return kinds[label]


def _pcie(table: _Table, names: list[str], kinds: Mapping[str, LinkKind], name: str) -> list[Link]:
    """Return the links of the PCIe tree; its inner vertices are added to the names."""
    number = {label: place for place, label in enumerate(names)}
    # Of every part: its members, the vertex at its top, and the latency there.
    parts = [([label], number[label], Fraction(0)) for label in table.names]
    links: list[Link] = []
    for place, label in enumerate(PCIE_CLASSES):
        for joined in _joined(parts, table, place):
            kind = _kind(kinds, label)
            members = [member for part in joined for member in part[0]]
            _check_class(table, joined, place, name)
            top = len(names)
            names.append(f"{label}-{members[0]}")
            for _, vertex, before in joined:
                if kind.latency_s < before:
                    raise InstanceError(
                        f"kinds: found latency {float(kind.latency_s):g} s for {label}, at least "
                        f"{float(before):g} s is needed (that of a closer class): raise it"
                    )
                half = LinkKind(kind.bandwidth, (kind.latency_s - before) / 2, kind.capacity)
                links += half.both_ways(vertex, top)
            parts = [part for part in parts if part not in joined]
            parts.append((members, top, kind.latency_s))
    return links


_Part = tuple[list[str], int, Fraction]


def _joined(parts: list[_Part], table: _Table, place: int) -> list[list[_Part]]:
    """Return the parts that a class joins, several at a time."""
    waiting = list(parts)
    found = []
    while waiting:
        group = [waiting.pop(0)]
        for part in group:
            near = [
                other
                for other in waiting
                if any(table.closeness(a, b) == place for a in part[0] for b in other[0])
            ]
            group += near
            waiting = [other for other in waiting if other not in near]
        if len(group) > 1:
            found.append(group)
    return found


def _check_class(table: _Table, joined: list[_Part], place: int, name: str) -> None:
    """Refuse pairs that a class joins by way of others though the table says they are farther."""
    for one, other in combinations(joined, 2):
        for a in one[0]:
            for b in other[0]:
                far = table.closeness(a, b)
                if far is not None and far > place:
                    raise InstanceError(
                        f"{name}: found {table.cells[a, b]} between {a} and {b}, which others "
                        f"join by {PCIE_CLASSES[place]}: correct the table"
                    )
