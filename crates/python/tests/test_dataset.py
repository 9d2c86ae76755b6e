"""Opening, choosing, reading and changing datasets."""

from __future__ import annotations

import io
import multiprocessing
import os
import pickle
from pathlib import Path

import awkward as ak
import distributed
import numpy as np
import pytest

import forebay


def events(n: int, seed: int = 1) -> dict[str, ak.Array]:
    rng = np.random.default_rng(seed)
    counts = rng.poisson(2, n)
    return {
        "event": np.arange(n),
        "nMuon": counts.astype(np.uint32),
        "Muon_pt": ak.unflatten(rng.exponential(20, counts.sum()).astype(np.float32), counts),
        "Muon_eta": ak.unflatten(rng.normal(size=counts.sum()).astype(np.float32), counts),
        "HLT_mu": rng.random(n) < 0.2,
    }


@pytest.fixture
def ds(place: str) -> forebay.Dataset:
    return forebay.write(place, events(2000), titles={"Muon_pt": "transverse momentum"}, batch_events=512)


def test_columns_are_chosen_as_in_uproot(ds: forebay.Dataset) -> None:
    assert ds.keys() == ["event", "nMuon", "Muon_pt", "Muon_eta", "HLT_mu"]
    assert ds.keys("Muon_*") == ["Muon_pt", "Muon_eta"]
    assert ds.keys("/^n|ETA$/i") == ["nMuon", "Muon_eta"]
    assert ds.keys(lambda name: "_" not in name) == ["event", "nMuon"]
    assert ds.keys(["event", "HLT*"]) == ["event", "HLT_mu"]
    assert ds.keys(filter_typename="bool") == ["HLT_mu"]
    assert ds.arrays(["Muon_*", "event"], entry_stop=3).fields == ["Muon_pt", "Muon_eta", "event"]
    assert ds.arrays(filter_name="HLT*").fields == ["HLT_mu"]
    assert len(ds) == ds.num_entries == 2000
    assert "Muon_pt" in ds
    assert "Muon_mass" not in ds


def test_a_column_says_what_it_is(ds: forebay.Dataset) -> None:
    column = ds["Muon_pt"]
    assert isinstance(column, forebay.Column)
    assert (column.name, column.title, column.typename) == ("Muon_pt", "transverse momentum", "var * float32")
    assert ds.typenames("HLT*") == {"HLT_mu": "bool"}


def test_show_reads_directories_only(ds: forebay.Dataset) -> None:
    out = io.StringIO()
    fresh = forebay.open(ds.url)
    fresh.show(stream=out)
    text = out.getvalue()
    assert "Muon_pt" in text
    assert "transverse momentum" in text
    assert "var * float32" in text
    sizes = fresh.stored_bytes()
    assert fresh.bytes_read < sum(sizes.values()) / 2
    assert str(sizes["Muon_pt"]) in text


def test_ranges_are_those_of_python(ds: forebay.Dataset) -> None:
    whole = ds["Muon_pt"].array()
    for start, stop in [(0, 10), (500, 1300), (-5, None), (None, -1990), (1999, 5000), (7, 7), (9, 3)]:
        assert ds["Muon_pt"].array(start, stop).to_list() == whole[slice(start, stop)].to_list()[: max(0, 2000)]


@pytest.mark.parametrize("step", [None, 1, 300, 512, 5000, "3 kB", "1 MiB", "1 B"])
def test_steps_are_all_events_in_order(ds: forebay.Dataset, step: int | str | None) -> None:
    stop = 30 if step in (1, "1 B") else None
    parts = list(ds.iterate(["event", "Muon_pt"], step_size=step, entry_stop=stop))
    whole = ds.arrays(["event", "Muon_pt"], entry_stop=stop)
    assert ak.array_equal(ak.concatenate(parts), whole)
    if step is None:
        assert [len(part) for part in parts] == [512, 512, 512, 464]
    if isinstance(step, int):
        assert {len(part) for part in parts[:-1]} <= {step}


def test_an_iteration_that_is_left_ends(ds: forebay.Dataset) -> None:
    steps = ds.iterate("event", step_size=100)
    next(steps)
    steps.close()


def test_only_what_is_asked_for_is_read(ds: forebay.Dataset) -> None:
    fresh = forebay.open(ds.url)
    requests, came = fresh.requests, fresh.bytes_read
    assert requests > 0
    fresh["Muon_pt"].array(0, 512)
    sizes = fresh.stored_bytes()
    assert fresh.requests - requests <= 4
    assert fresh.bytes_read - came < sum(sizes.values())


def test_versions_stay(ds: forebay.Dataset) -> None:
    added = ds.add({"weight": np.ones(2000, np.float32)}, titles={"weight": "w"})
    replaced = added.replace({"Muon_pt": added["Muon_pt"].array() * np.float32(2)}, note="twice")
    assert [version.note for version in replaced.versions()] == ["write", "add weight", "twice"]
    assert [version.tables["Events"] for version in replaced.versions()] == [(2000, 5), (2000, 6), (2000, 6)]
    assert (ds.version, added.version, replaced.version) == (0, 1, 2)
    old = replaced.at(0)
    assert "weight" not in old
    assert replaced.at(-2).version == 1
    assert ak.array_equal(replaced["Muon_pt"].array(), old["Muon_pt"].array() * np.float32(2))
    column = replaced["Muon_pt"]
    assert isinstance(column, forebay.Column)
    assert column.title == "transverse momentum"
    assert forebay.open(ds.url, version=1).keys() == [*ds.keys(), "weight"]
    with pytest.raises(forebay.Invalid, match="no version 7"):
        ds.at(7)


def test_a_change_writes_its_own_columns_only(ds: forebay.Dataset) -> None:
    def stored() -> int:
        return sum(path.stat().st_size for path in Path(ds.url).rglob("*") if path.is_file())

    before = stored()
    ds.replace({"HLT_mu": ~np.asarray(ds["HLT_mu"].array())})
    assert stored() - before < before / 4


def test_columns_that_some_events_lack_are_missing_there(place: str) -> None:
    forebay.write(place, {"run": [1, 1], "HLT_a": [True, False], "x": [1.5, 2.5], "j": ak.Array([[1], []])})
    ds = forebay.append(place, {"run": [2], "HLT_b": [True]})
    read = ds.arrays()
    assert read.run.to_list() == [1, 1, 2]
    assert read.HLT_a.to_list() == [True, False, False]
    assert read.HLT_b.to_list() == [False, False, True]
    assert read.x.to_list() == [1.5, 2.5, None]
    assert read.j.to_list() == [[1], [], None]
    with pytest.raises(forebay.Conflict, match=r"run.*int64.*float64"):
        forebay.append(place, {"run": [2.5]})


def test_several_arrays_one_after_the_other(place: str) -> None:
    parts = [events(300, seed) for seed in range(3)]
    ds = forebay.write(place, (part for part in parts), table="Skim", facts={"by": "test"})
    assert ds.tables() == ["Skim"]
    assert ds.facts["by"] == "test"
    assert ds["Muon_pt"].array().to_list() == ak.concatenate([part["Muon_pt"] for part in parts]).to_list()
    record = forebay.open(place).arrays()
    again = forebay.write(f"{place}-again", record)
    assert again.keys() == list(parts[0])


def test_a_wrong_call_says_what_is_wrong(ds: forebay.Dataset, place: str) -> None:
    with pytest.raises(KeyError, match="no column 'Muon_ptt'; near: Muon_pt"):
        ds["Muon_ptt"]
    with pytest.raises(forebay.NoColumn, match="near: Muon_pt"):
        ds.arrays(["Muon_ptt"])
    with pytest.raises(KeyError, match="Tau"):
        ds.arrays("Tau_*")
    with pytest.raises(forebay.NoColumn, match="near: Muon_pt"):
        ds.replace({"muon_pt": np.zeros(2000)})
    with pytest.raises(forebay.Conflict, match="dataset already"):
        forebay.write(place, {"x": [1]})
    with pytest.raises(forebay.Conflict, match="event is there already"):
        ds.add({"event": np.zeros(2000)})
    with pytest.raises(forebay.Invalid, match="1999"):
        ds.add({"short": np.zeros(1999)})
    with pytest.raises(forebay.Invalid, match="y has 2 events"):
        forebay.append(place, {"x": [1], "y": [1, 2]})
    with pytest.raises(ValueError, match="no table Rums; there is Events"):
        ds.table("Rums")
    with pytest.raises(forebay.Invalid, match="no dataset"):
        forebay.open(f"{place}-nowhere")
    with pytest.raises(forebay.Invalid, match="http"):
        forebay.open("http://somewhere")
    assert len(ds.versions()) == len(forebay.open(place).versions())


def test_every_kind_of_error_is_a_class(ds: forebay.Dataset) -> None:
    kinds = ["Invalid", "Conflict", "Full", "Unavailable", "Fenced", "OutcomeUnknown", "Corrupt", "Closed", "Internal"]
    for kind in kinds:
        assert issubclass(getattr(forebay, kind), forebay.Error)


def test_a_damaged_byte_is_named(ds: forebay.Dataset) -> None:
    largest = max((path for path in Path(ds.url).rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)
    content = bytearray(largest.read_bytes())
    content[len(content) // 2] ^= 1
    largest.write_bytes(content)
    with pytest.raises(forebay.Corrupt, match="batch"):
        forebay.open(ds.url).arrays()


def test_work_items_are_small_and_can_be_sent(ds: forebay.Dataset) -> None:
    parts = ds.partitions()
    assert [(part.number, part.entry_start, part.num_entries) for part in parts] == [
        (0, 0, 512),
        (1, 512, 512),
        (2, 1024, 512),
        (3, 1536, 464),
    ]
    sent = pickle.dumps(parts[1])
    assert len(sent) < 500
    part = pickle.loads(sent)
    assert part.arrays("event").event.to_list() == list(range(512, 1024))
    again = pickle.loads(pickle.dumps(ds))
    assert (again.url, again.version, again.keys()) == (ds.url, ds.version, ds.keys())


def total(part: forebay.Partition) -> float:
    return float(ak.sum(part.arrays("Muon_pt").Muon_pt))


def test_it_works_in_forked_processes(ds: forebay.Dataset) -> None:
    expected = float(ak.sum(ds["Muon_pt"].array(0, 512)))
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(total, ds.partitions())[0] == expected
    # A dataset that is open is used by the child too.
    child = os.fork()
    if child == 0:
        same = float(ak.sum(ds["Muon_pt"].array(0, 512))) == expected and len(ds.arrays()) == 2000
        os._exit(0 if same else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_work_items_run_on_dask(ds: forebay.Dataset) -> None:
    with distributed.Client(n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50) as client:
        sums = client.gather(client.map(total, ds.partitions()))
    assert sum(sums) == pytest.approx(float(ak.sum(ds["Muon_pt"].array())))


def test_a_version_is_compacted_and_the_dead_are_removed(ds: forebay.Dataset) -> None:
    before = ds.arrays()
    forebay.compact(ds.url)
    compacted = forebay.open(ds.url)
    assert compacted.version == 1
    assert ak.array_equal(compacted.arrays(), before)
    alive, committed, removed, _ = forebay.gc(ds.url, 3600)
    assert not removed
    assert ak.array_equal(ds.arrays(), before)
    del alive, committed
