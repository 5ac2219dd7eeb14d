"""A search that has no time limit of its own is ended as by Ctrl-C."""

from collections.abc import Callable

from nest_opt.plan.progress import Progress

# So many steps of the dynamic program are made whatever the time: most problems have no more.
STEPS_AT_LEAST = 256


class Deadline:
    """A progress callback that ends a search when its time is up, as Ctrl-C does.

    So many steps are made whatever the time; none if they may be long.

    Attributes
    ----------
    passed
        Whether it ended a search.
    """

    def __init__(
        self,
        progress: Progress | None,
        remaining_s: Callable[[], float | None],
        are_long: bool = False,
    ) -> None:
        self._progress = progress
        self._remaining_s = remaining_s
        self._steps = 0
        self._are_long = are_long
        self.passed = False

    def __call__(self, done: int, total: int, best_ps: int | None) -> None:
        """Tell of a step, and end the search if it is late."""
        if self._progress:
            self._progress(done, total, best_ps)
        self._steps += 1
        if (self._are_long or self._steps > STEPS_AT_LEAST) and self._remaining_s() == 0:
            self.passed = True
            raise KeyboardInterrupt
