"""Fitting what kernels attain to measured runs: known shares come back, sources count alike."""

from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
from cli_running import run, run_json

from nest_opt import InstanceError, RunConfiguration
from nest_opt.prediction.fit import (
    Fitting,
    Measured,
    Shares,
    fit_accelerators,
    nodes,
    predicted_s,
)
from nest_opt.prediction.runs_table import read_runs

LIMITS = Shares(Decimal("0.87"), Decimal("0.82"))
TRUE = Shares(Decimal("0.61"), Decimal("0.37"))
# Seconds of products and of all other kernels at the peak, and of communication.
Parts = tuple[float, float, float]
PARTS: tuple[Parts, ...] = ((1.0, 0.1, 0.2), (2.0, 0.5, 0.0), (0.3, 0.2, 0.1), (5.0, 0.3, 1.0))

RUN = RunConfiguration(
    model="gpt2-xl",
    cluster="dgx-a100",
    devices=8,
    microbatch=8,
    global_batch=64,
    sequence_length=1024,
    recompute="full",
)
TABLE = """source,measured_s,model,cluster,devices,microbatch,pp,global_batch,recompute
one,0.67,gpt2-xl,dgx-a100,8,8,1,64,full
two,0.68,gpt2-xl,dgx-a100,8,8,1,64,full
"""


def seconds(parts: Parts, shares: Shares) -> float:
    """Return the time of a run that is its three parts."""
    products, others, rest = parts
    return products / float(shares.product) + others / float(shares.elementwise) + rest


def measured(source: str, slower: float = 1.0) -> list[Measured[Parts]]:
    """Return the runs of a source, each measured so many times slower than it is."""
    return [Measured(source, slower * seconds(parts, TRUE), parts) for parts in PARTS]


def test_known_shares_come_back() -> None:
    """Times made from shares are fitted by these shares, to the hundredth and without loss."""
    found = Fitting(measured("one"), seconds, LIMITS).fit()
    assert found.shares == TRUE
    assert found.loss == pytest.approx(0, abs=1e-9)
    assert found.rows == len(PARTS)


def test_a_source_has_no_part_in_its_own_prediction() -> None:
    """Two sources agree, a third is twice as slow: it is predicted by what the two say alone."""
    runs = [*measured("one"), *measured("two"), *measured("slow", 2.0)]
    without, times = Fitting(runs, seconds, LIMITS).held_out()["slow"]
    assert without.shares == TRUE
    assert times == pytest.approx([seconds(parts, TRUE) for parts in PARTS])


def test_sources_count_alike() -> None:
    """Many rows of one source do not outweigh two others of one row each."""
    runs = [*(5 * measured("slow", 2.0)), *measured("one"), *measured("two")]
    assert Fitting(runs, seconds, LIMITS).fit().shares == TRUE


def test_one_source_alone_cannot_be_held_out() -> None:
    """There is nothing to predict it by."""
    assert Fitting(measured("one"), seconds, LIMITS).held_out() == {}


def test_shares_stay_within_what_kernels_attain_by_themselves() -> None:
    """Runs faster than any share explains get the largest ones, which are nodes."""
    fast = [Measured("one", 0.5 * seconds(parts, LIMITS), parts) for parts in PARTS]
    assert Fitting(fast, seconds, LIMITS).fit().shares == LIMITS
    assert nodes(LIMITS.product)[0] == LIMITS.product


def test_interpolation_is_close_to_the_cost_model() -> None:
    """Between nodes the time of a real run is that of the cost model, to 1%."""
    exact = predicted_s(RUN, TRUE)
    runs = [Measured("one", exact, RUN)]
    fitting = Fitting(runs, predicted_s, LIMITS)
    assert fitting.fit().loss < 0.01
    assert fitting.times(TRUE) == pytest.approx([exact], rel=0.01)


