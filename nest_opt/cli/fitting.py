"""Tables of plans that keep every value readable, however narrow the terminal is."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

Degrees = Sequence[str]
# Characters: wider than any table.
_UNLIMITED = 10_000


@dataclass(frozen=True)
class PlansTable:
    """A table with one plan a row; where it is too wide, degrees that all share go below it.

    Attributes
    ----------
    table
        Returns the table with these of the columns of degrees, and no row.
    names
        All columns of degrees.
    rows
        The cells before those of the degrees, of the degrees (none of a row
        that has no plan), and after them.
    """

    table: Callable[[Degrees], Table]
    names: Degrees
    rows: Sequence[tuple[Sequence[str], Sequence[str], Sequence[str]]]

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        """Yield the table, and below it what was left out of it."""
        table, shared = self._with(self.names), {}
        if _width(console, options, table) > options.max_width:
            shared = self._shared()
            table = self._with([name for name in self.names if name not in shared])
        if _width(console, options, table) > options.max_width:
            table.padding = 0
        yield table
        if shared:
            listed = ", ".join(f"{name} {value}" for name, value in shared.items())
            yield Text(f"the same in all: {listed}")
            yield Text()

    def _shared(self) -> dict[str, str]:
        """Return the degrees that are the same in all rows that have any."""
        found = zip(*(cells for _, cells, _ in self.rows if cells), strict=True)
        columns = zip(self.names, found, strict=False)
        return {name: cells[0] for name, cells in columns if len(set(cells)) == 1}

    def _with(self, names: Degrees) -> Table:
        table = self.table(names)
        for before, degrees, after in self.rows:
            kept = [cell for name, cell in zip(self.names, degrees, strict=False) if name in names]
            table.add_row(*before, *(kept or [""] * len(names)), *after)
        return table


def _width(console: Console, options: ConsoleOptions, table: Table) -> int:
    """Return the characters of a table's longest line if none of its cells is folded."""
    return Measurement.get(console, options.update(width=_UNLIMITED), table).maximum
