"""How long work tells how far it is."""

from collections.abc import Callable
from typing import TypeAlias

# Called with (steps done, steps, best value in ps or None).
Progress: TypeAlias = Callable[[int, int, int | None], None]