@pytest.mark.parametrize("time", [0.0, -1.0, float("inf"), float("nan")])
def test_impossible_times_are_refused(time: float) -> None:
    """The message has the run's number and the time."""
    with pytest.raises(InstanceError, match=r"run 2: found a measured time"):
        Fitting([measured("one")[0], Measured("two", time, PARTS[0])], seconds, LIMITS)


def test_no_runs_are_refused() -> None:
    """Neither a fit of nothing nor one without the last source is made."""
    with pytest.raises(InstanceError, match="found none"):
        Fitting([], seconds, LIMITS)
    with pytest.raises(InstanceError, match="found no source"):
        Fitting(measured("one"), seconds, LIMITS).fit(without=("one",))


def table(tmp_path: Path, text: str) -> Path:
    """Write a table of runs."""
    path = tmp_path / "runs.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_table_of_runs_is_read(tmp_path: Path) -> None:
    """Columns are fields of a run, empty cells the defaults; dimensions make a model."""
    first, second = read_runs(table(tmp_path, TABLE))
    assert (first.source, first.measured_s, second.source) == ("one", 0.67, "two")
    assert first.run == replace(RUN, global_batch=64, sequence_length=None)
    dimensions = (
        "source,measured_s,model.layers,model.hidden,model.heads,model.vocabulary,sequence_length,"
        "cluster,devices,global_batch\none,2,4,512,8,50304,1024,dgx-a100,8,8\n"
    )
    (found,) = read_runs(table(tmp_path, dimensions))
    assert not isinstance(found.run.model, str)
    assert (found.run.model.layers, found.run.sequence_length) == (4, 1024)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("measured_s", "seconds", "found no column measured_s"),
        ("0.67", "-1", "line 2: measured_s: found '-1'"),
        ("0.67", "NaN", "line 2: measured_s: found 'NaN'"),
        ("0.67", "9e99", "line 2: measured_s"),
        (",full\ntwo", "\ntwo", "line 2: found another number of cells"),
        ("recompute", "recomputation", "line 2: recomputation"),
        ("8,8,1,64", "8,8,x,64", "line 2: pp"),
        ("one,0.67,gpt2-xl", 'one,0.67,"gpt2-xl', "found no CSV"),
    ],
)
def test_wrong_tables_are_refused(tmp_path: Path, old: str, new: str, told: str) -> None:
    """The message has the file, the line and what was found."""
    with pytest.raises(InstanceError) as error:
        read_runs(table(tmp_path, TABLE.replace(old, new, 1)))
    assert told in str(error.value)
    assert "runs.csv" in str(error.value)


def test_accelerators_are_fitted_apart(tmp_path: Path) -> None:
    """Each has a fit of its own, whose errors are those of the catalogue and of the others."""
    mixed = TABLE + "one,0.38,gpt2-xl,dgx-h100,8,8,1,64,full\n"
    a100, h100 = fit_accelerators(read_runs(table(tmp_path, mixed)))
    assert [a100.accelerator.name, h100.accelerator.name] == ["a100-80", "h100"]
    assert [source.source for source in a100.sources] == ["one", "two"]
    assert all(len(source.held_out) == 1 for source in a100.sources)
    assert h100.sources[0].held_out == ()
    assert a100.fit.loss < 0.02


def test_the_command_prints_constants_and_errors(tmp_path: Path) -> None:
    """Shares and the sources are in the table; a wrong file ends with exit code 2."""
    path = table(tmp_path, TABLE.rpartition("two")[0])
    result = run("fit", str(path))
    assert result.exit_code == 0
    assert "a100-80: product_share 0." in result.output
    (found,) = run_json("fit", str(path))["accelerators"]
    assert [source["runs"] for source in found["sources"]] == [1]
    assert found["sources"][0]["median_error_by_the_others"] is None
    path.write_text("nothing\n", encoding="utf-8")
    refused = run("fit", str(path))
    assert refused.exit_code == 2
    assert "found no column source" in refused.output
