"""A picture of the devices in text: who does what, a row per innermost network group.

Rows that are equal up to the number of the replica are drawn once, with the
replica called r and the numbers that r takes beside them, so that thousands of
devices stay readable.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise
from operator import mul
from typing import Literal

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from nest_opt.cli.console import printable
from nest_opt.cli.stage_table import facts
from nest_opt.cli.units import count_text
from nest_opt.network import planned_levels
from nest_opt.plan.placement import Blocks
from nest_opt.plan.plan import Plan

MOST_ROWS = 64
LEAST_CELLS = 4
# Blanks between the four columns of the picture.
_GAPS = 6
_JUSTIFY: tuple[Literal["left", "right"], ...] = ("left", "right", "left", "left")
_COLOURS = ("cyan", "green", "yellow", "magenta", "blue", "red")


@dataclass(frozen=True)
class Block:
    """The stage and replica that a device works for, or several that claim it."""

    stage: int
    replica: int
    disputed: bool = False


# None is an idle device.
Cells = tuple[Block | None, ...]


@dataclass(frozen=True)
class FoldedRow:
    """Rows of devices that are equal up to the replica's number.

    Attributes
    ----------
    cells
        The devices' blocks, replicas counted from the least one of the row.
    rows
        Numbers of the rows.
    replicas
        The least replica of each of these rows; empty if all are idle.
    """

    cells: Cells
    rows: tuple[int, ...]
    replicas: tuple[int, ...]


def device_blocks(device_map: Blocks, device_count: int) -> list[Block | None]:
    """Return what each device of a cluster works for; blocks outside it are left out."""
    owners: list[Block | None] = [None] * device_count
    for replica in range(device_map.replicas):
        for stage in range(device_map.stages):
            for device in device_map.block(replica, stage):
                if device < device_count:
                    owners[device] = Block(stage, replica, disputed=owners[device] is not None)
    return owners


def fold_rows(owners: list[Block | None], length: int) -> list[FoldedRow]:
    """Cut devices into rows and gather those that are equal up to the replica's number."""
    gathered: dict[Cells, list[tuple[int, int | None]]] = {}
    for row, start in enumerate(range(0, len(owners), length)):
        cells = owners[start : start + length]
        least = min((cell.replica for cell in cells if cell), default=None)
        relative = tuple(
            cell and Block(cell.stage, cell.replica - (least or 0), cell.disputed) for cell in cells
        )
        gathered.setdefault(relative, []).append((row, least))
    return [
        FoldedRow(
            cells,
            tuple(row for row, _ in found),
            tuple(least for _, least in found if least is not None),
        )
        for cells, found in gathered.items()
    ]


def series_text(numbers: tuple[int, ...]) -> str:
    """Return ascending numbers in short: `0-15`, `0, 2 .. 30`, `0, 1, 5 ..`."""
    if len(numbers) < 3:
        return ", ".join(map(str, numbers))
    steps = {second - first for first, second in pairwise(numbers)}
    if steps == {1}:
        return f"{numbers[0]}-{numbers[-1]}"
    if len(steps) == 1:
        return f"{numbers[0]}, {numbers[1]} .. {numbers[-1]}"
    if len(numbers) == 3:
        return ", ".join(map(str, numbers))
    return f"{numbers[0]}, {numbers[1]}, {numbers[2]} .."


def device_picture(plan: Plan, width: int) -> Iterator[RenderableType]:
    """Yield the picture of a plan's devices, for a terminal of so many columns."""
    device_map, cluster = plan.placement().device_map, plan.problem.cluster
    if device_map.devices_used > cluster.device_count:
        yield Text("no picture: the plan needs more devices than there are")
        return
    owners = device_blocks(device_map, cluster.device_count)
    name, group = _innermost_group(plan)
    drawn = _fitting(owners, group, width)
    yield _legend(plan, name, group, drawn)
    yield Text()
    yield _table(name if drawn.length == group else "from device", drawn)
    if len(drawn.rows) > MOST_ROWS:
        left = sum(len(row.rows) for row in drawn.rows[MOST_ROWS:])
        yield Text(f"... and {count_text(left, 'row')} unlike these: --json lists every block")


