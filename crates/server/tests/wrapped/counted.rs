//! A store behind a wrapper of its own type: it counts every call by name, and answers some of them itself.

use forebay_core::{
    Accept, Attributes, Bounds, Claim, ClaimRequest, ClaimedEvent, Error, Event, EventStore, GetAny, Key, Keyspace,
    Lease, LeaseHolder, Ledger, LedgerBy, LedgerRow, Level, MovedStore, OpenEvent, OperatedStore, PrescaleFactor,
    Primary, PutOptions, PutOutcome, Released, ReserveFragment, Result, ResultFragment, RunConfig, RunStatus,
    RunSummary, Sampling, ServedStore, Source, Sources, Stats, Token, Why,
};
use forebay_core::{ConflictInfo, ContainerStatus, DebugInfo, EventInfo, HoldInfo, Marks, SegmentInfo, SourceStatus};
use forebay_store::{Fragment, Producer, Range, Reservation, Sampler, Store, Watch};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

/// A line that only the wrapper says.
pub(crate) const SAID: &str = "said by the wrapper";

/// How often each call was made.
#[derive(Default)]
pub(crate) struct Calls(Mutex<BTreeMap<&'static str, u64>>);

impl Calls {
    fn seen(&self, call: &'static str) {
        *self.0.lock().entry(call).or_default() += 1;
    }

    pub(crate) fn of(&self, call: &str) -> u64 {
        self.0.lock().get(call).copied().unwrap_or_default()
    }
}

/// The wrapper.
#[derive(Clone)]
pub(crate) struct Counted {
    store: Store,
    pub(crate) calls: Arc<Calls>,
}

impl Counted {
    pub(crate) fn new(store: Store) -> Counted {
        Counted { store, calls: Arc::default() }
    }

    fn lease_of(&self, lease: forebay_store::Lease) -> Lease<Fragment, Counted> {
        let holder = self.clone();
        let Lease { primary, token, attributes, fragments, missing, sources, .. } = lease;
        let Lease { stage, delivery, event_fragments, event_bytes, .. } = lease;
        Lease {
            holder,
            primary,
            token,
            attributes,
            fragments,
            missing,
            sources,
            stage,
            delivery,
            event_fragments,
            event_bytes,
        }
    }
}

/// Memory of the store behind the wrapper: a type of its own as well.
pub(crate) struct Landing {
    place: Reservation,
    calls: Arc<Calls>,
}

impl Deref for Landing {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.place
    }
}

impl DerefMut for Landing {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.place
    }
}

impl ReserveFragment for Landing {
    fn commit_may_wait(&self) -> bool {
        self.place.commit_may_wait()
    }
    fn commit(self) -> Result<PutOutcome> {
        self.calls.seen("commit");
        self.place.commit()
    }
    fn commit_checked(self, checksum: u32) -> Result<PutOutcome> {
        self.calls.seen("commit_checked");
        self.place.commit_checked(checksum)
    }
}

/// Methods of a trait that count themselves and pass the call on; and their names.
macro_rules! pass {
    ($trait:ident $(fn $name:ident(&self $(, $arg:ident: $type:ty)* $(,)?) $(-> $answer:ty)?;)*) => {
        $(fn $name(&self $(, $arg: $type)*) $(-> $answer)? {
            self.calls.seen(stringify!($name));
            $trait::$name(&self.store $(, $arg)*)
        })*
    };
}

/// Every call that a server makes of a store.
pub(crate) const CALLS: &str = "
    lease_get extend accept_into reject pass requeue fail
    put get get_event range update remove remove_event remove_range open_event seal release get_any lease
    run_open run_stop run_close runs ledger stats producer
    events update_attributes replay outputs why run_pause run_resume run_summary ledger_by sources mask unmask prescale hold release_hold
    drain_device undo_drain exchange_device add_device holds debug_events conflicts losses segments containers marks watch sampler
    named boot lease_time has_warm prefetch try_put reserve try_reserve may_wait verdict_may_wait get_any_may_wait
    wake_when_ready forget_waker commit commit_checked
