"""Certificates that commands write: refused early where there can be none, and told of."""

from pathlib import Path

from nest_opt.api import BoundResult
from nest_opt.certify.certificate import file_content
from nest_opt.certify.scope import uncertifiable
from nest_opt.cli.output_files import write_bytes
from nest_opt.errors import CertificateError
from nest_opt.problem import Problem

# What holds where there is no certificate.
_INSTEAD = "the bound of `nest-opt bound` without a certificate is a claim of the package's own"


def require_certifiable(problem: Problem, option: str) -> None:
    """Refuse a problem that has no certificates, before any work is done for one.

    Raises
    ------
    CertificateError
        If there are none.
    """
    why = uncertifiable(problem)
    if why is not None:
        raise CertificateError(f"{option}: {why}: leave {option} out; {_INSTEAD}")


def written(result: BoundResult, path: Path | None) -> bool:
    """Write a result's certificate if it has one and a file is wanted; return whether."""
    if path is None or result.certificate is None:
        return False
    write_bytes(path, file_content(result.certificate, path))
    return True
