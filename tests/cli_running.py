"""Running the command line in tests."""

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from nest_opt.cli import command_line


def run(*arguments: object, width: int = 80) -> Result:
    """Run the command line in this process."""
    return CliRunner().invoke(
        command_line, [str(argument) for argument in arguments], env={"COLUMNS": str(width)}
    )


def run_json(*arguments: object) -> Any:
    """Run the command line with --json and return its object."""
    return json.loads(run(*arguments, "--json").stdout)


def write(path: Path, data: Any) -> Path:
    """Write JSON data to a file and return its path."""
    path.write_text(json.dumps(data))
    return path
