"""What the tests share: places for datasets, the real files, and comparison bit by bit."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import forebay

REAL_FILES = (
    "uproot-HZZ.root",
    "nanoAOD_2015_CMS_Open_Data_ttbar.root",
    "NanoAODv5_sample.root",
    "PHYSLITE_example.root",
)
DATA = Path(os.environ.get("FOREBAY_DATA") or Path(__file__).parents[3].parent / "shared" / "data")


def real_file(name: str) -> Path:
    """The path of a real file; without it the test reports `not run`."""
    path = DATA / name
    if not path.exists():
        pytest.skip(f"not run: no {name} in {DATA} (FOREBAY_DATA names another folder)")
    return path


@pytest.fixture
def place(tmp_path: Path) -> str:
    """A place for a dataset."""
    return str(tmp_path / "dataset")


@pytest.fixture(scope="session")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """The place of a dataset made from a real file."""
    places: dict[str, str] = {}

    def one(name: str) -> str:
        if name not in places:
            url = str(tmp_path_factory.mktemp("imported") / "dataset")
            forebay.import_root(real_file(name), url)
            places[name] = url
        return places[name]

    return one
