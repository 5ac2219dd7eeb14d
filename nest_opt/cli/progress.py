"""Progress of a search, on standard error, for someone who waits at a terminal."""

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING

from nest_opt.cli.console import make_console
from nest_opt.cli.units import seconds_text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

SILENT_S = 2.0
REFRESH_S = 0.1


class SearchProgress:
    """The progress callback of a search: a bar, once the search has taken a while.

    Parameters
    ----------
    console
        Where to draw; by default standard error if that is a terminal, else
        nothing is drawn.
    clock
        Seconds from any start.
    """

    def __init__(
        self, console: "Console | None" = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._console = console
        if console is None and sys.stderr.isatty():
            self._console = make_console(stderr=True)
        self._clock = clock
        self._next_s = clock() + SILENT_S
        self._bar: tuple[Progress, TaskID] | None = None

    def __call__(self, done: int, total: int, best_ps: int | None) -> None:
        """Draw, unless it is too early or nobody looks."""
        if self._console is None or self._clock() < self._next_s:
            return
        self._next_s = self._clock() + REFRESH_S
        best = "no plan yet" if best_ps is None else f"best so far {seconds_text(best_ps)}"
        if self._bar is None:
            self._bar = self._start(self._console, done, total, best)
        bar, task = self._bar
        bar.update(task, completed=done, total=total, best=best)

    def _start(
        self, console: "Console", done: int, total: int, best: str
    ) -> "tuple[Progress, TaskID]":
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        # Standard output belongs to the result, so it is not redirected.
        bar = Progress(
            TextColumn("searching"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TextColumn("{task.fields[best]}; Ctrl-C ends"),
            console=console,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        task = bar.add_task("search", completed=done, total=total, best=best)
        bar.start()
        return bar, task

    def __enter__(self) -> "SearchProgress":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Clear the bar."""
        if self._bar is not None:
            self._bar[0].stop()
