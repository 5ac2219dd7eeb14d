"""Fit the two shares that a training run attains to measured runs.

Of each accelerator two constants are fitted: `product_share` of its peak that matrix products
attain, and `elementwise_share` of its memory bandwidth that all other kernels attain. Neither
may exceed what the kernels attain by themselves. All else is cited. The loss is the mean
over sources of the mean |log(predicted / measured)| of their rows, so that a source counts
once however many rows it has.

Iteration time is linear in the reciprocals of the two shares but for the maxima between stages
and in kernels, so it is predicted at a few nodes and interpolated between them; all
combinations of hundredths are tried. That makes a fit a table look-up without starting
point or random numbers, the same in every run.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from nest_opt.errors import InstanceError
from nest_opt.models.accelerator import Accelerator
from nest_opt.models.clusters import find_cluster
from nest_opt.models.figure import Figure
from nest_opt.models.hardware import find_accelerator
from nest_opt.prediction.predict import predict
from nest_opt.prediction.run import RunConfiguration

Array = NDArray[np.float64]
Run = TypeVar("Run")

HUNDREDTH = Decimal("0.01")
LEAST_SHARE = Decimal("0.10")
# Reciprocals are spaced evenly between the least and the largest share.
NODES = 3
FITTED = "fitted to measured runs"


@dataclass(frozen=True)
class Shares:
    """What kernels attain in training runs.

    Attributes
    ----------
    product, elementwise
        See `Accelerator.product_share` and `Accelerator.elementwise_share`.
    """

    product: Decimal
    elementwise: Decimal

    def on(self, accelerator: Accelerator) -> Accelerator:
        """Return the accelerator with these shares."""
        return replace(
            accelerator,
            product_share=Figure(self.product, FITTED),
            elementwise_share=Figure(self.elementwise, FITTED),
        )


@dataclass(frozen=True)
class Measured(Generic[Run]):
    """A measured run: its source, iteration time, and what to predict it from."""

    source: str
    measured_s: float
    run: Run


@dataclass(frozen=True)
class Fit:
    """The result of a fit.

    Attributes
    ----------
    shares
        The shares that fit best.
    loss
        Mean over sources of the mean absolute logarithm of predicted over measured time.
    rows
        Rows that it rests on.
    """

    shares: Shares
    loss: float
    rows: int


class Fitting(Generic[Run]):
    """Measured runs with their predicted times at the nodes."""

    def __init__(
        self,
        runs: Iterable[Measured[Run]],
        predict_s: Callable[[Run, Shares], float],
        limits: Shares,
    ) -> None:
        """Predict all runs at all nodes.

        Parameters
        ----------
        runs
            Of one family of accelerators.
        predict_s
            Iteration time of a run with shares.
        limits
            The largest shares.

        Raises
        ------
        InstanceError
            If there is no run, or a measured time is not positive.
        """
        self.runs = tuple(runs)
        _check(self.runs)
        self._predict_s = predict_s
        self._products, self._elementwise = nodes(limits.product), nodes(limits.elementwise)
        self._limits = limits
        self._at_nodes = np.array(
            [
                [
                    [predict_s(row.run, Shares(first, second)) for second in self._elementwise]
                    for first in self._products
                ]
                for row in self.runs
            ]
        )

    def fit(self, without: Collection[str] = ()) -> Fit:
        """Return the shares that fit all sources best, or all but some.

        Raises
        ------
        InstanceError
            If no source is left.
        """
        weights = self._weights(without)
        products, elementwise = (
            hundredths(self._limits.product),
            hundredths(self._limits.elementwise),
        )
        over = interpolation(elementwise, self._elementwise)
        logs = np.log([row.measured_s for row in self.runs])
        best: tuple[float, Shares] | None = None
        for product, across in zip(products, interpolation(products, self._products), strict=True):
            times = np.einsum("n,rnm,em->re", across, self._at_nodes, over)
            losses = weights @ np.abs(np.log(times) - logs[:, None])
            place = int(np.argmin(losses))
            if best is None or losses[place] < best[0]:
                best = (float(losses[place]), Shares(product, elementwise[place]))
        assert best is not None
        return Fit(best[1], best[0], int(np.count_nonzero(weights)))

    def times(self, shares: Shares) -> tuple[float, ...]:
        """Return the runs' times with shares, interpolated between the nodes."""
        first = interpolation((shares.product,), self._products)[0]
        second = interpolation((shares.elementwise,), self._elementwise)[0]
        return tuple(np.einsum("n,rnm,m->r", first, self._at_nodes, second).tolist())

    def held_out(self) -> dict[str, tuple[Fit, tuple[float, ...]]]:
        """Return for each source the fit to all others, and its own rows' times by that.

        Empty where there is one source alone.
        """
        sources = list(dict.fromkeys(row.source for row in self.runs))
        if len(sources) == 1:
            return {}
        found = {}
        for source in sources:
            fit = self.fit(without=(source,))
            times = tuple(
                self._predict_s(row.run, fit.shares) for row in self.runs if row.source == source
            )
            found[source] = (fit, times)
        return found

    def _weights(self, without: Collection[str]) -> Array:
        counts: dict[str, int] = {}
        for row in self.runs:
            if row.source not in without:
                counts[row.source] = counts.get(row.source, 0) + 1
        if not counts:
            raise InstanceError(
                "runs: found no source besides those left out, 1 at least is needed: add runs"
            )
        return np.array(
            [
                1 / (counts[row.source] * len(counts)) if row.source in counts else 0.0
                for row in self.runs
            ]
        )


