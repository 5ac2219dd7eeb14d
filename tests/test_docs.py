"""The documentation runs, and its links lead somewhere."""

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted((ROOT / "docs").rglob("*.md"))
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(page: Path) -> list[tuple[str, str]]:
    """Return (language, text) of every fenced block of a page, in order."""
    return BLOCK.findall(page.read_text(encoding="utf-8"))


@pytest.mark.parametrize(("name", "least"), [("api.md", 6), ("networks.md", 3)])
def test_a_page_of_python_runs_and_prints_what_it_shows(name: str, least: int) -> None:
    """Its python blocks are one program; a text block is what the one before it prints."""
    names: dict[str, Any] = {"__name__": "page"}
    printed = ""
    languages = []
    for language, text in blocks(ROOT / "docs" / name):
        languages.append(language)
        if language == "python":
            output = io.StringIO()
            with contextlib.redirect_stdout(output):
                exec(compile(text, f"docs/{name}", "exec"), names)
            printed = output.getvalue()
        elif language == "text":
            assert printed == text
    assert languages.count("python") == languages.count("text") >= least


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub forms them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_resolve(page: Path) -> None:
    """Every relative link names a file that exists, and a heading in it if it has an anchor."""
    text = BLOCK.sub("", page.read_text(encoding="utf-8"))
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        linked = (page.parent / name).resolve() if name else page
        assert linked.exists(), target
        assert not anchor or anchor in anchors(linked), target
