"""Text from outside: limits on it, and errors that say in which line."""

from collections.abc import Iterator
from pathlib import Path

from nest_opt.errors import InstanceError
from nest_opt.problem import validation

MAX_LINE_CHARACTERS = 2**20
SHOWN_CHARACTERS = 60


def read_text(path: Path) -> str:
    """Return the text of a file.

    Raises
    ------
    InstanceError
        If it cannot be read, is too large, or is not UTF-8.
    """
    return validation.read_text(path, "describe a smaller network", "utf-8-sig")


def refusal(name: str, line: int, message: str) -> InstanceError:
    """Return an error about a line of a text."""
    return InstanceError(f"{name}: line {line}: {message}")


def cut(text: str) -> str:
    """Return text for a message, quoted and no longer than fits there."""
    return repr(text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + "...")


def lines_of(text: str, name: str, continued: bool = False) -> Iterator[tuple[int, str]]:
    """Yield (number, text) of the lines that say something, without comments (#).

    With `continued`, a line that ends in a backslash goes on in the next.

    Raises
    ------
    InstanceError
        If a line is too long, or there is none.
    """
    found = False
    held = ""
    first = 0
    for number, raw in enumerate(text.splitlines(), 1):
        line = held + raw.partition("#")[0].strip()
        first = first if held else number
        held = ""
        if len(line) > MAX_LINE_CHARACTERS:
            raise refusal(
                name,
                number,
                f"found {len(line):,} characters, at most {MAX_LINE_CHARACTERS:,} are allowed: "
                "split it",
            )
        if continued and line.endswith("\\"):
            held = line[:-1] + " "
        elif line:
            found = True
            yield first, line
    if held.strip():
        found = True
        yield first, held.strip()
    if not found:
        raise InstanceError(
            f"{name}: found no line that says anything, a description of a network is needed: "
            "check the file"
        )
