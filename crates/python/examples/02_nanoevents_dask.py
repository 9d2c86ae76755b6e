"""A coffea processor on Dask: the same code as for ROOT files, one work item for each batch of the dataset.

    python 02_nanoevents_dask.py NanoAODv5_sample.root /tmp/nano

Needs the extras `root`, `nano` and `dask`.
"""

import sys
import warnings

import awkward as ak
import hist
from coffea import processor
from coffea.nanoevents import NanoAODSchema
from distributed import Client

import forebay


class Dimuons(processor.ProcessorABC):
    """Mass of pairs of muons."""

    def process(self, events):
        """Counts the events of a batch, and fills the masses."""
        muons = events.Muon[(events.Muon.pt > 5) & (abs(events.Muon.eta) < 2.4)]
        pairs = muons[ak.num(muons) == 2]
        mass = (pairs[:, 0] + pairs[:, 1]).mass
        return {"events": len(events), "mass": hist.Hist.new.Reg(30, 0, 150, name="mass").Int64().fill(mass)}

    def postprocess(self, accumulator):
        """The sum is the result."""
        return accumulator


if __name__ == "__main__":
    # Of coffea: cross references of the sample that lead nowhere.
    warnings.simplefilter("ignore", RuntimeWarning)
    source, place = sys.argv[1:3]
    ds = forebay.import_root(source, place, columns=["run", "luminosityBlock", "event", "*Muon*"], batch_events=256)
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=None) as client:
        run = forebay.Runner(
            executor=processor.DaskExecutor(client=client, status=False), schema=NanoAODSchema, savemetrics=True
        )
        # `preload=True` finds out what the processor touches, and fetches it in one go for each batch.
        out, metrics = run({"sample": place}, Dimuons(), preload=True)
    print(f"{out['events']} events in {len(ds.partitions())} batches, {out['mass'].sum():.0f} pairs")
    print(f"{metrics['bytesread']} bytes read of {sum(ds.stored_bytes().values())}; columns: {metrics['columns']}")
    assert out["events"] == ds.num_entries
    assert out["mass"].sum() > 50, "the sample has pairs of muons"
