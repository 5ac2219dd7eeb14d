"""The one tree of errors.

A message names the offending item, the number found, the number allowed and
what to do about it; the command line prints it and exits with code 2.
"""


class NestOptError(Exception):
    """Base of every error that this package raises on purpose."""


class InstanceError(NestOptError):
    """A problem file, or a file to import, is malformed or contradicts itself."""


class PlanError(NestOptError):
    """A plan does not belong to its problem or cannot be evaluated."""


class ScheduleError(NestOptError):
    """A pipeline schedule is malformed, or waits for itself."""


class ModelError(NestOptError):
    """A mathematical model cannot be built from a problem."""


class SolverError(NestOptError):
    """A solver failed, or returned something that the checks refuse."""


class CertificateError(NestOptError):
    """A certificate is malformed or does not prove its claim."""


class ConsistencyError(NestOptError):
    """Two parts of this package that must agree do not: a defect of the package."""
