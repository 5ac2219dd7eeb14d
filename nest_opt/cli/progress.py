"""Progress of a search, on standard error, for someone who waits at a terminal."""

import os
import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self, TextIO

from nest_opt.cli.console import make_console
from nest_opt.cli.units import gap_text, seconds_text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

    from nest_opt.milp.result import ProgramProgress

SILENT_S = 2.0
REFRESH_S = 0.1


class _Bar:
    """A bar on standard error, once the work has taken a while.

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
        self._file: TextIO | None = None
        if console is None and sys.stderr.isatty():
            # Pyomo takes standard error away, down to the descriptor, while HiGHS runs.
            self._file = os.fdopen(os.dup(sys.stderr.fileno()), "w", encoding=sys.stderr.encoding)
            self._console = make_console(self._file)
        self._clock = clock
        self._next_s = clock() + SILENT_S
        self._bar: tuple[Progress, TaskID] | None = None

    def _draw(self, done: int, total: int, work: str, note: str) -> None:
        """Draw, unless it is too early or nobody looks."""
        if self._console is None or self._clock() < self._next_s:
            return
        self._next_s = self._clock() + REFRESH_S
        if self._bar is None:
            self._bar = self._start(self._console, done, total, work, note)
        bar, task = self._bar
        bar.update(task, completed=done, total=total, work=work, note=note)

    def _start(
        self, console: "Console", done: int, total: int, work: str, note: str
    ) -> "tuple[Progress, TaskID]":
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        # Standard output belongs to the result, so it is not redirected.
        bar = Progress(
            TextColumn("{task.fields[work]}"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}Ctrl-C ends"),
            console=console,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        task = bar.add_task("work", completed=done, total=total, work=work, note=note)
        bar.start()
        return bar, task

    def __enter__(self) -> Self:
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
        if self._file is not None:
            self._file.close()


class SearchProgress(_Bar):
    """The progress callbacks of a search."""

    _steps = (0, 1)

    def __call__(self, done: int, total: int, best_ps: int | None) -> None:
        """Draw how far the search is, and its best value so far."""
        self._steps = (done, total)
        self._draw(done, total, "searching", f"{_best(best_ps)}; ")

    def program(self, progress: "ProgramProgress") -> None:
        """Draw, while the program of a cell runs, value, bound and gap so far."""
        gap = ""
        if progress.value_ps:
            gap = f", gap {gap_text((progress.value_ps - progress.bound_ps) / progress.value_ps)}"
        # A narrow terminal cuts the end off.
        note = f"{_best(progress.value_ps)}{gap}, bound {seconds_text(progress.bound_ps)}; "
        self._draw(*self._steps, f"program, {progress.elapsed_s:.0f} s", note)


class ComparisonProgress(SearchProgress):
    """The progress callbacks of a search, and of the planners that follow it.

    Parameters
    ----------
    planners
        How many there are.
    """

    def __init__(
        self,
        planners: int,
        console: "Console | None" = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(console, clock)
        self._turns = (0, planners)

    def planner(self, name: str) -> None:
        """Draw whose turn it is."""
        done, total = self._turns
        self._draw(done, total, f"planner {name}", "")
        self._turns = (done + 1, total)


def _best(value_ps: int | None) -> str:
    return "no plan yet" if value_ps is None else f"best so far {seconds_text(value_ps)}"


class CountProgress(_Bar):
    """The progress callback of work that is counted, and named."""

    def __init__(self, work: str) -> None:
        super().__init__()
        self._work = work

    def __call__(self, done: int, total: int) -> None:
        """Draw how far the work is."""
        self._draw(done, total, self._work, "")
