"""Catalogues, luminosity sections and classes of service."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import forebay


def made(place: str) -> forebay.Dataset:
    n = np.arange(60)
    return forebay.write(
        place,
        {
            "run": (n // 40 + 7).astype(np.uint32),
            "luminosityBlock": (n // 10).astype(np.uint32),
            "event": n.astype(np.uint64),
            "Muon_pt": [[1.5]] * 60,
        },
    )


def test_what_is_published_is_found(place: str, tmp_path: Path) -> None:
    ds = made(place)
    cat = forebay.catalog(tmp_path / "catalogue")
    source = {"name": "a.root", "guid": "11-22", "events": 60}
    entry = cat.publish("user:zmumu", place, tags={"software": "R25"}, sources=[source])
    assert (entry["name"], entry["version"], entry["uuid"]) == ("user:zmumu", 0, ds.uuid)
    ds.add({"weight": np.ones(60)})
    assert cat.publish("user:zmumu", place)["version"] == 1
    assert [one["version"] for one in cat.list()] == [0, 1]
    assert [one["version"] for one in cat.find(columns=["weight"])] == [1]
    assert [one["version"] for one in cat.find(file="11-22", tags={"software": "R*"})] == [0]
    assert len(cat.find(run=7, lumi=3)) == 2
    assert cat.find(run=9) == []
    assert cat.lumis("user:zmumu")["8"] == [[4, 5]]
    assert "Muon_pt" in json.dumps(cat.columns("user:zmumu"))
    sums = cat.checksums("user:zmumu", 0)
    assert all(len(one["sha256"]) == 64 and len(one["adler32"]) == 8 for one in sums)
    assert cat.withdraw("user:zmumu", 0, "superseded") == 2
    assert [one["version"] for one in cat.list()] == [1]
    assert [change["number"] for change in cat.changes()] == [0, 1, 2]
    assert [change["number"] for change in cat.changes(2)] == [2]
    with pytest.raises(forebay.Invalid, match="user:none"):
        cat.show("user:none")


def test_certified_events_are_ranges(place: str, tmp_path: Path) -> None:
    ds = made(place)
    assert ds.lumis() == {7: {0: 10, 1: 10, 2: 10, 3: 10}, 8: {4: 10, 5: 10}}
    golden = {"7": [[1, 2]], "8": [[5, 9]]}
    assert ds.certified(golden) == [(10, 30), (50, 60)]
    (tmp_path / "golden.json").write_text(json.dumps(golden))
    assert ds.certified(tmp_path / "golden.json") == [(10, 30), (50, 60)]


def test_columns_move_and_are_referred_to(place: str, tmp_path: Path) -> None:
    made(place)
    assert forebay.reclass(place, "Events", ["Muon_pt"], "cold", str(tmp_path / "tape")) == 1
    ds = forebay.open(place)
    assert (ds.classes()["Muon_pt"], ds.classes()["event"]) == ("cold", "")
    assert ds["Muon_pt"].array().to_list() == [[1.5]] * 60
    other = f"{place}-other"
    forebay.write(other, {"event": np.arange(60, dtype=np.uint64)})
    assert forebay.refer(other, "Events", place, ["Muon_pt"]) == 1
    assert forebay.open(other)["Muon_pt"].array().to_list() == [[1.5]] * 60
