"""Files that commands write: whole or not at all."""

import os
import tempfile
from contextlib import suppress
from pathlib import Path

from nest_opt.errors import NestOptError


def check_output(path: Path, source: Path | None) -> None:
    """Refuse an output path before any work is done for it.

    Raises
    ------
    NestOptError
        If the path is the input file, or cannot be a file.
    """
    folder = path.parent
    if path.is_dir():
        raise NestOptError(f"{path}: found a directory, a file is needed: add a file name")
    if not folder.is_dir():
        raise NestOptError(f"{path}: cannot be written (no directory {folder}): create it first")
    if path.exists() and source and source.exists() and path.samefile(source):
        raise NestOptError(
            f"{path}: is the input file itself, another file is needed: choose another output path"
        )
    needed = [path] if path.exists() else []
    if not _is_special(path):
        needed.append(path.resolve().parent)
    if not all(os.access(place, os.W_OK) for place in needed):
        raise _refused(path, "Permission denied")


def write_text(path: Path, text: str) -> None:
    """Write text, as `write_bytes` does."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file under a temporary name and rename it, so that none is left half written.

    Raises
    ------
    NestOptError
        If it cannot be written.
    """
    try:
        if _is_special(path):
            path.write_bytes(content)
        else:
            _write_and_rename(path.resolve(), content)
    except OSError as error:
        raise _refused(path, error.strerror or str(error)) from error


def _is_special(path: Path) -> bool:
    """Whether a path is a device or pipe, which a rename would replace."""
    return path.exists() and not path.is_file()


def _write_and_rename(path: Path, content: bytes) -> None:
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:40]}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, _mode(path))
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


def _mode(path: Path) -> int:
    """Return the permissions that the file has, or that a new file gets."""
    if path.exists():
        return path.stat().st_mode & 0o777
    # The mask can only be read by setting it.
    mask = os.umask(0o077)
    os.umask(mask)
    return 0o666 & ~mask


def _refused(path: Path, reason: str) -> NestOptError:
    return NestOptError(f"{path}: cannot be written ({reason}): choose another output path")
