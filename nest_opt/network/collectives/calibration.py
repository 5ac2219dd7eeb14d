"""Fit the few constants of a fabric to one's own measurements.

Least squares of the logarithms of predicted over measured times, so that a
row counts by its relative error whatever its size. Links' peaks stay as given.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import exp, inf, log
from statistics import median

import numpy as np
from numpy.typing import NDArray

from nest_opt.errors import InstanceError
from nest_opt.network.collectives.fabric import AlgorithmName, Fabric, Line, line, shapes
from nest_opt.network.collectives.shape import Collective, Family, Spread

_ITERATIONS = 60
_STEP = 1e-4
_MOST_DAMPING = 1e8
_LEAST_GAIN = 1e-7
_APART = (3.0, 10.0)

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Measurement:
    """A measured time of a collective.

    Attributes
    ----------
    size_bytes
        The full buffer; of an all-to-all what one rank holds.
    algorithms
        Those that the run was held to; None: whatever the library chose.
    """

    operation: Collective
    spread: Spread
    size_bytes: int
    time_s: float
    algorithms: tuple[AlgorithmName, ...] | None = None

    def __post_init__(self) -> None:
        if self.size_bytes < 0 or not 0 < self.time_s < inf:
            raise InstanceError(
                f"measurement of {self.operation}: found {self.size_bytes} bytes in {self.time_s} "
                "s, at least 0 bytes and a time above 0 are needed: correct or leave out the row"
            )


@dataclass(frozen=True)
class Constant:
    """A constant of a fabric that can be fitted: at most 1, seconds or a share.

    Attributes
    ----------
    apart
        How it moves from start to start of the fit, as protocols are taken
        apart: 1 up, -1 down, 0 not at all.
    """

    name: str
    apart: int
    get: Callable[[Fabric], Fraction]
    put: Callable[[Fabric, Fraction], Fabric]


@dataclass(frozen=True)
class Calibration:
    """A fitted fabric, and how well it meets the measurements.

    Attributes
    ----------
    moved
        Names and values of the constants that were fitted.
    kept
        Names of those that no measurement depends on: as they were given.
    median_error, p90_error
        Absolute relative errors of the fitted fabric over the measurements.
    """

    fabric: Fabric
    moved: tuple[tuple[str, float], ...]
    kept: tuple[str, ...]
    median_error: float
    p90_error: float


def predict(fabric: Fabric, measurements: Sequence[Measurement]) -> list[float]:
    """Return the seconds of the fastest algorithm and protocol for each measurement."""
    known: dict[tuple[object, ...], list[tuple[float, float]]] = {}
    found = []
    for row in measurements:
        key = (row.operation, row.spread, row.algorithms)
        if key not in known:
            known[key] = [
                (float(each.fixed_s), float(each.per_byte_s)) for each in _lines(fabric, row)
            ]
        found.append(min(fixed + slope * row.size_bytes for fixed, slope in known[key]))
    return found


def relative_errors(fabric: Fabric, measurements: Sequence[Measurement]) -> list[float]:
    """Return predicted over measured time, less 1, of each measurement."""
    predicted = predict(fabric, measurements)
    return [time_s / row.time_s - 1 for time_s, row in zip(predicted, measurements, strict=True)]


def error_at(errors: Iterable[float], share: float) -> float:
    """Return the absolute error that a share of all errors does not exceed (nearest rank)."""
    ordered = sorted(abs(error) for error in errors)
    return ordered[max(0, -(-int(share * 100) * len(ordered) // 100) - 1)]


def constants(fabric: Fabric) -> list[Constant]:
    """Return the constants of a fabric that measurements can tell.

    A call's and a step's seconds of every protocol, on each level the share of
    every protocol but the widest, and each link's attained shares.
    """
    found = []
    widest = [
        max(protocol.shares[level] for protocol in fabric.protocols)
        for level in range(len(fabric.links))
    ]
    for place, protocol in enumerate(fabric.protocols):
        is_wide = int(protocol.shares == tuple(widest))
        found.append(_base(place, protocol.name, is_wide))
        for level in range(len(fabric.links)):
            found.append(_step(place, protocol.name, level, is_wide))
            if protocol.shares[level] < widest[level]:
                found.append(_protocol_share(place, protocol.name, level))
    for level, link in enumerate(fabric.links):
        found += [_link_share(level, family) for family in link.shares]
    return found


def calibrate(
    fabric: Fabric,
    measurements: Sequence[Measurement],
    fitted: Callable[[str], bool] = lambda name: True,
) -> Calibration:
    """Fit a fabric's constants to measurements, from those that it has.

    Parameters
    ----------
    fitted
        Tells by a constant's name whether to fit it; the others stay.

    Raises
    ------
    InstanceError
        If there is no measurement, or one that the fabric has no algorithm for.
    """
    return calibrate_together([(fabric, measurements)], fitted)


def calibrate_together(
    parts: Sequence[tuple[Fabric, Sequence[Measurement]]],
    fitted: Callable[[str], bool] = lambda name: True,
) -> Calibration:
    """Fit constants that several fabrics have in common, as of one network between other nodes.

    Those of the first fabric are fitted, and put into all; the result has the first fabric.
    """
    if not parts or not all(measurements for _, measurements in parts):
        raise InstanceError(
            "calibration: found a fabric with 0 measurements, at least 1 is needed: give rows of "
            "nccl-tests"
        )
    fabric = parts[0][0]
    chosen: list[Constant] = []
    kept: list[Constant] = []
    for constant in constants(fabric):
        if fitted(constant.name) and constant.get(fabric):
            (chosen if _reaches(constant, parts) else kept).append(constant)
    tried = [_least_squares(parts, chosen, start) for start in _starts(fabric, chosen)]
    _, logs = min(tried, key=lambda result: result[0])
    errors: list[float] = []
    for each, measurements in parts:
        errors += relative_errors(_with(each, chosen, logs), measurements)
    result = _with(fabric, chosen, logs)
    return Calibration(
        result,
        tuple((constant.name, float(constant.get(result))) for constant in chosen),
        tuple(constant.name for constant in kept),
        median(map(abs, errors)),
        error_at(errors, 0.9),
    )


def _starts(fabric: Fabric, chosen: Sequence[Constant]) -> Iterator[Vector]:
    """Yield logarithms to start from: the fabric's own, and with its protocols further apart.

    A time is a minimum of lines, so that a fit may end where one of them is never taken.
    """
    here = np.array([log(float(constant.get(fabric))) for constant in chosen])
    apart = np.array([constant.apart for constant in chosen])
    yield here
    if apart.any():
        yield from (here + log(factor) * apart for factor in _APART)


def _least_squares(
    parts: Sequence[tuple[Fabric, Sequence[Measurement]]], chosen: Sequence[Constant], start: Vector
) -> tuple[float, Vector]:
    """Return the sum of squares, and the logarithms of constants, at the end of a descent.

    Levenberg 1944, Marquardt 1963; steps are taken only if they help.
    """
    here = start
    residuals = _residuals(parts, chosen, here)
    damping = 1e-2
    for _ in range(_ITERATIONS if chosen else 0):
        slopes = _slopes(parts, chosen, here, residuals)
        normal, gradient = slopes.T @ slopes, slopes.T @ residuals
        before = residuals @ residuals
        while damping < _MOST_DAMPING:
            scale = np.diag(np.diag(normal) + 1e-9)
            step = np.linalg.solve(normal + damping * scale, gradient)
            there = here - np.clip(step, -0.5, 0.5)
            found = _residuals(parts, chosen, there)
            if found @ found < before:
                here, residuals, damping = there, found, damping / 4
                break
            damping *= 4
        if damping >= _MOST_DAMPING or residuals @ residuals > (1 - _LEAST_GAIN) * before:
            break
    return float(residuals @ residuals), here


def _slopes(
    parts: Sequence[tuple[Fabric, Sequence[Measurement]]],
    chosen: Sequence[Constant],
    here: Vector,
    residuals: Vector,
) -> Vector:
    """Return the derivatives of all residuals, a column for each constant."""
    columns = []
    for place in range(len(chosen)):
        moved = here.copy()
        moved[place] -= _STEP
        columns.append((residuals - _residuals(parts, chosen, moved)) / _STEP)
    return np.stack(columns, axis=1)


def _residuals(
    parts: Sequence[tuple[Fabric, Sequence[Measurement]]],
    chosen: Sequence[Constant],
    logs: Vector,
) -> Vector:
    found = []
    for fabric, measurements in parts:
        predicted = predict(_with(fabric, chosen, logs), measurements)
        pairs = zip(predicted, measurements, strict=True)
        found += [log(time_s / row.time_s) for time_s, row in pairs]
    return np.array(found)


def _with(fabric: Fabric, chosen: Sequence[Constant], logs: Vector) -> Fabric:
    """Return the fabric with constants of these logarithms, shares at most 1."""
    for constant, value in zip(chosen, logs, strict=True):
        fabric = constant.put(fabric, Fraction(min(exp(value), 1.0)))
    return fabric


def _reaches(constant: Constant, parts: Sequence[tuple[Fabric, Sequence[Measurement]]]) -> bool:
    """Whether halving a constant changes any predicted time."""
    return any(
        predict(constant.put(fabric, constant.get(fabric) / 2), measurements)
        != predict(fabric, measurements)
        for fabric, measurements in parts
    )


def _lines(fabric: Fabric, row: Measurement) -> list[Line]:
    held = fabric if row.algorithms is None else replace(fabric, algorithms=row.algorithms)
    found = [
        each
        for _, shape in shapes(held, row.operation, row.spread)
        for protocol in fabric.protocols
        if (each := line(fabric, protocol, shape, row.spread)) is not None
    ]
    if not found:
        raise InstanceError(
            f"calibration: fabric {fabric.name} has no algorithm for {row.operation} over "
            f"{row.spread.counts}: add one to its algorithms ({', '.join(held.algorithms)})"
        )
    return found


def _base(place: int, protocol: str, apart: int) -> Constant:
    def put(fabric: Fabric, value: Fraction) -> Fabric:
        return _put_protocol(fabric, place, base_s=value)

    return Constant(
        f"{protocol} call (s)", apart, lambda fabric: fabric.protocols[place].base_s, put
    )


def _step(place: int, protocol: str, level: int, apart: int) -> Constant:
    def put(fabric: Fabric, value: Fraction) -> Fabric:
        steps = fabric.protocols[place].steps_s
        return _put_protocol(fabric, place, steps_s=(*steps[:level], value, *steps[level + 1 :]))

    return Constant(
        f"{protocol} step on level {level} (s)",
        apart,
        lambda fabric: fabric.protocols[place].steps_s[level],
        put,
    )


def _protocol_share(place: int, protocol: str, level: int) -> Constant:
    def put(fabric: Fabric, value: Fraction) -> Fabric:
        shares = fabric.protocols[place].shares
        return _put_protocol(fabric, place, shares=(*shares[:level], value, *shares[level + 1 :]))

    return Constant(
        f"{protocol} share of level {level}",
        -1,
        lambda fabric: fabric.protocols[place].shares[level],
        put,
    )


def _link_share(level: int, family: Family) -> Constant:
    def put(fabric: Fabric, value: Fraction) -> Fabric:
        link = fabric.links[level]
        changed = replace(link, shares={**link.shares, family: value})
        links = (*fabric.links[:level], changed, *fabric.links[level + 1 :])
        return replace(fabric, links=links)

    return Constant(
        f"{family} share of level {level}",
        0,
        lambda fabric: fabric.links[level].shares[family],
        put,
    )


def _put_protocol(fabric: Fabric, place: int, **change: object) -> Fabric:
    changed = replace(fabric.protocols[place], **change)  # type: ignore[arg-type]
    protocols = (*fabric.protocols[:place], changed, *fabric.protocols[place + 1 :])
    return replace(fabric, protocols=protocols)
