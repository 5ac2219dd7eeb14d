"""The formulation page names things that exist."""

import importlib
import re
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parent.parent / "docs" / "formulation.md"
NAMES = sorted(set(re.findall(r"`(nest_opt\.[\w.]+)`", PAGE.read_text())))


def resolve(name: str) -> object:
    """Return what a dotted name stands for."""
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            found = getattr(found, part)
        return found
    raise AssertionError(name)


@pytest.mark.parametrize("name", NAMES)
def test_names_on_the_page_resolve(name: str) -> None:
    """Every function that the page's table names exists."""
    assert resolve(name) is not None


def test_every_equation_is_in_the_table() -> None:
    """Each numbered equation has a row that says where it lives."""
    text = PAGE.read_text()
    body, table = text.split("## Where each equation lives")
    stated = {int(number) for number in re.findall(r"^\((\d+)\) ", body, re.MULTILINE)}
    placed = {int(number) for number in re.findall(r"\((\d+)\)", table)}
    assert stated == placed
