"""A new version of one column: the others are not copied, and both versions can be compared.

    python 03_replace_a_column.py uproot-HZZ.root /tmp/hzz

Needs the extra `root`.
"""

import sys
from pathlib import Path

import awkward as ak
import numpy as np

import forebay


def stored(place):
    """Bytes of all files of a dataset in a directory."""
    return sum(path.stat().st_size for path in Path(place).rglob("*") if path.is_file())


source, place = sys.argv[1:3]
old = forebay.import_root(source, place, progress=False)
before = stored(place)

scale = np.float32(1.002)
new = old.replace({"Muon_E": old["Muon_E"].array() * scale}, note="muon energy scale of May")
new = new.add({"weight": np.ones(len(new), np.float32)}, titles={"weight": "weight of the event"})
print(f"{before} bytes, and {stored(place) - before} more for two versions")

for version in new.versions():
    print(version.version, version.time.isoformat(timespec="seconds"), version.note)
ratio = ak.sum(new["Muon_E"].array()) / ak.sum(new.at(0)["Muon_E"].array())
print(f"energy now and before: {ratio:.4f}")
assert abs(ratio - scale) < 1e-4, "the new version has the new energies, the old one the old ones"
assert ak.array_equal(new["Muon_Px"].array(), old["Muon_Px"].array())
