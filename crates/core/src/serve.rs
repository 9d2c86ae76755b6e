//! What a server asks of the store that it serves, beyond what readout and filters do with it.
//!
//! ```text
//! EventStore      readout, filters, archive                                 a store, or a client
//! OperatedStore   what experts and monitors do                              a store, or a client
//! ServedStore     what sessions need beside it: no wait, and bytes in place  a store of this process
//! ```
//!
//! Sessions are written against these traits. So a store can be wrapped: counted, delayed, or answered for by other nodes.
//! Reservations, fragments and walks are associated types, not objects: over a [`ServedStore`] the socket still fills the
//! store's memory, and fragments still go out from their place.
//!
//! *Not here*: making, opening and closing, which are for who owns the store.

use crate::{
    Attributes, Bounds, ConflictInfo, ContainerStatus, CountedProducer, DebugInfo, EventInfo, EventStore, HoldInfo,
    Key, LeaseHolder, LedgerBy, LedgerRow, Level, Marks, MovedStore, PrescaleFactor, Primary, PutOptions, PutOutcome,
    ReadFragment, Released, Result, RunStatus, RunSummary, Sample, Sampling, SegmentInfo, Source, SourceStatus,
    Sources, Token, Why,
};
use std::ops::DerefMut;
use std::path::Path;
use std::task::Waker;
use std::time::Duration;

/// Memory of a store for one fragment, which its owner fills in place. Dropping it gives it up.
pub trait ReserveFragment: DerefMut<Target = [u8]> + Send + 'static {
    /// Whether its commit waits for a device, or for bytes to be read.
    fn commit_may_wait(&self) -> bool;
    /// Makes the fragment visible.
    ///
    /// # Errors
    /// Those of a put.
    fn commit(self) -> Result<PutOutcome>;
    /// The same for bytes that came with a CRC-32C.
    ///
    /// # Errors
    /// `Corrupt` if the bytes do not have it: then nothing is stored. Else those of a put.
    fn commit_checked(self, checksum: u32) -> Result<PutOutcome>;
}

/// A producer whose figures come in sums, and are reported when somebody asks.
pub trait ReportingProducer: CountedProducer + 'static {
    /// It offered this many fragments, of this many bytes together.
    fn offered_many(&self, fragments: u64, bytes: u64);
    /// Reports now.
    ///
    /// # Errors
    /// `Closed`, `Full`.
    fn report(&self) -> Result<()>;
}

/// Who follows a run.
pub trait FollowRun: Send + 'static {
    /// The run, once it has changed; `None` if it does not within the wait.
    ///
    /// # Errors
    /// `Unavailable` where the run is followed from elsewhere.
    fn next(&mut self, wait: Duration) -> Result<Option<RunStatus>>;
}

/// Who draws samples of events, beside the selection.
pub trait SampleEvents: Send + 'static {
    /// Fragments of a sample.
    type Fragment;
    /// The next sample; `None` if there is none within the wait.
    ///
    /// # Errors
    /// `Closed`.
    fn next(&mut self, wait: Duration) -> Result<Option<Sample<Self::Fragment>>>;
}

/// What experts and monitors do with a store. Errors are those of the embedded store's methods of the same names.
#[expect(clippy::missing_errors_doc, reason = "one sentence above says it for all")]
pub trait OperatedStore: EventStore + MovedStore {
    /// Follows runs.
    type Watch: FollowRun;
    /// Draws samples.
    type Sampler: SampleEvents<Fragment = Self::Fragment>;

    /// Live events inside bounds, in key order, without their payloads.
    fn events(&self, bounds: &Bounds) -> Result<Vec<EventInfo>>;
    /// Sets attributes of an event.
    fn update_attributes(&self, primary: &Primary, attributes: &Attributes, token: Option<&Token>) -> Result<()>;
    /// Releases accepted and debug events inside bounds, of one stream or of all, a bounded number at a time.
    fn release_range(&self, bounds: &Bounds, stream: Option<&str>, after: Option<&Primary>) -> Result<Released>;
    /// Puts an event of the debug stream back to work.
    fn replay(&self, primary: &Primary) -> Result<bool>;
    /// Where an accepted event goes, stream by stream.
    fn outputs(&self, primary: &Primary) -> Result<Option<Vec<(String, Sources)>>>;
    /// Why a fragment is, or is not, there.
    fn why(&self, key: &Key) -> Result<Why>;

