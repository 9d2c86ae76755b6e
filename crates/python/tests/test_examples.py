"""Every example runs to its end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from conftest import real_file

EXAMPLES = Path(__file__).parents[1] / "examples"
SOURCES = {
    "01_z_peak.py": "uproot-HZZ.root",
    "02_nanoevents_dask.py": "NanoAODv5_sample.root",
    "03_replace_a_column.py": "uproot-HZZ.root",
}


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.py")))
def test_an_example_runs(name: str, tmp_path: Path) -> None:
    source = real_file(SOURCES[name])
    command = [sys.executable, str(EXAMPLES / name), str(source), str(tmp_path / "dataset")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
