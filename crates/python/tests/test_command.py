"""The commands that `forebay dataset` calls."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import forebay
from conftest import real_file
from forebay.__main__ import KINDS, main


def test_files_come_in_and_go_out(place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = str(real_file("uproot-HZZ.root"))
    assert main(["import", place, source, "--columns=Muon_*", "--columns=NMuon", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["events"], said["version"], said["skipped"]) == (2421, 0, [])
    forebay.write(f"{place}-w", {"weight": np.arange(2421.0)}).to_parquet(tmp_path / "w.parquet")
    assert main(["add", place, str(tmp_path / "w.parquet")]) == 0
    assert "2421 events" in capsys.readouterr().out
    assert forebay.open(place)["weight"].array()[-1] == 2420
    for name in ("out.root", "out.parquet"):
        assert main(["export", place, str(tmp_path / name), "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["bytes"] == (tmp_path / name).stat().st_size
        assert main(["import", f"{place}-{name}", str(tmp_path / name)]) == 0
        capsys.readouterr()
        assert set(forebay.open(f"{place}-{name}")) == set(forebay.open(place))


def test_an_error_is_one_line_and_a_code(place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    forebay.write(place, {"x": [1]})
    (tmp_path / "a.root").write_text("none")
    assert main(["import", f"{place}-2", str(tmp_path / "a.root")]) == KINDS[forebay.Invalid][0]
    assert capsys.readouterr().err.count("\n") == 1
    assert main(["import", place, str(tmp_path / "a.root"), "--json"]) == KINDS[forebay.Conflict][0]
    assert json.loads(capsys.readouterr().err)["error"]["kind"] == "Conflict"
    assert main(["export", f"{place}-2", str(tmp_path / "b.root")]) == KINDS[forebay.Invalid][0]
    assert main(["import", f"{place}-3", "a.root", "b.parquet"]) == KINDS[forebay.Invalid][0]