    /// A run pauses.
    fn run_pause(&self, run: u64) -> Result<()>;
    /// A run goes on.
    fn run_resume(&self, run: u64) -> Result<()>;
    /// The summary of a run, as it is now or as it was kept at its close.
    fn run_summary(&self, run: u64) -> Result<RunSummary>;
    /// The account of a run, in rows.
    fn ledger_by(&self, run: u64, by: LedgerBy) -> Result<Vec<LedgerRow>>;
    /// Sources of a run.
    fn sources(&self, run: u64) -> Result<Vec<SourceStatus>>;
    /// Events are complete without this source.
    fn mask(&self, run: u64, source: &Source, from: Option<&Primary>) -> Result<()>;
    /// Events want this source again.
    fn unmask(&self, run: u64, source: &Source, from: Option<&Primary>) -> Result<()>;
    /// Records a prescale of the trigger.
    fn prescale(&self, run: u64, name: &str, factor: PrescaleFactor, from: Option<&Primary>) -> Result<()>;
    /// Holds events back from delivery.
    fn hold(&self, run: Option<u64>, conditions: &[&str]) -> Result<u32>;
    /// Ends a hold.
    fn release_hold(&self, id: u32) -> Result<bool>;
    /// A device of the warm level takes no more data, and what lives on it moves to the others.
    fn drain_device(&self, device: u32) -> Result<()>;
    /// A device that is drained takes data again.
    fn undo_drain(&self, device: u32) -> Result<()>;
    /// Another directory has the place of a drained device from the next opening on.
    fn exchange_device(&self, device: u32, to: &Path) -> Result<()>;
    /// Adds a directory as one more device, from the next opening on. It uses `bytes` bytes; `None`: as many as device 0.
    fn add_device(&self, to: &Path, bytes: Option<u64>) -> Result<()>;
    /// All holds.
    fn holds(&self) -> Result<Vec<HoldInfo>>;

    /// Events of the debug stream.
    fn debug_events(&self) -> Result<Vec<DebugInfo>>;
    /// Conflicting copies that are kept.
    fn conflicts(&self) -> Result<Vec<ConflictInfo>>;
    /// What opening found missing or damaged and the operator accepted.
    fn losses(&self) -> Result<Vec<String>>;
    /// Segments of the hot level.
    fn segments(&self) -> Result<Vec<SegmentInfo>>;
    /// Containers of the warm level.
    fn containers(&self) -> Result<Vec<ContainerStatus>>;
    /// Fills at which inhibit and demotion start and stop.
    fn marks(&self) -> Result<Marks>;

    /// Follows a run.
    fn watch(&self, run: u64) -> Result<Self::Watch>;
    /// Draws samples of events.
    fn sampler(&self, sampling: &Sampling) -> Result<Self::Sampler>;
}

