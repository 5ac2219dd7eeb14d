"""Brute force itself: it looks at everything, once."""

from math import comb

import pytest
from samples import problem_data, sample

from nest_opt import Problem
from nest_opt.certify.brute_force import brute_force, enumerate_cells
from nest_opt.problem.validation import build


@pytest.mark.parametrize(("layers", "stages"), [(1, 1), (4, 1), (4, 3), (5, 2), (6, 6)])
def test_every_cut_with_every_mode(layers: int, stages: int) -> None:
    """A cell of n layers and S stages has C(n - 1, S - 1) * 2^S plans where all fit."""
    problem = sample(layers=layers, sizes=(stages,), search={"dp": [1], "pp": [stages]})
    assert brute_force(problem).plans == comb(layers - 1, stages - 1) * 2**stages


def test_modes_are_those_asked_for() -> None:
    """With one recomputation mode asked for, each way to cut is one plan."""
    search = {"dp": [1], "pp": [3], "recompute": ["full"]}
    found = brute_force(sample(layers=5, sizes=(3,), search=search))
    assert found.plans == comb(4, 2)
    assert found.placement is not None
    assert found.placement.recompute == ("full",) * 3


def test_every_device_map_once() -> None:
    """Two replicas of two stages on 3 + 3 + 1 devices have these maps, and no other."""
    data = problem_data(layers=2, sizes=(3, 3), search={"dp": [2], "pp": [2]}, global_batch=2)
    data["cluster"]["devices"] = [{"kind": "device", "count": 7}]
    maps = [
        (cell.device_map.order, cell.device_map.pitch)
        for cell in enumerate_cells(build(Problem, data, "7 devices"))
    ]
    # Units of 2 devices: tight 2, rounded up to 3 (to 9: too far), spread 7 // 2 = 3.
    assert maps == [("pp-inner", 2), ("pp-inner", 3), ("dp-inner", 2), ("dp-inner", 3)]


def test_equal_device_maps_are_one_cell() -> None:
    """With one replica, or one stage, rank order and pitch make no difference: one cell each."""
    for search in ({"dp": [1], "pp": [2]}, {"dp": [2], "pp": [1]}):
        cells = list(enumerate_cells(sample(layers=2, sizes=(2,), search=search)))
        assert [(c.device_map.order, c.device_map.pitch) for c in cells] == [
            ("pp-inner", 2 if search["dp"] == [1] else 1)
        ]


def test_first_among_equals() -> None:
    """Of equal plans the one with the smallest stage ends wins, with every mode `none`."""
    problem = sample(layers=3, sizes=(2,), search={"dp": [1], "pp": [2]})
    found = brute_force(problem)
    assert found.placement is not None
    assert found.placement.ends == (1, 3)
    assert found.placement.recompute == ("none", "none")
    assert found.optima == 2


def test_nothing_fits() -> None:
    """Where memory is too small for any plan there is no value and no placement."""
    found = brute_force(sample(layers=2, sizes=(2,), memory_bytes=10))
    assert (found.value_ps, found.placement, found.plans, found.optima) == (None, None, 0, 0)
