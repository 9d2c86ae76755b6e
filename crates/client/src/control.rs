//! Rare calls: runs, masks, holds, accounts, and reports for people.

use crate::client::Client;
use crate::pool::Calls;
use crate::put::NO_WAIT;
use crate::retry::unknown;
use forebay_core::{
    Bounds, Claim, ClaimRequest, ClaimedEvent, ConflictInfo, ContainerStatus, DebugInfo, Error, HoldInfo, Key, Kind,
    Ledger, LedgerBy, LedgerRow, Marks, MovedStore, PrescaleFactor, Primary, Released, Result, RunConfig, RunStatus,
    RunSummary, SegmentInfo, Source, SourceStatus, Sources, Stats, Token, Why,
};
use forebay_wire::{Control, FrameKind, bounds_of};
use serde::de::DeserializeOwned;
use std::path::Path;
use std::time::Duration;

/// A control as the meta of a frame.
pub(crate) fn encode(control: &Control) -> Result<Vec<u8>> {
    serde_json::to_vec(control).map_err(|error| Error::internal("a control cannot be written").with_source(error))
}

/// The answer to a control.
pub(crate) fn decode<T: DeserializeOwned>(meta: &[u8]) -> Result<T> {
    serde_json::from_slice(meta)
        .map_err(|error| Error::corrupt(format!("an answer that is not understood: {error}")).with_source(error))
}

/// A path as the wire has it.
fn sent_path(path: &Path) -> Result<String> {
    let text = path.to_str().ok_or_else(|| Error::invalid(format!("{}: a path is sent as UTF-8", path.display())))?;
    Ok(text.to_owned())
}

impl Calls<'_> {
    /// Makes a control; answers what the server did, and whether that is the answer to a repeat.
    pub(crate) fn control<T: DeserializeOwned>(&self, control: &Control) -> Result<(T, bool)> {
        let meta = encode(control)?;
        self.call(control.repeat(), NO_WAIT, |connection, is_repeat| {
            let request = connection.send(FrameKind::Control, &meta, &[])?;
            Ok((connection.answer(request, |meta| Ok((decode(meta)?, 0)))?.said, is_repeat))
        })
    }
}

impl Client {
    fn look<T: DeserializeOwned>(&self, control: &Control) -> Result<T> {
        Ok(self.calls().control(control)?.0)
    }

    /// Makes a control that has the same effect once or several times.
    fn order(&self, control: &Control) -> Result<()> {
        self.calls().control::<()>(control).map(|_| ())
    }

    /// Opens a run.
    ///
    /// # Errors
    /// As `Store::run_open`, and `OutcomeUnknown`.
    pub fn run_open(&self, run: u64, config: &RunConfig) -> Result<()> {
        self.keyspace().check_run(config)?;
        self.order(&Control::RunOpen { run, config: config.to_toml(self.schema())? })
    }

    /// The waiting time of open events does not run.
    ///
    /// # Errors
    /// As `Store::run_pause`, and `OutcomeUnknown`.
    pub fn run_pause(&self, run: u64) -> Result<()> {
        self.order(&Control::RunPause { run })
    }

    /// A paused run goes on.
    ///
    /// # Errors
    /// As `Store::run_resume`, and `OutcomeUnknown`.
    pub fn run_resume(&self, run: u64) -> Result<()> {
        self.order(&Control::RunResume { run })
    }

    /// A run takes no new events.
    ///
    /// # Errors
    /// As `Store::run_stop`, and `OutcomeUnknown`.
    pub fn run_stop(&self, run: u64) -> Result<()> {
        self.order(&Control::RunStop { run })
    }

    /// The account of a run is final; answers its summary.
    ///
    /// # Errors
    /// As `Store::run_close`; `OutcomeUnknown` where an answer was lost and the run is closed now: [`Client::run_summary`]
    /// has its summary.
    pub fn run_close(&self, run: u64) -> Result<RunSummary> {
        let closed = self.calls().control(&Control::RunClose { run });
        closed.map(|(summary, _)| summary).map_err(|error| match error.kind() {
            // The try without an answer may have closed it: that one's summary is lost.
            Kind::Closed if error.earlier_try_unknown() => unknown(&error).of_repeat(),
            _ => error,
        })
    }

    /// The summary of a run, as it is now or as it was kept at its close.
    ///
    /// # Errors
    /// As `Store::run_summary`, and `Unavailable`.
    pub fn run_summary(&self, run: u64) -> Result<RunSummary> {
        self.look(&Control::RunSummary { run })
    }

