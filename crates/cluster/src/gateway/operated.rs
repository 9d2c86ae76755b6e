//! What experts do: changes of runs by orders, reports of all nodes, devices of this node.

use super::{Both, Gateway};
use forebay_core::{
    Attributes, Bounds, ConflictInfo, ContainerStatus, DebugInfo, Either, EventInfo, HoldInfo, Key, LedgerBy,
    LedgerRow, Marks, OperatedStore, PrescaleFactor, Primary, Released, Result, RunSummary, Sampling, SegmentInfo,
    Source, SourceStatus, Sources, Token, Why,
};
use forebay_store::Store;
use forebay_wire::Control;
use std::path::Path;

impl OperatedStore for Gateway {
    type Watch = <Store as OperatedStore>::Watch;
    type Sampler = <Both as OperatedStore>::Sampler;

    fn events(&self, bounds: &Bounds) -> Result<Vec<EventInfo>> {
        self.everywhere(|all| all.events(bounds))
    }
    fn update_attributes(&self, primary: &Primary, attributes: &Attributes, token: Option<&Token>) -> Result<()> {
        self.at_home(primary.as_bytes(), |at| at.update_attributes(primary, attributes, token))
    }
    fn release_range(&self, bounds: &Bounds, stream: Option<&str>, after: Option<&Primary>) -> Result<Released> {
        self.everywhere(|all| all.release_range(bounds, stream, after))
    }
    fn replay(&self, primary: &Primary) -> Result<bool> {
        self.at_home(primary.as_bytes(), |at| at.replay(primary))
    }
    fn outputs(&self, primary: &Primary) -> Result<Option<Vec<(String, Sources)>>> {
        self.at_home(primary.as_bytes(), |at| at.outputs(primary))
    }
    fn why(&self, key: &Key) -> Result<Why> {
        self.at_home(self.primary_of(key), |at| at.why(key))
    }

    fn run_pause(&self, run: u64) -> Result<()> {
        self.order(Control::RunPause { run }, |own| own.run_pause(run))
    }
    fn run_resume(&self, run: u64) -> Result<()> {
        self.order(Control::RunResume { run }, |own| own.run_resume(run))
    }
    fn run_summary(&self, run: u64) -> Result<RunSummary> {
        self.everywhere(|all| all.run_summary(run))
    }
    fn ledger_by(&self, run: u64, by: LedgerBy) -> Result<Vec<LedgerRow>> {
        self.everywhere(|all| all.ledger_by(run, by))
    }
    fn sources(&self, run: u64) -> Result<Vec<SourceStatus>> {
        self.everywhere(|all| OperatedStore::sources(all, run))
    }
    fn mask(&self, run: u64, source: &Source, from: Option<&Primary>) -> Result<()> {
        let order = Control::Mask { run, source: source.clone(), from: from.copied(), set: true };
        self.order(order, |own| own.mask(run, source, from))
    }
    fn unmask(&self, run: u64, source: &Source, from: Option<&Primary>) -> Result<()> {
        let order = Control::Mask { run, source: source.clone(), from: from.copied(), set: false };
        self.order(order, |own| own.unmask(run, source, from))
    }
    fn prescale(&self, run: u64, name: &str, factor: PrescaleFactor, from: Option<&Primary>) -> Result<()> {
        let order = Control::Prescale { run, name: name.to_owned(), factor, from: from.copied() };
        self.order(order, |own| own.prescale(run, name, factor, from))
    }
    fn hold(&self, run: Option<u64>, conditions: &[&str]) -> Result<u32> {
        let order = Control::Hold { run, conditions: conditions.iter().map(|&one| one.to_owned()).collect() };
        self.order(order, |own| own.hold(run, conditions))
    }
    fn release_hold(&self, id: u32) -> Result<bool> {
        self.order(Control::ReleaseHold { id }, |own| own.release_hold(id))
    }
    fn drain_device(&self, device: u32) -> Result<()> {
        self.own.drain_device(device)
    }
    fn undo_drain(&self, device: u32) -> Result<()> {
        self.own.undo_drain(device)
    }
    fn exchange_device(&self, device: u32, to: &Path) -> Result<()> {
        self.own.exchange_device(device, to)
    }
    fn add_device(&self, to: &Path, bytes: Option<u64>) -> Result<()> {
        self.own.add_device(to, bytes)
    }
    fn holds(&self) -> Result<Vec<HoldInfo>> {
        self.everywhere(OperatedStore::holds)
    }

    fn debug_events(&self) -> Result<Vec<DebugInfo>> {
        self.everywhere(OperatedStore::debug_events)
    }
    fn conflicts(&self) -> Result<Vec<ConflictInfo>> {
        self.everywhere(OperatedStore::conflicts)
    }
    fn losses(&self) -> Result<Vec<String>> {
        self.everywhere(OperatedStore::losses)
    }
    fn segments(&self) -> Result<Vec<SegmentInfo>> {
        OperatedStore::segments(&self.own)
    }
    fn containers(&self) -> Result<Vec<ContainerStatus>> {
        OperatedStore::containers(&self.own)
    }
    fn marks(&self) -> Result<Marks> {
        OperatedStore::marks(&self.own)
    }

    /// Runs and samples are followed at this node.
    fn watch(&self, run: u64) -> Result<Self::Watch> {
        self.own.watch(run)
    }
    fn sampler(&self, sampling: &Sampling) -> Result<Self::Sampler> {
        self.own.sampler(sampling).map(Either::Here)
    }
}
