"""Two datasets matched by the values of columns."""

from __future__ import annotations

import awkward as ak
import numpy as np
import pytest

import forebay

KEY = ("run", "luminosityBlock", "event")


@pytest.fixture
def sides(tmp_path: object) -> tuple[forebay.Dataset, forebay.Dataset]:
    rng = np.random.default_rng(3)
    run, event = np.repeat([1, 2], 500), np.tile(np.arange(500), 2)
    lumi = event // 100
    order = rng.permutation(1000)
    left = forebay.write(
        f"{tmp_path}/left", {"run": run, "luminosityBlock": lumi, "event": event, "x": np.arange(1000)}
    )
    kept = order[:700]
    friend = {
        "run": run[kept].astype(np.uint32),
        "luminosityBlock": lumi[kept].astype(np.uint32),
        "event": event[kept].astype(np.uint64),
        "y": kept * 2.0,
        "j": ak.unflatten(np.arange(1400), [2] * 700),
    }
    return left, forebay.write(f"{tmp_path}/right", friend)


def test_all_events_of_the_left_one_stay(sides: tuple[forebay.Dataset, forebay.Dataset]) -> None:
    left, right = sides
    joined = left.join(right)
    assert (len(joined), joined.matched) == (1000, 700)
    assert joined.keys() == [*KEY, "x", "y", "j"]
    arrays = joined.arrays(["x", "y", "j"])
    there = ~ak.is_none(arrays.y)
    assert ak.sum(there) == 700
    assert ak.all(arrays.y[there] == arrays.x[there] * 2)
    assert ak.all(ak.num(arrays.j[there]) == 2)
    part = joined.arrays("y", entry_start=100, entry_stop=120)
    assert part.y.to_list() == arrays.y[100:120].to_list()
    with pytest.raises(KeyError, match="near: y"):
        joined["yy"]


def test_inner_keeps_events_of_both(sides: tuple[forebay.Dataset, forebay.Dataset]) -> None:
    joined = sides[0].join(sides[1], how="inner")
    arrays = joined.arrays(["x", "y"])
    assert len(joined) == 700
    assert ak.all(arrays.y == arrays.x * 2)
    assert str(arrays.y.type.content) == "float64"


def test_keys_that_are_there_twice_are_named(sides: tuple[forebay.Dataset, forebay.Dataset]) -> None:
    left, right = sides
    with pytest.raises(forebay.Invalid, match=r"left.*more than once: \(1, 0\), \(1, 1\)"):
        left.join(right, on=("run", "luminosityBlock"))


def test_keys_are_flat_integers(sides: tuple[forebay.Dataset, forebay.Dataset]) -> None:
    with pytest.raises(forebay.Invalid, match="column y: keys are flat integers"):
        sides[1].join(sides[1], on=("y",))
    with pytest.raises(KeyError, match="nothere"):
        sides[0].join(sides[1], on=("nothere",))