    /// All runs that the store knows, with their accounts.
    ///
    /// # Errors
    /// `Unavailable` where the server does not answer in time.
    pub fn runs(&self) -> Result<Vec<RunStatus>> {
        self.look(&Control::Runs)
    }

    /// The account of a run.
    ///
    /// # Errors
    /// As `Store::ledger`, and `Unavailable`.
    pub fn ledger(&self, run: u64) -> Result<Ledger> {
        self.look(&Control::Ledger { run })
    }

    /// The account of a run by stream, by source, or by the attribute that the keyspace names.
    ///
    /// # Errors
    /// As `Store::ledger_by`, and `Unavailable`.
    pub fn ledger_by(&self, run: u64, by: LedgerBy) -> Result<Vec<LedgerRow>> {
        self.look(&Control::LedgerBy { run, by })
    }

    /// Every source of a run.
    ///
    /// # Errors
    /// As `Store::sources`, and `Unavailable`.
    pub fn sources(&self, run: u64) -> Result<Vec<SourceStatus>> {
        self.look(&Control::Sources { run })
    }

    /// Events of this run no longer wait for a source.
    ///
    /// # Errors
    /// As `Store::mask`, and `OutcomeUnknown`.
    pub fn mask(&self, run: u64, source: &Source, from: Option<&Primary>) -> Result<()> {
        self.order(&Control::Mask { run, source: source.clone(), from: from.copied(), set: true })
    }

    /// Events of this run wait for a source again.
    ///
    /// # Errors
    /// As `Store::unmask`, and `OutcomeUnknown`.
    pub fn unmask(&self, run: u64, source: &Source, from: Option<&Primary>) -> Result<()> {
        self.order(&Control::Mask { run, source: source.clone(), from: from.copied(), set: false })
    }

    /// Records a prescale of the trigger.
    ///
    /// # Errors
    /// As `Store::prescale`, and `OutcomeUnknown`.
    pub fn prescale(&self, run: u64, name: &str, factor: PrescaleFactor, from: Option<&Primary>) -> Result<()> {
        self.order(&Control::Prescale { run, name: name.to_owned(), factor, from: from.copied() })
    }

    /// Holds events back; answers the hold's number.
    ///
    /// # Errors
    /// As `Store::hold`; `OutcomeUnknown` where no answer came: a repeat would be another hold.
    pub fn hold(&self, run: Option<u64>, conditions: &[&str]) -> Result<u32> {
        let conditions = conditions.iter().map(|&condition| condition.to_owned()).collect();
        Ok(self.calls().control(&Control::Hold { run, conditions })?.0)
    }

    /// Ends a hold; `false` where there is no such hold.
    ///
    /// # Errors
    /// As `Store::release_hold`, and `OutcomeUnknown`.
    pub fn release_hold(&self, id: u32) -> Result<bool> {
        let (done, is_repeat) = self.calls().control(&Control::ReleaseHold { id })?;
        // After a lost answer the hold is gone, which is what was asked for.
        Ok(done || is_repeat)
    }

    /// Drains a device of the warm level.
    ///
    /// # Errors
    /// As `Store::drain_device`, and `OutcomeUnknown`.
    pub fn drain_device(&self, device: u32) -> Result<()> {
        self.order(&Control::DrainDevice { device, set: true })
    }

    /// A device that is drained takes data again.
    ///
    /// # Errors
    /// As `Store::undo_drain`, and `OutcomeUnknown`.
    pub fn undo_drain(&self, device: u32) -> Result<()> {
        self.order(&Control::DrainDevice { device, set: false })
    }

    /// Gives the place of a drained device to a directory of the server, from the next opening of the store on.
    ///
    /// # Errors
    /// As `Store::exchange_device`, and `OutcomeUnknown`; `Invalid` for a path that is not UTF-8.
    pub fn exchange_device(&self, device: u32, to: &Path) -> Result<()> {
        self.order(&Control::ExchangeDevice { device, to: sent_path(to)? })
    }

    /// Adds a directory of the server as one more device, from the next opening of the store on.
    ///
    /// # Errors
    /// As `Store::add_device`, and `OutcomeUnknown`; `Invalid` for a path that is not UTF-8.
    pub fn add_device(&self, to: &Path, bytes: Option<u64>) -> Result<()> {
        self.order(&Control::AddDevice { to: sent_path(to)?, bytes })
    }