def _check(runs: Sequence[Measured[Run]]) -> None:
    if not runs:
        raise InstanceError("runs: found none, 1 at least is needed: add rows")
    for number, row in enumerate(runs, start=1):
        if not 0 < row.measured_s < float("inf"):
            raise InstanceError(
                f"run {number}: found a measured time of {row.measured_s} s, a positive number is "
                "needed: correct it"
            )


def nodes(limit: Decimal) -> tuple[Decimal, ...]:
    """Return the shares at which runs are predicted, falling from the largest."""
    first, last = 1 / limit, 1 / LEAST_SHARE
    step = (last - first) / (NODES - 1)
    return tuple((1 / (first + place * step)).quantize(Decimal("0.0001")) for place in range(NODES))


def hundredths(limit: Decimal) -> tuple[Decimal, ...]:
    """Return all shares of whole hundredths, rising."""
    count = int((limit - LEAST_SHARE) / HUNDREDTH)
    return tuple(LEAST_SHARE + place * HUNDREDTH for place in range(count + 1))


def interpolation(shares: Sequence[Decimal], at: Sequence[Decimal]) -> Array:
    """Return, of each share, the weights of the nodes: linear in reciprocals."""
    points = np.array([1 / float(node) for node in at])
    wanted = np.array([1 / float(share) for share in shares])
    hats = np.eye(len(points))
    return np.array([np.interp(wanted, points, hat) for hat in hats]).T


@dataclass(frozen=True)
class SourceErrors:
    """How far a source's runs are off.

    Attributes
    ----------
    source, runs
        Its name and its number of runs.
    without
        The shares fitted to all others; None where there are none.
    held_out
        |predicted / measured - 1| of its runs by those; empty where there are none.
    catalogue
        The same by the constants of the catalogue.
    """

    source: str
    runs: int
    without: Shares | None
    held_out: tuple[float, ...]
    catalogue: tuple[float, ...]


@dataclass(frozen=True)
class FamilyFit:
    """The fit of one accelerator."""

    accelerator: Accelerator
    fit: Fit
    sources: tuple[SourceErrors, ...]


def fit_accelerators(runs: Iterable[Measured[RunConfiguration]]) -> tuple[FamilyFit, ...]:
    """Fit each accelerator that occurs in measured runs.

    Raises
    ------
    InstanceError
        If there is no run, or a run contradicts itself.
    PlanError
        If a run breaks a rule other than memory.
    """
    families: dict[str, list[Measured[RunConfiguration]]] = {}
    for row in runs:
        families.setdefault(_accelerator(row.run).name, []).append(row)
    if not families:
        raise InstanceError("runs: found none, 1 at least is needed: add rows")
    return tuple(_family(rows) for rows in families.values())


def _accelerator(run: RunConfiguration) -> Accelerator:
    return find_accelerator(run.accelerator or find_cluster(run.cluster).accelerator)


def predicted_s(run: RunConfiguration, shares: Shares | None) -> float:
    """Return a run's iteration time by the closed form, in seconds, with shares or as it is."""
    if shares is not None:
        run = replace(run, accelerator=shares.on(_accelerator(run)))
    return predict(run, simulate=False).iteration_s


def share_limits(accelerator: Accelerator) -> Shares:
    """Return the largest shares: what large kernels attain by themselves."""
    product, elementwise = accelerator.matmul_efficiency, accelerator.memory_efficiency
    return Shares(
        Decimal(product.value).quantize(HUNDREDTH), Decimal(elementwise.value).quantize(HUNDREDTH)
    )


def _family(rows: Sequence[Measured[RunConfiguration]]) -> FamilyFit:
    accelerator = _accelerator(rows[0].run)
    fitting = Fitting(rows, predicted_s, share_limits(accelerator))
    held_out = fitting.held_out()
    found = []
    for source in dict.fromkeys(row.source for row in rows):
        own = [row for row in rows if row.source == source]
        without, times = held_out.get(source, (None, ()))
        catalogue = [predicted_s(row.run, None) for row in own]
        found.append(
            SourceErrors(
                source,
                len(own),
                without.shares if without else None,
                _errors(own[: len(times)], times),
                _errors(own, catalogue),
            )
        )
    return FamilyFit(accelerator, fitting.fit(), tuple(found))


def _errors(
    rows: Sequence[Measured[RunConfiguration]], times: Sequence[float]
) -> tuple[float, ...]:
    return tuple(abs(time / row.measured_s - 1) for row, time in zip(rows, times, strict=True))