@dataclass(frozen=True)
class _Drawn:
    """Rows as text: where they start, how many they are, their cells, their replicas."""

    length: int
    rows: list[FoldedRow]
    lines: list[tuple[str, str, tuple[str, ...], str]]

    @property
    def cell_width(self) -> int:
        return max(len(cell) for _, _, cells, _ in self.lines for cell in cells)

    @property
    def width(self) -> int:
        """Columns of the table, its headings' included."""
        outside = (
            max([limit, *(len(line[place]) for line in self.lines)])
            for place, limit in ((0, len("from device")), (1, len("rows")), (3, len("replica r")))
        )
        longest = max(len(cells) for _, _, cells, _ in self.lines)
        return sum(outside) + longest * (self.cell_width + 1) + _GAPS


def _innermost_group(plan: Plan) -> tuple[str, int]:
    """Return name and devices of the innermost level whose groups hold more than one."""
    levels = planned_levels(plan.problem.cluster).levels
    sizes = list(accumulate((level.size for level in levels), mul))
    return next(
        (
            (printable(level.name), size)
            for level, size in zip(levels, sizes, strict=True)
            if size > 1
        ),
        (printable(levels[-1].name), 1),
    )


def _fitting(owners: list[Block | None], group: int, width: int) -> _Drawn:
    """Return rows of a whole group if they fit, else of the longest even part that does."""
    length = min(group, width)
    while True:
        if group % length == 0 or length <= LEAST_CELLS:
            drawn = _drawn(owners, length, whole=length == group)
            if drawn.width <= width or length <= LEAST_CELLS:
                return drawn
        length -= 1


def _drawn(owners: list[Block | None], length: int, whole: bool) -> _Drawn:
    rows = fold_rows(owners, length)
    lines = []
    for row in rows[:MOST_ROWS]:
        folded = len(row.rows) > 1 and bool(row.replicas)
        least = row.replicas[0] if row.replicas else 0
        lines.append(
            (
                series_text(row.rows if whole else tuple(place * length for place in row.rows)),
                f"{len(row.rows):,}",
                tuple(_label(cell, folded, least) for cell in row.cells),
                series_text(row.replicas) if folded else "",
            )
        )
    return _Drawn(length, rows, lines)


def _label(cell: Block | None, folded: bool, least: int) -> str:
    if cell is None:
        return "."
    if cell.disputed:
        return "!!"
    if not folded:
        return f"{cell.stage}/{least + cell.replica}"
    return f"{cell.stage}/r+{cell.replica}" if cell.replica else f"{cell.stage}/r"


def _table(name: str, drawn: _Drawn) -> Table:
    table = Table.grid(padding=(0, 2))
    for justify in _JUSTIFY:
        table.add_column(justify=justify, no_wrap=True)
    table.add_row(*(Text(title, style="bold") for title in (name, "rows", "devices", "replica r")))
    for row, (first, count, cells, replicas) in zip(drawn.rows, drawn.lines, strict=False):
        text = Text()
        for block, cell in zip(row.cells, cells, strict=True):
            style = _COLOURS[block.stage % len(_COLOURS)] if block else "dim"
            text.append(cell.ljust(drawn.cell_width + 1), style=style)
        text.rstrip()
        table.add_row(first, count, text, replicas)
    return table


def _legend(plan: Plan, name: str, group: int, drawn: _Drawn) -> RenderableType:
    row = f"one {name!r} group of {count_text(group, 'device')}"
    if drawn.length < group:
        row = f"{drawn.length:,} of the {group:,} devices of a {name!r} group"
    disputed = any(cell and cell.disputed for row in drawn.rows for cell in row.cells)
    signs = "s/r: stage s of replica r   .: idle device"
    rows = {
        "devices": f"a row is {row}; rows equal but for the replica are drawn once",
        "": f"{signs}   !!: claimed by several blocks" if disputed else signs,
    }
    degrees = {"tp": plan.tp, "cp": plan.cp, "ep": plan.ep}
    nested = [f"{name} {degree}" for name, degree in degrees.items() if degree > 1]
    if len(nested) > 1:
        rows["blocks"] = f"ranks in a block: {', then '.join(nested)}, the first fastest"
    schedule = plan.placement().schedule
    if schedule.is_interleaved:
        rows["chunks"] = (
            f"{schedule.chunks} on each stage, in turn: the last stage passes on to the first"
        )
    return facts(rows)