    /// All holds.
    ///
    /// # Errors
    /// `Unavailable` where the server does not answer in time.
    pub fn holds(&self) -> Result<Vec<HoldInfo>> {
        self.look(&Control::Holds)
    }

    /// The events of the debug stream.
    ///
    /// # Errors
    /// `Unavailable` where the server does not answer in time.
    pub fn debug_events(&self) -> Result<Vec<DebugInfo>> {
        self.look(&Control::DebugEvents)
    }

    /// Conflicting copies that are kept.
    ///
    /// # Errors
    /// `Unavailable` where the server does not answer in time.
    pub fn conflicts(&self) -> Result<Vec<ConflictInfo>> {
        self.look(&Control::Conflicts)
    }

    /// Why a fragment is, or is not, in the store.
    ///
    /// # Errors
    /// As `Store::why`, and `Unavailable`.
    pub fn why(&self, key: &Key) -> Result<Why> {
        self.look(&Control::Why { key: *key })
    }

    /// Where an accepted event goes; `None` where it is not accepted.
    ///
    /// # Errors
    /// As `Store::outputs`, and `Unavailable`.
    pub fn outputs(&self, primary: &Primary) -> Result<Option<Vec<(String, Sources)>>> {
        type Outputs = Option<Vec<(String, Option<Vec<Source>>)>>;
        let outputs: Outputs = self.look(&Control::Outputs { primary: *primary })?;
        let sources = |list: Option<Vec<Source>>| list.map_or(Sources::All, Sources::Only);
        Ok(outputs.map(|all| all.into_iter().map(|(name, list)| (name, sources(list))).collect()))
    }

    /// The store at a glance.
    ///
    /// # Errors
    /// `Unavailable` where the server does not answer in time.
    pub fn stats(&self) -> Result<Stats> {
        self.look(&Control::Stats)
    }

    /// Segments of the hot level.
    ///
    /// # Errors
    /// `Unavailable` where the server does not answer in time.
    pub fn segments(&self) -> Result<Vec<SegmentInfo>> {
        self.look(&Control::Segments)
    }

    /// Containers of the warm level; none without one.
    ///
    /// # Errors
    /// `Unavailable` where the server does not answer in time.
    pub fn containers(&self) -> Result<Vec<ContainerStatus>> {
        self.look(&Control::Containers)
    }

    /// Fills at which inhibit and demotion start and stop.
    ///
    /// # Errors
    /// `Unavailable` where the server does not answer in time.
    pub fn marks(&self) -> Result<Marks> {
        self.look(&Control::Marks)
    }

    /// Releases accepted and debug events inside bounds, a bounded number with each call: [`Released::after`] says where to go on.
    ///
    /// # Errors
    /// As `Store::release_range`, and `OutcomeUnknown`: the same call may be repeated, and does not count again what was released.
    pub fn release_range(&self, bounds: &Bounds, stream: Option<&str>, after: Option<&Primary>) -> Result<Released> {
        let (stream, after) = (stream.map(str::to_owned), after.copied());
        self.look(&Control::ReleaseRange { bounds: bounds_of(bounds), stream, after })
    }

    /// What the opening found missing or damaged and the operator accepted.
    ///
    /// # Errors
    /// `Unavailable` where the server does not answer in time.
    pub fn losses(&self) -> Result<Vec<String>> {
        self.look(&Control::Losses)
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl MovedStore for Client {
    fn claim(&self, request: &ClaimRequest) -> Result<Option<Claim>> {
        let (move_after_ms, ms) = (milliseconds(request.move_after), milliseconds(request.duration));
        let &ClaimRequest { device, archive, another, .. } = request;
        self.look(&Control::Claim { device, move_after_ms, ms, archive, another })
    }
    fn claimed(&self, token: &Token, after: u64) -> Result<Vec<ClaimedEvent>> {
        self.look(&Control::Claimed { token: *token, after })
    }
    fn extend_claim(&self, token: &Token, duration: Duration) -> Result<()> {
        self.look(&Control::ExtendClaim { token: *token, ms: milliseconds(duration) })
    }
    fn prove(&self, token: &Token) -> Result<u64> {
        self.look(&Control::Prove { token: *token })
    }
    fn give_back(&self, token: &Token) -> Result<()> {
        match self.calls().control::<()>(&Control::GiveBack { token: *token }) {
            // The try without an answer has ended it.
            Err(error) if error.kind() == Kind::Fenced && error.earlier_try_unknown() => Ok(()),
            answer => answer.map(|_| ()),
        }
    }
}
