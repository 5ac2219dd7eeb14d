"""The catalogue of fabrics: sources, published figures, and the whole table of measured rows."""

import sys
from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest
from published_collectives import PUBLISHED, Published

from nest_opt.errors import InstanceError
from nest_opt.models.fabrics import (
    NETWORK_FABRICS,
    NODE_FABRICS,
    build_fabric,
    build_torus_fabric,
)
from nest_opt.models.nccl_tests import bus_factor
from nest_opt.network.collectives import Spread, collective_time, error_at

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))

from collectives import PAGE, constant_lines, error_lines, read_rows  # noqa: E402


def test_every_constant_has_a_source() -> None:
    """Each number says where it is from; one that no source states is called a guess."""
    for fabric in (*NODE_FABRICS, *NETWORK_FABRICS):
        for name, figure in fabric.figures():
            assert figure.source, (fabric.name, name)
            assert figure.guess == figure.source.startswith("guess: ")


@pytest.mark.parametrize(
    "row", PUBLISHED, ids=lambda row: f"{row.node}-{row.counts}-{row.bus_gigas}"
)
def test_large_buffers_take_what_was_published(row: Published) -> None:
    """Within 20% of each printed bandwidth, and never above what the links' peak allows."""
    network = (None, None) if row.network is None else (row.network[0], row.network[1] * 10**9)
    fabric = build_fabric(row.node, *network)
    held = replace(fabric, algorithms=row.algorithms or fabric.algorithms)
    spread = Spread(row.counts)
    found = collective_time(held, row.operation, spread, row.size_bytes)
    factor = bus_factor(row.operation, spread.ranks)
    measured_s = float(row.size_bytes * factor) / (row.bus_gigas * 1e9)
    assert float(found.time_s) == pytest.approx(measured_s, rel=0.2)
    assert found.bound.bytes_s < measured_s


def test_switches_are_used_where_they_help() -> None:
    """On 8 H100 the switch adds up an all-reduce; an all-gather stays a ring; between nodes too."""
    fabric = build_fabric("h100", "infiniband", 50 * 10**9)
    chosen = {
        (operation, counts): collective_time(fabric, operation, Spread(counts), 2**30)
        .candidates[0]
        .algorithm
        for operation in ("all-reduce", "all-gather")
        for counts in ((8,), (8, 2))
    }
    assert set(chosen.values()) == {"in-switch", "ring"}
    assert all(
        (name == "in-switch") == (operation == "all-reduce")
        for (operation, _), name in chosen.items()
    )


def test_names_and_bandwidths_are_checked() -> None:
    """Unknown names get the nearest ones; a network needs its bandwidth; a torus is one link."""
    with pytest.raises(InstanceError, match="did you mean h100-nvswitch"):
        build_fabric("h100-nvswich")
    with pytest.raises(InstanceError, match="both or neither"):
        build_fabric("h100", "infiniband")
    assert len(build_torus_fabric(90 * 10**9).links) == 1


def test_measured_rows_are_met(shared_data: Path) -> None:
    """Of all 477 rows of at least 1 MiB the median is within 15% and nine in ten within 50%."""
    rows, _ = read_rows(shared_data / "facts" / "nccl.csv")
    assert len(rows) == 477
    sound = [row.error for row in rows if row.doubt is None]
    every = [row.error for row in rows]
    assert median(map(abs, every)) <= 0.15
    assert error_at(every, 0.9) <= 0.5
    assert median(map(abs, sound)) <= 0.06
    assert error_at(sound, 0.9) <= 0.25
    below = [row.sweep for row in rows if row.measurement.time_s < row.found.bound.bytes_s]
    assert below == ["jz-v100-1n"]
    assert "\n".join(error_lines(rows)) in PAGE.read_text(encoding="utf-8")


def test_the_page_has_the_catalogues_constants() -> None:
    """docs/collectives.md is what `benchmarks/collectives.py --write` makes of the catalogue."""
    assert "\n".join(constant_lines()) in PAGE.read_text(encoding="utf-8")