";

impl LeaseHolder for Counted {
    type Fragment = Fragment;

    pass! { LeaseHolder
        fn lease_get(&self, primary: &Primary, token: &Token, sources: &Sources) -> Result<Vec<Fragment>>;
        fn extend(&self, primary: &Primary, token: &Token, duration: Duration) -> Result<()>;
        fn accept(&self, primary: &Primary, token: &Token, streams: &[&str]) -> Result<()>;
        fn accept_into(&self, primary: &Primary, token: &Token, accept: &Accept<'_>) -> Result<()>;
        fn reject(&self, primary: &Primary, token: &Token) -> Result<()>;
        fn pass(&self, primary: &Primary, token: &Token, stage: &str, results: &[ResultFragment<'_>]) -> Result<()>;
        fn requeue(&self, primary: &Primary, token: &Token) -> Result<()>;
        fn fail(&self, primary: &Primary, token: &Token, reason: &str) -> Result<()>;
    }
}

impl EventStore for Counted {
    type Fragment = Fragment;
    type Holder = Counted;
    type Producer = Producer;
    type Range = Range;

    fn keyspace(&self) -> &Keyspace {
        self.store.keyspace()
    }
    fn get_any(&self, request: &GetAny) -> Result<Vec<Lease<Fragment, Counted>>> {
        self.calls.seen("get_any");
        Ok(self.store.get_any(request)?.into_iter().map(|lease| self.lease_of(lease)).collect())
    }
    fn lease(&self, primary: &Primary, duration: Option<Duration>) -> Result<Option<Lease<Fragment, Counted>>> {
        self.calls.seen("lease");
        Ok(self.store.lease(primary, duration)?.map(|lease| self.lease_of(lease)))
    }
    fn release(&self, _: &Primary) -> Result<bool> {
        self.calls.seen("release");
        Err(Error::unavailable(SAID))
    }

    pass! { EventStore
        fn put(&self, key: &Key, value: &[u8], options: &PutOptions<'_>) -> Result<PutOutcome>;
        fn get(&self, key: &Key) -> Result<Option<Fragment>>;
        fn get_event(&self, primary: &Primary, sources: &Sources) -> Result<Option<Event<Fragment>>>;
        fn range(&self, bounds: &Bounds) -> Range;
        fn update(&self, key: &Key, value: &[u8], token: Option<&Token>) -> Result<u16>;
        fn remove(&self, key: &Key) -> Result<bool>;
        fn remove_event(&self, primary: &Primary) -> Result<bool>;
        fn remove_range(&self, bounds: &Bounds) -> Result<u64>;
        fn open_event(&self, primary: &Primary, how: &OpenEvent<'_>) -> Result<PutOutcome>;
        fn seal(&self, primary: &Primary) -> Result<bool>;
        fn run_open(&self, run: u64, config: &RunConfig) -> Result<()>;
        fn run_stop(&self, run: u64) -> Result<()>;
        fn run_close(&self, run: u64) -> Result<RunSummary>;
        fn runs(&self) -> Result<Vec<RunStatus>>;
        fn ledger(&self, run: u64) -> Result<Ledger>;
        fn stats(&self) -> Result<Stats>;
        fn producer(&self, run: u64, name: &str) -> Result<Producer>;
    }
}

impl MovedStore for Counted {
    pass! { MovedStore
        fn claim(&self, request: &ClaimRequest) -> Result<Option<Claim>>;
        fn claimed(&self, token: &Token, after: u64) -> Result<Vec<ClaimedEvent>>;
        fn extend_claim(&self, token: &Token, duration: Duration) -> Result<()>;
        fn prove(&self, token: &Token) -> Result<u64>;
        fn give_back(&self, token: &Token) -> Result<()>;
    }
}

impl OperatedStore for Counted {
    type Watch = Watch;
    type Sampler = Sampler;

    fn losses(&self) -> Result<Vec<String>> {
        self.calls.seen("losses");
        Ok(vec![SAID.to_owned()])
    }

    pass! { OperatedStore
        fn events(&self, bounds: &Bounds) -> Result<Vec<EventInfo>>;
        fn update_attributes(&self, primary: &Primary, attributes: &Attributes, token: Option<&Token>) -> Result<()>;
        fn replay(&self, primary: &Primary) -> Result<bool>;
        fn outputs(&self, primary: &Primary) -> Result<Option<Vec<(String, Sources)>>>;
        fn why(&self, key: &Key) -> Result<Why>;
        fn run_pause(&self, run: u64) -> Result<()>;
        fn run_resume(&self, run: u64) -> Result<()>;
        fn run_summary(&self, run: u64) -> Result<RunSummary>;
        fn ledger_by(&self, run: u64, by: LedgerBy) -> Result<Vec<LedgerRow>>;
        fn sources(&self, run: u64) -> Result<Vec<SourceStatus>>;
        fn mask(&self, run: u64, source: &Source, from: Option<&Primary>) -> Result<()>;
        fn unmask(&self, run: u64, source: &Source, from: Option<&Primary>) -> Result<()>;
        fn prescale(&self, run: u64, name: &str, factor: PrescaleFactor, from: Option<&Primary>) -> Result<()>;
        fn hold(&self, run: Option<u64>, conditions: &[&str]) -> Result<u32>;
        fn release_hold(&self, id: u32) -> Result<bool>;
        fn drain_device(&self, device: u32) -> Result<()>;
        fn undo_drain(&self, device: u32) -> Result<()>;
        fn exchange_device(&self, device: u32, to: &std::path::Path) -> Result<()>;
        fn add_device(&self, to: &std::path::Path, bytes: Option<u64>) -> Result<()>;
        fn holds(&self) -> Result<Vec<HoldInfo>>;
        fn debug_events(&self) -> Result<Vec<DebugInfo>>;
        fn conflicts(&self) -> Result<Vec<ConflictInfo>>;
        fn segments(&self) -> Result<Vec<SegmentInfo>>;
        fn containers(&self) -> Result<Vec<ContainerStatus>>;
        fn marks(&self) -> Result<Marks>;
        fn release_range(&self, bounds: &Bounds, stream: Option<&str>, after: Option<&Primary>) -> Result<Released>;
        fn watch(&self, run: u64) -> Result<Watch>;
        fn sampler(&self, sampling: &Sampling) -> Result<Sampler>;
    }
}

impl ServedStore for Counted {
    type Reservation = Landing;
    type Executor = Counted;

    fn named(&self, holder: &str) -> Counted {
        self.calls.seen("named");
        Counted { store: self.store.named(holder), calls: self.calls.clone() }
    }
    fn executor(&self) -> &Counted {
        self
    }
    fn reserve(&self, key: &Key, length: usize, options: &PutOptions<'_>) -> Result<Landing> {
        self.calls.seen("reserve");
        Ok(Landing { place: self.store.reserve(key, length, options)?, calls: self.calls.clone() })
    }
    fn try_reserve(&self, key: &Key, length: usize, options: &PutOptions<'_>) -> Result<Option<Landing>> {
        self.calls.seen("try_reserve");
        let place = self.store.try_reserve(key, length, options)?;
        Ok(place.map(|place| Landing { place, calls: self.calls.clone() }))
    }

    pass! { ServedStore
        fn boot(&self) -> u32;
        fn lease_time(&self) -> Duration;
        fn has_warm(&self) -> bool;
        fn prefetch(&self, keys: &[Key]);
        fn try_put(
            &self, key: &Key, value: &[u8], options: &PutOptions<'_>, checksum: Option<u32>,
        ) -> Result<Option<PutOutcome>>;
        fn may_wait(&self, primary: &Primary, rest: Option<&[u8]>) -> bool;
        fn verdict_may_wait(&self, primary: &Primary) -> bool;
        fn get_any_may_wait(&self, level: Option<Level>) -> bool;
        fn wake_when_ready(&self, waker: &Waker);
        fn forget_waker(&self, waker: &Waker);
    }
}
