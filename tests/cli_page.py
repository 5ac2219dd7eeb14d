"""The samples of docs/cli.md: what each command prints.

`python tests/cli_page.py` prints them anew into the page, which is needed
whenever a change of costs changes the plans that it shows.
"""

import contextlib
import json
import os
import re
import tempfile
from pathlib import Path

from cli_running import run

from nest_opt.registry import registered, unregister

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "cli.md"

# A sample of output: the commands of one block, each followed by what it prints.
_SAMPLE = re.compile(r"(?<=```console\n)(.*?)(?=```)", re.DOTALL)
_COMMAND = re.compile(r"^\$ nest-opt (.*)\n", re.MULTILINE)
# A file that the samples read.
_FILE = re.compile(r"<!-- file: (\S+) -->\n```(?:json|python|text)\n(.*?)```", re.DOTALL)


def samples() -> list[tuple[str, str]]:
    """Return every (command, output) of the page, in order."""
    found = []
    for block in _SAMPLE.findall(PAGE.read_text(encoding="utf-8")):
        _, *parts = _COMMAND.split(block)
        found += zip(parts[::2], [output.rstrip("\n") for output in parts[1::2]], strict=True)
    return found


def lay_out(folder: Path) -> None:
    """Put what the samples read into a folder."""
    (folder / "instances").symlink_to(ROOT / "instances")
    for name, text in _FILE.findall(PAGE.read_text(encoding="utf-8")):
        (folder / name).write_text(text, encoding="utf-8")


def printed(command: str) -> str:
    """Return what a command prints in 80 columns, whole plans and problems left out."""
    before = registered()
    result = run(*command.split())
    for name in registered().keys() - before.keys():
        unregister(name)
    text = result.stdout + result.stderr
    if not text.startswith("{"):
        return text
    data = json.loads(text)
    for name in ("plan", "problem"):
        if isinstance(data.get(name), dict):
            data[name] = "..."
    return json.dumps(data, indent=1)


def rewrite() -> None:
    """Print every sample of the page anew."""

    def renew(match: re.Match[str]) -> str:
        commands = _COMMAND.findall(match.group(1))
        outputs = [printed(command).rstrip("\n") for command in commands]
        return "\n".join(
            f"$ nest-opt {command}\n{output}\n"
            for command, output in zip(commands, outputs, strict=True)
        )

    with tempfile.TemporaryDirectory() as name:
        lay_out(Path(name))
        with contextlib.chdir(name):
            text = _SAMPLE.sub(renew, PAGE.read_text(encoding="utf-8"))
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    os.environ.pop("COLUMNS", None)
    rewrite()