/// A store in the server's process. Its calls that begin with `try_` wait for nothing; its other calls may wait, and `*may_wait`
/// say which of them do. A session makes those on a thread that may wait.
#[expect(clippy::missing_errors_doc, reason = "those of a put; one sentence above says what is different")]
pub trait ServedStore:
    OperatedStore<
        Fragment: ReadFragment + Sync + 'static,
        Holder: Send + 'static,
        Producer: ReportingProducer,
        Range: Send + 'static,
    >
{
    /// Memory that a socket fills.
    type Reservation: ReserveFragment;
    /// Executes the calls of leases that are held elsewhere.
    type Executor: LeaseHolder<Fragment = Self::Fragment>;

    /// The same store under a holder's name: what it reads in place is counted under it.
    #[must_use]
    fn named(&self, holder: &str) -> Self;
    /// The object that executes verdicts of workers whose leases are known by token only.
    fn executor(&self) -> &Self::Executor;
    /// Boot generation, as tokens have it.
    fn boot(&self) -> u32;
    /// How long a lease lasts if nothing else is asked for.
    fn lease_time(&self) -> Duration;
    /// Whether data may be on devices.
    fn has_warm(&self) -> bool;

    /// A hint that these keys come next.
    fn prefetch(&self, keys: &[Key]);
    /// Puts bytes, which came with this CRC-32C; `None` if it would have to wait: then nothing is stored or booked.
    fn try_put(
        &self,
        key: &Key,
        value: &[u8],
        options: &PutOptions<'_>,
        checksum: Option<u32>,
    ) -> Result<Option<PutOutcome>>;
    /// Memory for bytes that are to come.
    fn reserve(&self, key: &Key, length: usize, options: &PutOptions<'_>) -> Result<Self::Reservation>;
    /// The same; `None` if there would be a wait for it.
    fn try_reserve(&self, key: &Key, length: usize, options: &PutOptions<'_>) -> Result<Option<Self::Reservation>>;

    /// Whether a read of this event, or with `rest` of this fragment, may wait for a device.
    fn may_wait(&self, primary: &Primary, rest: Option<&[u8]>) -> bool;
    /// Whether a verdict about this event may wait.
    fn verdict_may_wait(&self, primary: &Primary) -> bool;
    /// Whether leasing ready events may wait for a device.
    fn get_any_may_wait(&self, level: Option<Level>) -> bool;
    /// Wakes a task once there are ready events.
    fn wake_when_ready(&self, waker: &Waker);
    /// The least time between two looks for ready events of which nobody wakes a task.
    fn look_again_min(&self) -> Duration {
        Duration::ZERO
    }
    /// The task is woken no more.
    fn forget_waker(&self, waker: &Waker);
}

/// Implements [`OperatedStore`] by the methods of the same names. Those that cannot fail where the store is in this process
/// answer through `$sure`.
#[macro_export]
#[doc(hidden)]
macro_rules! implement_operated_store {
    ($store:ty, $watch:ty, $sampler:ty, |$answer:ident| $sure:expr) => {
        impl $crate::OperatedStore for $store {
            type Watch = $watch;
            type Sampler = $sampler;

            fn events(&self, bounds: &$crate::Bounds) -> $crate::Result<Vec<$crate::EventInfo>> {
                self.events(bounds)
            }
            fn update_attributes(
                &self,
                primary: &$crate::Primary,
                attributes: &$crate::Attributes,
                token: Option<&$crate::Token>,
            ) -> $crate::Result<()> {
                self.update_attributes(primary, attributes, token)
            }
            fn release_range(
                &self,
                bounds: &$crate::Bounds,
                stream: Option<&str>,
                after: Option<&$crate::Primary>,
            ) -> $crate::Result<$crate::Released> {
                self.release_range(bounds, stream, after)
            }
            fn replay(&self, primary: &$crate::Primary) -> $crate::Result<bool> {
                self.replay(primary)
            }
            fn outputs(&self, primary: &$crate::Primary) -> $crate::Result<Option<Vec<(String, $crate::Sources)>>> {
                self.outputs(primary)
            }
            fn why(&self, key: &$crate::Key) -> $crate::Result<$crate::Why> {
                self.why(key)
            }
            fn run_pause(&self, run: u64) -> $crate::Result<()> {
                self.run_pause(run)
            }
            fn run_resume(&self, run: u64) -> $crate::Result<()> {
                self.run_resume(run)
            }
            fn run_summary(&self, run: u64) -> $crate::Result<$crate::RunSummary> {
                self.run_summary(run)
            }
            fn ledger_by(&self, run: u64, by: $crate::LedgerBy) -> $crate::Result<Vec<$crate::LedgerRow>> {
                self.ledger_by(run, by)
            }
            fn sources(&self, run: u64) -> $crate::Result<Vec<$crate::SourceStatus>> {
                self.sources(run)
            }
            fn mask(&self, run: u64, source: &$crate::Source, from: Option<&$crate::Primary>) -> $crate::Result<()> {
                self.mask(run, source, from)
            }
            fn unmask(&self, run: u64, source: &$crate::Source, from: Option<&$crate::Primary>) -> $crate::Result<()> {
                self.unmask(run, source, from)
            }
            fn prescale(
                &self,
                run: u64,
                name: &str,
                factor: $crate::PrescaleFactor,
                from: Option<&$crate::Primary>,
            ) -> $crate::Result<()> {
                self.prescale(run, name, factor, from)
            }
            fn hold(&self, run: Option<u64>, conditions: &[&str]) -> $crate::Result<u32> {
                self.hold(run, conditions)
            }
            fn release_hold(&self, id: u32) -> $crate::Result<bool> {
                self.release_hold(id)
            }
            fn drain_device(&self, device: u32) -> $crate::Result<()> {
                self.drain_device(device)
            }
            fn undo_drain(&self, device: u32) -> $crate::Result<()> {
                self.undo_drain(device)
            }
            fn exchange_device(&self, device: u32, to: &std::path::Path) -> $crate::Result<()> {
                self.exchange_device(device, to)
            }
            fn add_device(&self, to: &std::path::Path, bytes: Option<u64>) -> $crate::Result<()> {
                self.add_device(to, bytes)
            }
            fn holds(&self) -> $crate::Result<Vec<$crate::HoldInfo>> {
                let $answer = self.holds();
                $sure
            }
            fn debug_events(&self) -> $crate::Result<Vec<$crate::DebugInfo>> {
                let $answer = self.debug_events();
                $sure
            }
            fn conflicts(&self) -> $crate::Result<Vec<$crate::ConflictInfo>> {
                let $answer = self.conflicts();
                $sure
            }
            fn losses(&self) -> $crate::Result<Vec<String>> {
                let $answer = self.losses();
                $sure
            }
            fn segments(&self) -> $crate::Result<Vec<$crate::SegmentInfo>> {
                let $answer = self.segments();
                $sure
            }
            fn containers(&self) -> $crate::Result<Vec<$crate::ContainerStatus>> {
                let $answer = self.containers();
                $sure
            }
            fn marks(&self) -> $crate::Result<$crate::Marks> {
                let $answer = self.marks();
                $sure
            }
            fn watch(&self, run: u64) -> $crate::Result<$watch> {
                self.watch(run)
            }
            fn sampler(&self, sampling: &$crate::Sampling) -> $crate::Result<$sampler> {
                self.sampler(sampling)
            }
        }
    };
}
