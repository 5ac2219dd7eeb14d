"""The option `--register`: a Python file that registers constraints of the user's own.

The file runs once, as a module of its own beside its neighbours; what goes wrong
in it, now or when the constraints are used, is told with its line.
"""

import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from types import ModuleType
from typing import Any

import click

from nest_opt.errors import NestOptError


def register_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the option: the files run before it, and their errors are told."""

    @wraps(function)
    def command(*, register_paths: tuple[Path, ...], **parameters: Any) -> Any:
        if not register_paths:
            return function(**parameters)
        with told_errors(register_paths):
            for path in register_paths:
                run_registering(path)
            return function(**parameters)

    return click.option(
        "--register",
        "register_paths",
        metavar="FILE.py",
        multiple=True,
        type=click.Path(path_type=Path),
        help="Run a Python file first that registers constraints of your own. Repeatable.",
    )(command)


def run_registering(path: Path) -> list[str]:
    """Run a file and return the names that it registered.

    Raises
    ------
    NestOptError
        If it cannot be read, is no Python, or registers nothing.
    """
    from nest_opt.registry import registered

    before = registered()
    _run(path)
    names = [name for name, checker in registered().items() if before.get(name) is not checker]
    if not names:
        raise NestOptError(
            f"{path}: found no call of nest_opt.register, 1 at least is needed: register your "
            "constraints at the top level of the file"
        )
    return names


def _run(path: Path) -> None:
    try:
        source = path.read_bytes()
    except OSError as error:
        raise NestOptError(
            f"{path}: cannot be read ({error.strerror}), a Python file is needed: correct the path"
        ) from error
    try:
        code = compile(source, str(path), "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None) or 1
        message = getattr(error, "msg", None) or error
        raise NestOptError(
            f"{path}, line {line}: found no Python ({message}), a Python file is needed: correct it"
        ) from error
    # Not `__main__`: what a file does when it is run by itself is not asked for.
    module = ModuleType(f"registered_by_{path.stem}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        # Last, so that no neighbour of the file hides a library.
        sys.path.append(folder)
    try:
        exec(code, module.__dict__)
    except NestOptError as error:
        raise NestOptError(f"{path}, line {_last_line(error, [path])[1]}: {error}") from error


@contextmanager
def told_errors(paths: Sequence[Path]) -> Iterator[None]:
    """Turn what some files raise into errors with file and line.

    Raises
    ------
    NestOptError
        If something else than an error of this package was raised in them.
    """
    try:
        yield
    except (NestOptError, click.ClickException, click.exceptions.Exit):
        raise
    except (Exception, SystemExit) as error:
        path, line = _last_line(error, paths)
        if path is None:
            raise
        said = f": {error}" if str(error) else ""
        raise NestOptError(
            f"{path}, line {line}: raised {type(error).__name__}{said}: correct the file"
        ) from error


def _last_line(error: BaseException, paths: Sequence[Path]) -> tuple[str | None, int | None]:
    """Return file and line of the last call, on the way to an error, in some files."""
    files = {str(path) for path in paths}
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.filename in files:
            return frame.filename, frame.lineno
    return None, None
