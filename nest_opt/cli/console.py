"""Text on its way to the terminal."""

from typing import TYPE_CHECKING, TextIO

import click

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


def make_console(file: "TextIO | None" = None, stderr: bool = False) -> "Console":
    """Return a console that takes text literally: no markup, no emoji, no guessed colours."""
    from rich.console import Console

    return Console(file=file, stderr=stderr, markup=False, emoji=False, highlight=False)


def print_report(*parts: "RenderableType", stderr: bool = False) -> None:
    """Print a report on standard output, or on standard error."""
    console = make_console(stderr=stderr)
    # Rich would end the process by itself on a closed pipe, with an exit code
    # that means something else here.
    with console.capture() as capture:
        for part in parts:
            console.print(part)
    text = "".join(f"{line.rstrip()}\n" for line in capture.get().splitlines())
    click.echo(text, nl=False, err=stderr)


def printable(text: str) -> str:
    """Return text with everything escaped that could move a cursor or change colours."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )
