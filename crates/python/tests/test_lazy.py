"""Lazy arrays, NanoEvents and the Runner."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import awkward as ak
import hist
import numpy as np
import pytest
from coffea import processor
from coffea.nanoevents import NanoAODSchema, NanoEventsFactory, PHYSLITESchema
from coffea.nanoevents.trace import trace

import forebay
from conftest import real_file
from test_types import nested, scalars

NANO, PHYSLITE = "NanoAODv5_sample.root", "PHYSLITE_example.root"


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        # Of coffea: branches of the sample files that it knows nothing of.
        warnings.simplefilter("ignore", RuntimeWarning)
        warnings.simplefilter("ignore", UserWarning)
        yield


def test_a_lazy_array_is_the_array(place: str) -> None:
    ds = forebay.write(place, {**scalars(), **nested(), "half": np.ones(300, np.float16)}, batch_events=256)
    lazy = ds.lazy()
    for name in ds:
        assert ak.array_equal(lazy[name], ds[name].array(), equal_nan=True), name
    part = forebay.lazy(ds, entry_start=200, entry_stop=280, filter_name="jagged")
    assert part.jagged.to_list() == ds["jagged"].array(200, 280).to_list()


def test_a_lazy_array_reads_what_is_touched(imported: Callable[[str], str]) -> None:
    ds = forebay.open(imported(NANO))
    lazy = ds.lazy()
    before = ds.requests, ds.bytes_read
    assert before[0] <= 2
    pt = ak.sum(lazy.Muon_pt)
    # The directory of the batch, counts, and values.
    assert ds.requests - before[0] <= 3
    own = sum(ds.stored_bytes(["nMuon", "Muon_pt"]).values())
    after = ds.bytes_read
    assert own < after - before[1] < own + 6000
    assert ak.sum(lazy.Muon_pt) == pt
    assert ds.bytes_read == after


def analysis(events: Any) -> list[Any]:
    """Columns, cross references and vectors."""
    pair = events.Muon[ak.num(events.Muon) >= 2][:, :2]
    return [
        events.Muon.pt,
        events.Muon.matched_jet.pt,
        (pair[:, 0] + pair[:, 1]).mass,
        events.GenPart.children.pt,
        events.HLT.IsoMu24,
        events.MET.pt,
    ]


def sums(events: Any) -> list[Any]:
    """One number of each."""
    return [ak.sum(column) for column in analysis(events)]


def test_nanoevents_are_those_of_the_root_file(imported: Callable[[str], str]) -> None:
    ds = forebay.open(imported(NANO))
    log: list[Any] = []
    events = forebay.nanoevents(ds, metadata={"dataset": "sample"}, access_log=log)
    source = f"{real_file(NANO)}:Events"
    expected = NanoEventsFactory.from_root(source, schemaclass=NanoAODSchema, metadata={"dataset": "sample"}).events()
    assert events.metadata == expected.metadata
    assert events.fields == expected.fields
    assert all(events[name].fields == expected[name].fields for name in expected.fields)
    assert not log
    assert events.Muon.pt.__doc__ == "pt"
    for ours, theirs in zip(analysis(events), analysis(expected), strict=True):
        assert ours.type == theirs.type
        assert ak.array_equal(ours, theirs, equal_nan=True)
    again = pickle.loads(pickle.dumps(events.attrs["@events_factory"])).events()
    assert ak.array_equal(again.Muon.pt, expected.Muon.pt)


def test_few_columns_are_loaded(imported: Callable[[str], str]) -> None:
    ds = forebay.open(imported(NANO))
    log: list[Any] = []
    events = forebay.nanoevents(ds, access_log=log)
    before = ds.requests
    ak.sum(events.Muon.pt)
    assert {accessed.branch for accessed in log} == {"nMuon", "Muon_pt"}
    assert ds.requests - before <= 3


def test_what_a_function_touches_is_read_together(imported: Callable[[str], str]) -> None:
    one_by_one, together = forebay.open(imported(NANO)), forebay.open(imported(NANO))
    expected = sums(forebay.nanoevents(one_by_one))
    events = forebay.nanoevents(together, preload=sums)
    requests = together.requests
    assert sums(events) == expected
    assert together.requests == requests < one_by_one.requests
    assert {"Muon_pt", "HLT_IsoMu24"} <= trace(sums, events)


def test_physlite(imported: Callable[[str], str]) -> None:
    ds = forebay.open(imported(PHYSLITE))
    events = forebay.nanoevents(ds, schemaclass=PHYSLITESchema)
    source = f"{real_file(PHYSLITE)}:CollectionTree"
    expected = NanoEventsFactory.from_root(source, schemaclass=PHYSLITESchema).events()
    assert set(events.fields) == set(expected.fields)
    before = ds.bytes_read
    assert ak.array_equal(events.Electrons.pt, expected.Electrons.pt)
    # Offsets of the collection are those of another column, whose values are not read.
    assert ds.bytes_read - before < sum(ds.stored_bytes("AnalysisElectronsAuxDyn.*").values())
    for columns in (
        lambda events: events.Electrons.trackParticles.z0,
        lambda events: events.Electrons.TruthLink.m_persIndex,
        lambda events: events.Muons.pt,
        lambda events: events.Jets.m,
    ):
        assert ak.array_equal(columns(events), columns(expected), equal_nan=True)  # type: ignore[no-untyped-call]


def test_columns_that_nanoevents_cannot_hold_are_named(place: str) -> None:
    forebay.write(place, {"run": [1], "luminosityBlock": [1], "event": [1], "x": [1.5]})
    forebay.append(place, {"run": [1], "luminosityBlock": [1], "event": [2]})
    with pytest.warns(UserWarning, match="1 columns are left out.*: x"):
        events = forebay.nanoevents(place)
    assert "x" not in events.fields
    assert events.event.to_list() == [1, 2]


class MuonPt(processor.ProcessorABC):  # type: ignore[misc]
    """A histogram of all muons, and the number of events."""

    def process(self, events: Any) -> Any:
        pt = hist.Hist.new.Reg(20, 0, 100).Int64().fill(ak.flatten(events.Muon.pt))
        return {"pt": pt, "events": len(events), "batches": 1, "names": {events.metadata["dataset"]}}

    def postprocess(self, accumulator: Any) -> Any:
        return accumulator


@pytest.fixture(scope="module")
def batches(imported: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory) -> str:
    """The sample in batches."""
    real_file(NANO)
    url = str(tmp_path_factory.mktemp("batches") / "dataset")
    columns = ["run", "luminosityBlock", "event", "*Muon*"]
    forebay.import_root(real_file(NANO), url, columns=columns, batch_events=256)
    return url


def expected_pt() -> Any:
    events = NanoEventsFactory.from_root(f"{real_file(NANO)}:Events", schemaclass=NanoAODSchema).events()
    return hist.Hist.new.Reg(20, 0, 100).Int64().fill(ak.flatten(events.Muon.pt))


@pytest.mark.parametrize("preload", [False, True])
def test_a_runner_has_one_item_a_batch(batches: str, preload: bool) -> None:
    run = forebay.Runner(executor=processor.IterativeExecutor(status=False), schema=NanoAODSchema, savemetrics=True)
    result = run({"a": batches, "b": {"url": batches, "version": 0}}, MuonPt(), preload=preload)
    out, metrics = result if isinstance(result, tuple) else (result["out"], result["metrics"])
    assert (out["events"], out["batches"], out["names"]) == (2000, 8, {"a", "b"})
    assert out["pt"] == expected_pt() * 2
    assert set(metrics["columns"]) == {"nMuon", "Muon_pt"}
    with pytest.raises(forebay.Invalid, match="files"):
        run({"a": {"files": [batches]}}, MuonPt())


def test_a_runner_on_processes(batches: str) -> None:
    # On Dask: the example 02, whose workers have coffea to import.
    executor = processor.FuturesExecutor(workers=2, status=False)
    result = forebay.Runner(executor=executor, schema=NanoAODSchema)({"a": batches}, MuonPt())
    out = result.get("out", result)
    assert (out["events"], out["batches"], out["pt"]) == (1000, 4, expected_pt())
