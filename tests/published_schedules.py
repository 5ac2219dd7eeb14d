"""Published times and bubble rates of pipeline schedules, and the runs that reproduce them.

Sources: Qi et al. 2023 (arXiv:2401.10241), tables 5, 8 and 9; Korthikanti et al.
2022 (arXiv:2205.05198), table 4. What a row of theirs is and how it is
reproduced is on the page on schedules, under "Published rates".
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from nest_opt.simulate import (
    Schedule,
    StageTimes,
    interleaved,
    one_f_one_b,
    simulate,
    zb_h1,
    zb_h2,
)

# The columns of tables 5 and 8 that are of these schedules.
RATES = ("1F1B", "1F1B-I", "ZB-H1", "ZB-H2")
# Half of the last digit of a rate.
ROUNDING = Fraction(1, 20_000)


class Times(NamedTuple):
    """T_F, T_B, T_W and T_comm of a stage; any unit."""

    f: int
    b: int
    w: int
    hop: int


@dataclass(frozen=True)
class Setting:
    """A row of table 5 or 8.

    Attributes
    ----------
    model
        Its name there.
    p, m, v
        Devices, microbatches, and chunks of interleaving: (layers + 2) / p.
    rates
        Bubble rates by schedule as printed.
    times
        Those of table 9 in microseconds; None for table 8, which has none.
    """

    model: str
    p: int
    m: int
    v: int
    rates: Mapping[str, str]
    times: Times | None = None


def setting(
    model: str, shape: tuple[int, int, int], rates: str, times: Times | None = None
) -> Setting:
    """Return a setting from (p, m, v) and its four rates."""
    return Setting(model, *shape, dict(zip(RATES, rates.split(), strict=True)), times)


# One setting of each model of table 5, with its times of table 9, and one of table 8.
CITED = (
    setting("1.5B", (8, 24, 3), ".2431 .1055 .1585 .1083", Times(18522, 18086, 9337, 601)),
    setting("6.2B", (8, 24, 4), ".2347 .0808 .1323 .0698", Times(29718, 29444, 19927, 527)),
    setting("14.6B", (16, 48, 3), ".2552 .1104 .1397 .0672", Times(11347, 11248, 8132, 377)),
    setting("28.3B", (32, 96, 2), ".2646 .1493 .1421 .0641", Times(10419, 10207, 7715, 408)),
)
CITED_WITHOUT_TIMES = setting("6.2B", (16, 48, 2), ".2668 .1499 .1536 .0823")

# Forward, backward and both of a layer of the 22B model, in tenths of a millisecond: table 4 of
# Korthikanti et al., without recomputation, with sequence parallelism, with full and with
# selective recomputation, and with selective recomputation and sequence parallelism.
LAYER_TIMES = ((77, 119, 196), (72, 118, 190), (77, 195, 272), (77, 132, 209), (72, 131, 203))


def bubble_rates(p: int, m: int, v: int, times: Times) -> dict[str, Fraction]:
    """Simulate the four schedules; return (cost - m T) / cost, cost the longest span.

    Hops only delay. Under interleaving, where the simulator lets all
    microbatches wait for their transfers between chunks and the authors the
    first of each p, a batch is p hops shorter than simulated.
    """
    stage = StageTimes(*times[:3], times.hop, times.hop)
    work = m * sum(times[:3])
    found = {
        name: 1 - Fraction(work, _span(build(p, m), stage))
        for name, build in (("1F1B", one_f_one_b), ("ZB-H1", zb_h1), ("ZB-H2", zb_h2))
    }
    # A chunk takes a v-th of a stage: everything times v keeps the numbers whole.
    chunk = StageTimes(*times[:3], v * times.hop, v * times.hop)
    span = _span(interleaved(p, m, v), chunk) - p * v * times.hop
    return {**found, "1F1B-I": 1 - Fraction(v * work, span)}


def _span(schedule: Schedule, stage: StageTimes) -> int:
    return simulate(schedule, [stage] * schedule.stages, hops="delay").span_ps


def misprinted(found: Mapping[str, Fraction], printed: Mapping[str, str]) -> dict[str, float]:
    """Return the rates that differ from what is printed by more than its rounding."""
    return {
        name: float(rate)
        for name, rate in found.items()
        if abs(rate - Fraction(printed[name])) > ROUNDING
    }


def fitted_times(p: int, m: int, v: int, printed: Mapping[str, str]) -> Times | None:
    """Return times with C / T and W / T in the middle of what four printed rates allow.

    The rates of 1F1B and of interleaving allow a range of C / T each, those of
    ZB-H1 and ZB-H2, with C / T, one of W / T; None where two of them do not
    meet. T is 1e8; F and B, of which the four take the sum alone, are equal.
    """
    # Closed forms for m a multiple of p, in units of T: the page's, and what interleaving lacks.
    hop = _meeting(
        _range(m + p - 1, 2 * (p - 1) * (m // p + 1) - 2, m, printed["1F1B"]),
        _range(m + Fraction(p - 1, v), p * (2 * v - 1) - 2, m, printed["1F1B-I"]),
    )
    if hop is None:
        return None
    weight = _meeting(
        *(
            _range(m + (p - 1) * (1 + hops * hop), -hidden * (p - 1), m, printed[name])
            for name, hidden, hops in (("ZB-H1", 2, 4), ("ZB-H2", 3, 2))
        )
    )
    if weight is None:
        return None
    total, w = 10**8, round(weight * 10**8)
    f = (total - w) // 2
    return Times(f, total - w - f, w, round(hop * total))


def _range(fixed: int | Fraction, slope: int, m: int, printed: str) -> tuple[Fraction, Fraction]:
    """Return the x for which a batch of fixed + slope x has a rate that is printed so."""
    rate = Fraction(printed)
    ends = ((m / (1 - rate + shift) - fixed) / slope for shift in (ROUNDING, -ROUNDING))
    low, high = sorted(ends)
    return low, high


def _meeting(*ranges: tuple[Fraction, Fraction]) -> Fraction | None:
    """Return the middle of what ranges have in common; None where that is nothing."""
    low, high = max(low for low, _ in ranges), min(high for _, high in ranges)
    return (low + high) / 2 if low <= high else None


def settings(rows: Iterable[Mapping[str, str]], table: str) -> list[Setting]:
    """Return the settings of table 5 or 8 among published rows, with the times of table 9."""
    rates: dict[tuple[str, int, int, int], dict[str, str]] = {}
    times: dict[tuple[str, int, int, int], dict[str, str]] = {}
    for row in rows:
        if row["table"] in (table, "Table 9"):
            p, m = int(row["p"]), int(row["m"])
            key = row["model"], p, m, (int(row["layers"]) + 2) // p
            found = times if row["table"] == "Table 9" else rates
            name = row["quantity"].removeprefix("theoretical bubble rate ")
            found.setdefault(key, {})[name] = row["value"]
    return [
        Setting(*key, printed, _microseconds(times[key]) if table == "Table 5" else None)
        for key, printed in rates.items()
    ]


def _microseconds(values: Mapping[str, str]) -> Times:
    names = ("T_F", "T_B (input grad)", "T_W (weight grad)", "T_comm")
    return Times(*(round(1000 * Fraction(values[name])) for name in names))
