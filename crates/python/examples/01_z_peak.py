"""The Z peak from a ROOT file: import once, then read the columns of muons and nothing else.

    python 01_z_peak.py uproot-HZZ.root /tmp/hzz

Needs the extra `root`.
"""

import sys

import awkward as ak
import numpy as np

import forebay

source, place = sys.argv[1:3]
ds = forebay.import_root(source, place, progress=False)
ds.show("Muon*")

muons = ds.arrays(["Muon_Px", "Muon_Py", "Muon_Pz", "Muon_E", "Muon_Charge"])
pairs = muons[ak.num(muons.Muon_E) == 2]
pairs = pairs[ak.sum(pairs.Muon_Charge, axis=1) == 0]
energy, px, py, pz = (ak.sum(pairs[f"Muon_{part}"], axis=1) for part in ("E", "Px", "Py", "Pz"))
mass = np.sqrt(ak.to_numpy(energy**2 - px**2 - py**2 - pz**2))

counts, edges = np.histogram(mass, bins=24, range=(60, 120))
for count, low in zip(counts, edges, strict=False):
    print(f"{low:6.1f} GeV {count:4d} {'#' * int(count // 2)}")
peak = edges[counts.argmax()] + (edges[1] - edges[0]) / 2
print(f"{len(mass)} pairs, peak at {peak:.1f} GeV; {ds.bytes_read} bytes read in {ds.requests} requests")
assert 88 < peak < 94, "the peak is at the mass of the Z"
