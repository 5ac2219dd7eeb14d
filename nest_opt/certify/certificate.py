"""Certificate files: JSON, maybe compressed, that calls itself a certificate.

What it says is for the checker to judge.
"""

import gzip
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from nest_opt.certify.checker import RefusedError, read
from nest_opt.errors import CertificateError

FORMAT = "nest-opt-certificate"
VERSION = 1
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
    """Read a certificate file by the checker's own reader, compressed or not, whatever its name.

    Raises
    ------
    CertificateError
        If the file cannot be read, is damaged or too large, is not JSON,
        repeats a key, or does not call itself a certificate of this version.
    """
    try:
        data = read(str(path))
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise CertificateError(
            f"{path}: found damaged gzip data ({error}), a whole file is needed: fetch it again"
        ) from error
    except OSError as error:
        raise CertificateError(
            f"{path}: cannot be read ({error.strerror}): check the path"
        ) from error
    except (RefusedError, RecursionError, ValueError) as error:
        raise CertificateError(
            f"{path}: {error}: JSON, or gzip of it, is needed: give a certificate"
        ) from error
    return Certificate(_require_format(data, path))


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
