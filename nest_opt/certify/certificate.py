"""Certificate files: text, and what is read of a file whose maker is not trusted.

What a certificate says is for the checker to judge; here it is JSON, maybe
compressed, that calls itself a certificate.
"""

import gzip
import io
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from pathlib import Path
from typing import Any

from nest_opt.errors import CertificateError

FORMAT = "nest-opt-certificate"
VERSION = 1
# Beyond this a file is not read: a few bytes can be compressed from terabytes.
MOST_BYTES = 2**30
_GZIP_START = b"\x1f\x8b"
_SHOWN_CHARACTERS = 60
# What else there is, and the command that is for it.
_OTHERS = {
    "nest-opt-problem": ("problem", "`nest-opt bound` makes a certificate for it"),
    "nest-opt-plan": ("plan", "`nest-opt verify` checks it"),
}


@dataclass(frozen=True)
class Certificate:
    """A claim about all plans of a family, with evidence for it.

    Attributes
    ----------
    data
        The file's object: `format`, `version`, `claim`, problem and cost table
        with their digests, and `evidence`.
    """

    data: Mapping[str, Any]

    def text(self) -> str:
        """Return the file's text: canonical JSON and a line end."""
        return self._text

    @cached_property
    def _text(self) -> str:
        return json.dumps(self.data, sort_keys=True, separators=(",", ":")) + "\n"

    @property
    def bytes_count(self) -> int:
        """The bytes of the text, before compression."""
        return len(self._text.encode())


def file_content(certificate: Certificate, path: Path) -> bytes:
    """Return what a file of this name holds: compressed if it ends in `.gz`, always the same."""
    content = certificate.text().encode()
    return gzip.compress(content, mtime=0) if path.suffix == ".gz" else content


def read_certificate(path: Path) -> Certificate:
    """Read a certificate file, compressed or not, whatever its name.

    Raises
    ------
    CertificateError
        If the file cannot be read, is damaged or too large, is not JSON,
        repeats a key, or does not call itself a certificate of this version.
    """
    return Certificate(_require_format(_parsed(_content(path), path), path))


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
        if content.startswith(_GZIP_START):
            content = gzip.GzipFile(fileobj=io.BytesIO(content)).read(MOST_BYTES + 1)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise CertificateError(
            f"{path}: found damaged gzip data ({error}), a whole file is needed: fetch it again"
        ) from error
    except OSError as error:
        raise CertificateError(
            f"{path}: cannot be read ({error.strerror}): check the path"
        ) from error
    if len(content) > MOST_BYTES:
        raise CertificateError(
            f"{path}: found more than {MOST_BYTES:,} bytes, at most {MOST_BYTES:,} are read: "
            "certify a smaller search space"
        )
    return content


def _parsed(content: bytes, path: Path) -> Any:
    try:
        return json.loads(
            content.decode("utf-8"),
            parse_constant=_finite,
            parse_float=_finite,
            object_pairs_hook=_unique,
        )
    except RecursionError as error:
        raise CertificateError(
            f"{path}: nested too deeply for a certificate: give a certificate"
        ) from error
    except UnicodeDecodeError as error:
        raise CertificateError(
            f"{path}: byte {error.start} is not UTF-8 text, JSON (or gzip of it) is needed: give a "
            "certificate"
        ) from error
    except ValueError as error:
        raise CertificateError(f"{path}: not JSON ({error}): give a certificate") from error


def _finite(digits: str) -> float:
    """Return a number; NaN, the infinities and what is read as one of them are refused."""
    number = float(digits)
    if not isfinite(number):
        raise ValueError(f"found {digits[:_SHOWN_CHARACTERS]}, a finite number is needed")
    return number


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object's pairs; what another reader may take for another value is refused."""
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"found key {twice[:_SHOWN_CHARACTERS]!r} twice in one object")
    return found


def _require_format(data: Any, path: Path) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise CertificateError(
            f"{path}: found JSON that is no object, a certificate is needed: correct the path"
        )
    form, version = data.get("format"), data.get("version")
    if form != FORMAT:
        noun, remedy = _OTHERS.get(str(form), ("file", "correct the path"))
        raise CertificateError(
            f"{path}: found a {noun} of format {_shown(form)}, a certificate ({FORMAT}) is needed: "
            f"{remedy}"
        )
    if type(version) is not int or version != VERSION:
        raise CertificateError(
            f"{path}: found version {_shown(version)}, {VERSION} is needed: use the nest-opt that "
            "wrote it"
        )
    return data


def _shown(value: Any) -> str:
    return "nothing" if value is None else repr(value)[:_SHOWN_CHARACTERS]
