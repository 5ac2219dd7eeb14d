"""Finding an entry of a catalogue by name: any case, aliases, and the nearest name if none."""

import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import Protocol, TypeVar

from nest_opt.errors import InstanceError


class Named(Protocol):
    """What a catalogue's entry has at least."""

    @property
    def name(self) -> str:
        """The name that the catalogue lists."""
        ...

    @property
    def aliases(self) -> tuple[str, ...]:
        """Other names for the same entry."""
        ...


Entry = TypeVar("Entry", bound=Named)


def spelling(name: str) -> str:
    """Return what of a name counts: letters, digits, and points between digits.

    opt-1.3b is not opt-13b.
    """
    return re.sub(r"(?<!\d)\.|\.(?!\d)|[^a-z0-9.]", "", name.casefold())


def find(what: str, name: str, entries: Iterable[Entry], besides: str = "") -> Entry:
    """Return the entry with that name or alias; case and punctuation do not count.

    Parameters
    ----------
    what
        The kind of entry, for the error.
    besides
        What else would do in place of a name, for the error.

    Raises
    ------
    InstanceError
        If there is none; the message proposes the nearest names.
    """
    listed = tuple(entries)
    by_spelling = {key: entry for entry in listed for key in _keys(entry)}
    key = spelling(name)
    if key in by_spelling:
        return by_spelling[key]
    matches = [known for known in by_spelling if key and known.startswith(key)]
    matches += get_close_matches(key, by_spelling, n=3, cutoff=0.5)
    near = list(dict.fromkeys(by_spelling[match].name for match in matches))[:3]
    remedy = f"did you mean {' or '.join(near)}?" if near else "correct the name"
    names = ", ".join(entry.name for entry in listed)
    raise InstanceError(f"{what}: found {name[:60]!r}, {besides}one of {names} is needed: {remedy}")


def _keys(entry: Named) -> Iterator[str]:
    yield from (spelling(name) for name in (entry.name, *entry.aliases))
