"""ROOT files in and out."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import awkward as ak
import numpy as np
import pytest
import uproot

import forebay
from conftest import REAL_FILES, real_file
from helpers import same_bits


@pytest.mark.parametrize("name", REAL_FILES)
def test_a_real_file_is_imported_column_by_column(name: str, imported: Callable[[str], str]) -> None:
    ds = forebay.open(imported(name))
    with uproot.open(real_file(name)) as file:
        source = ds.facts["sources"][0]
        assert source["uuid"] == str(file.file.uuid)
        assert source["events"] == ds.num_entries
        tree = file[source["tree"]]
        paths = tree.keys(recursive=True, full_paths=True)
        skipped = {said["name"] for said in ds.facts.get("skipped", [])}
        leaves = {path for path in paths if type(tree[path].interpretation).__name__ != "AsGrouped"}
        assert set(ds) | skipped >= leaves
        assert not set(ds) & skipped
        expected = tree.arrays(ds.keys(), how=dict)
        read = ds.arrays(how="dict")
        for column in ds:
            assert same_bits(read[column], expected[column]), column
            said = ds[column]
            assert isinstance(said, forebay.Column)
            assert said.title == tree[column].title
            assert said.source_typename == tree[column].typename


def test_counters_and_objects_are_kept(imported: Callable[[str], str]) -> None:
    ds = forebay.open(imported("NanoAODv5_sample.root"))
    column = ds["Muon_pt"]
    assert isinstance(column, forebay.Column)
    assert column.counter == "nMuon"
    assert ds.facts["objects"] == [{"class": "TObjString", "name": "untagged", "text": "untagged"}]
    # Counts are stored once: a column of one value a muon takes less than its values and counts.
    assert ds.stored_bytes("Muon_charge")["Muon_charge"] < 1000


def test_split_objects_are_kept_once_and_have_both_names(imported: Callable[[str], str]) -> None:
    ds = forebay.open(imported("PHYSLITE_example.root"))
    link = "AnalysisElectronsAuxDyn.TruthLink"
    group = ds[link]
    assert isinstance(group, forebay.Group)
    with uproot.open(real_file("PHYSLITE_example.root")) as file:
        expected = file["CollectionTree"][link].array()
    assert group.array().fields == expected.fields
    assert ak.array_equal(group.array(), expected, check_parameters=False)
    leaf = ds[f"{link}.m_persKey"]
    assert isinstance(leaf, forebay.Column)
    assert leaf.name == f"{link}/{link}.m_persKey"
    assert link not in ds.keys()
    assert len(ds.facts["skipped"]) == 483
    assert {"table", "name", "type", "reason"} == set(ds.facts["skipped"][0])


@pytest.fixture
def two_files(tmp_path: Path) -> list[Path]:
    """Files of two runs: the second one has another trigger and an older collection less."""
    paths = []
    for run in (1, 2):
        path = tmp_path / f"run{run}.root"
        with uproot.recreate(path) as file:
            pt = ak.Array([[10.0 * run, 5.0], [], [7.5]])
            branches = {
                "run": np.full(3, run, np.uint32),
                "event": np.arange(3, dtype=np.uint64),
                "Muon": ak.zip({"pt": ak.values_astype(pt, np.float32), "charge": ak.values_astype(pt > 6, np.int32)}),
                f"HLT_{run}": np.array([True, False, True]),
            }
            if run == 1:
                branches["Tau"] = ak.zip({"pt": ak.values_astype(pt, np.float32)})
            file.mktree(
                "Events",
                {
                    name: array.dtype if isinstance(array, np.ndarray) else array.type
                    for name, array in branches.items()
                },
            )
            file["Events"].extend(branches)
            file.mktree("Runs", {"run": "uint32", "genEventCount": "int64"})
            file["Runs"].extend({"run": np.array([run], np.uint32), "genEventCount": np.array([300 * run])})
        paths.append(path)
    return paths


def test_several_files_become_one_table(two_files: list[Path], place: str) -> None:
    said: list[tuple[int, int, int]] = []
    ds = forebay.import_root(two_files, place, progress=lambda *numbers: said.append(numbers))
    assert said[-1] == (2, 2, 6)
    assert ds.tables() == ["Events", "Runs"]
    read = ds.arrays()
    assert read.run.to_list() == [1, 1, 1, 2, 2, 2]
    assert read.Muon_pt.to_list() == [[10, 5], [], [7.5], [20, 5], [], [7.5]]
    assert read.nMuon.to_list() == [2, 0, 1] * 2
    assert read.HLT_1.to_list() == [True, False, True, False, False, False]
    assert read.HLT_2.to_list() == [False, False, False, True, False, True]
    assert read.Tau_pt.to_list() == [[10, 5], [], [7.5], None, None, None]
    assert ds.table("Runs").arrays().genEventCount.to_list() == [300, 600]
    assert [source["events"] for source in ds.facts["sources"]] == [3, 3]
    more = forebay.import_root(two_files[1:], place, append=True)
    assert (more.version, len(more), len(more.table("Runs")), len(more.facts["sources"])) == (1, 9, 3, 3)


def test_columns_are_chosen_at_import(two_files: list[Path], place: str) -> None:
    ds = forebay.import_root(two_files[0], place, columns=["*Muon*", "run"], side_trees=False)
    assert (ds.keys(), ds.tables()) == (["run", "nMuon", "Muon_pt", "Muon_charge"], ["Events"])
    with pytest.raises(KeyError, match="Mouon"):
        forebay.import_root(two_files[0], f"{place}-2", columns="Mouon*")


def test_small_steps_are_the_same(imported: Callable[[str], str], place: str) -> None:
    ds = forebay.import_root(real_file("uproot-HZZ.root"), place, step_bytes=50_000, batch_events=256)
    assert len(ds.partitions()) == 10
    whole = forebay.open(imported("uproot-HZZ.root")).arrays()
    assert ak.array_equal(ds.arrays(), whole)


def test_types_that_differ_are_named_with_the_file(tmp_path: Path, place: str) -> None:
    for name, kind in (("a", "float32"), ("b", "float64")):
        with uproot.recreate(tmp_path / f"{name}.root") as file:
            file.mktree("Events", {"x": kind})
            file["Events"].extend({"x": np.arange(3, dtype=kind)})
    with pytest.raises(forebay.Conflict, match=r"x .*float32.*float64|x .*float64.*float32"):
        forebay.import_root([tmp_path / "a.root", tmp_path / "b.root"], place)
    with pytest.raises(forebay.Invalid, match="no dataset"):
        forebay.open(place)


def test_a_file_that_is_none_is_named(tmp_path: Path, place: str, two_files: list[Path]) -> None:
    with pytest.raises(forebay.Invalid, match=r"nothere\.root"):
        forebay.import_root([two_files[0], tmp_path / "nothere.root"], place)
    (tmp_path / "text.root").write_text("no ROOT file")
    with pytest.raises(forebay.Invalid, match=r"text\.root"):
        forebay.import_root(tmp_path / "text.root", place)
    with pytest.raises(forebay.Invalid, match=r"no tree 'Trees'; there is"):
        forebay.import_root(two_files[0], place, tree="Trees")


def test_rntuple_out_and_in(place: str, tmp_path: Path) -> None:
    columns = {
        "x": np.array([1.5, -0.0, np.nan], np.float32),
        "n": np.array([-1, 2, 3], np.int8),
        "flag": np.array([True, False, True]),
        "j": ak.values_astype(ak.Array([[1, 2], [], [3]]), np.uint16),
        "jj": ak.Array([[[1.5], []], [], [[2.5, 3]]]),
        "text": ak.Array(["a", "", "µ"]),
        "option": ak.Array([None, 1.5, 2]),
        "fixed": np.arange(6, dtype=np.float32).reshape(3, 2),
        "records": ak.Array([[{"a": 1, "b": [1.5]}], [], [{"a": 2, "b": []}]]),
    }
    ds = forebay.write(place, columns)
    ds = forebay.append(place, columns)
    ds.to_root(tmp_path / "out.root")
    again = forebay.import_root(tmp_path / "out.root", f"{place}-again")
    read, expected = again.arrays(how="dict"), ds.arrays(how="dict")
    # uproot sorts the fields of an RNTuple by their names.
    assert set(read) == set(expected)
    for name in expected:
        assert same_bits(read[name], expected[name]), name


def test_what_an_rntuple_lacks_is_refused_by_name(place: str, tmp_path: Path) -> None:
    ds = forebay.write(place, {"half": np.array([1, 2], np.float16), "raw": ak.Array([b"ab", b""])})
    for name in ("half", "raw"):
        with pytest.raises(forebay.Invalid, match=f"column {name}: .*widen=True"):
            ds.to_root(tmp_path / "out.root", [name])
    ds.to_root(tmp_path / "out.root", widen=True)
    again = forebay.import_root(tmp_path / "out.root", f"{place}-again").arrays()
    assert again.half.to_list() == [1, 2]
    assert again.raw.to_list() == [[97, 98], []]


def test_an_interrupted_import_leaves_nothing_half(place: str) -> None:
    path = real_file("NanoAODv5_sample.root")
    # Far more than can be read before the signal comes, which is sent at the first events.
    script = f"""
        import forebay
        said = lambda done, files, events: print("reading", flush=True) if events else None
        forebay.import_root([{str(path)!r}] * 500, {place!r}, progress=said)
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        assert child.stdout.readline() == "reading\n"
        child.send_signal(signal.SIGINT)
        errors = child.stderr.read()
        assert child.wait() == -signal.SIGINT
    assert "KeyboardInterrupt" in errors
    assert not os.path.exists(f"{place}/root")
    with pytest.raises(forebay.Invalid, match="no dataset"):
        forebay.open(place)
    # The same place takes the repeat.
    assert len(forebay.import_root(path, place)) == 1000
