"""Published bubble rates and times of schedules, to their printed digits."""

import csv
from collections import Counter
from fractions import Fraction
from pathlib import Path

import pytest
from longest_path import Node, finish_times
from published_schedules import (
    CITED,
    CITED_WITHOUT_TIMES,
    LAYER_TIMES,
    RATES,
    Setting,
    bubble_rates,
    fitted_times,
    misprinted,
    settings,
)

from nest_opt.simulate import StageTimes, interleaved, one_f_one_b, simulate


@pytest.fixture(scope="module")
def rows(shared_data: Path) -> list[dict[str, str]]:
    """Return the published rows, or skip where they are absent."""
    path = shared_data / "facts" / "published_schedule_timings.csv"
    if not path.is_file():
        pytest.skip(f"published timings not found at {path}")
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))


def check(setting: Setting) -> None:
    """Reproduce the four rates of a setting from its times, or from two that are fitted."""
    p, m, v = setting.p, setting.m, setting.v
    times = setting.times or fitted_times(p, m, v, setting.rates)
    assert times is not None, setting
    assert misprinted(bubble_rates(p, m, v, times), setting.rates) == {}, setting


def check_others_are_refused(setting: Setting) -> None:
    """With one of the four rates a little higher there are no two times for all."""
    rates = setting.rates
    for name in RATES:
        higher = {**rates, name: str(Fraction(rates[name]) + Fraction(2, 1000))}
        assert fitted_times(setting.p, setting.m, setting.v, higher) is None


@pytest.mark.parametrize("setting", CITED, ids=lambda setting: setting.model)
def test_cited_rates_of_table_5(setting: Setting) -> None:
    """Hops that only delay give the printed rates from the times of table 9."""
    check(setting)


def test_cited_rates_of_table_8() -> None:
    """Two times, fitted to four printed rates, give all four; other rates have none."""
    check(CITED_WITHOUT_TIMES)
    check_others_are_refused(CITED_WITHOUT_TIMES)


def test_a_wrong_time_is_seen() -> None:
    """With a hop that is a twentieth longer, no rate of the 1.5B model is as printed."""
    setting = CITED[0]
    assert setting.times is not None
    times = setting.times._replace(hop=setting.times.hop * 21 // 20)
    found = misprinted(bubble_rates(setting.p, setting.m, setting.v, times), setting.rates)
    assert set(found) == set(setting.rates)


def test_what_interleaving_leaves_out() -> None:
    """If only the first of each p microbatches waits between chunks, a batch is p hops shorter."""
    p, m, v = 8, 24, 3
    schedule = interleaved(p, m, v)

    def later_in_its_group(maker: Node, user: Node) -> bool:
        """Whether this passes between chunks, of another than the first of p microbatches."""
        return maker[2] // p != user[2] // p and user[1] % p > 0

    ends = finish_times(
        schedule.orders,
        v,
        lambda node: 100 if node[0] == "F" else 170,
        lambda maker, user: 3,
        blocking=False,
        dropped=later_in_its_group,
    )
    complete = simulate(schedule, [StageTimes(100, 100, 70, 3, 3)] * (p * v), hops="delay")
    assert complete.compute_ps == max(ends.values()) + p * 3


@pytest.mark.parametrize(("forward", "backward", "both"), LAYER_TIMES)
def test_cited_layer_times(forward: int, backward: int, both: int) -> None:
    """A batch of one microbatch on one stage takes forward and backward together, as printed."""
    found = simulate(one_f_one_b(1, 1), [StageTimes(forward, backward)])
    assert found.iteration_ps == both


@pytest.mark.parametrize("model", ["1.5B", "6.2B", "14.6B", "28.3B"])
def test_all_rates_of_table_5(rows: list[dict[str, str]], model: str) -> None:
    """All 12 settings; the rate printed for ZB-1p is in all of them that of ZB-H1."""
    found = [setting for setting in settings(rows, "Table 5") if setting.model == model]
    assert len(found) == 3
    for setting in found:
        assert setting.rates["ZB-1p"] == setting.rates["ZB-H1"]
        check(setting)


@pytest.mark.parametrize("model", ["6.2B", "14.6B", "28.3B"])
def test_all_rates_of_table_8(rows: list[dict[str, str]], model: str) -> None:
    """All 9 settings, each with two fitted times."""
    found = [setting for setting in settings(rows, "Table 8") if setting.model == model]
    assert len(found) == 3
    for setting in found:
        check(setting)
        check_others_are_refused(setting)


def test_every_published_row_is_accounted_for(rows: list[dict[str, str]]) -> None:
    """The 180 rows are inputs, reproduced, or of schedules that a search made."""
    measured = [row for row in rows if row["source"].startswith("Korthikanti")]
    times = {row["quantity"]: float(row["value"]) for row in measured}
    for name in {quantity.split(":")[0] for quantity in times}:
        parts = [round(10 * times[f"{name}: {part}"]) for part in ("forward", "backward")]
        assert sum(parts) == round(10 * times[f"{name}: combined"])
        assert (*parts, sum(parts)) in LAYER_TIMES
    counts = Counter(
        (row["table"], row["quantity"].removeprefix("theoretical bubble rate "))
        for row in rows
        if row not in measured
    )
    expected = Counter[tuple[str, str]]()
    for table, number, names in (
        ("Table 9", 12, ("T_F", "T_B (input grad)", "T_W (weight grad)", "T_comm")),
        ("Table 5", 12, ("1F1B", "1F1B-I", "ZB-H1", "ZB-H2", "ZB-1p", "ZB-2p")),
        ("Table 8", 9, ("1F1B", "1F1B-I", "ZB-H1", "ZB-H2", "ZB-V")),
    ):
        expected.update({(table, name): number for name in names})
    assert counts == expected
    assert len(measured) + counts.total() == 15 + 48 + 72 + 45 == 180
