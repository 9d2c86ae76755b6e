//! A mover: one claim after the other becomes objects, is read back, compared, named, proved.
//!
//! ```text
//! claim ─▶ events, in order ─▶ object ─▶ put ─▶ read back, compare ─▶ manifest ─▶ … ─▶ prove
//!   │                                     └── fails: again under the same claim, with growing pauses; then given back
//!   └── a thread extends it; once it is fenced, the mover stops at the next object
//! ```
//!
//! Several lanes do this beside each other, each with a claim of its own: while one waits for the archive, another reads. They
//! share nothing but the limit of bytes a second, and take turns at manifests.
//!
//! *Invariants*: a claim is proved only after all of its events are in objects that were read back, that compared, and that
//! manifests name. Memory is bounded: in each lane one object for each stream of a container, and the memory of the last one for
//! the next.
//!
//! *On failure*: whatever dies, an object that no manifest names counts for nothing. Another mover goes on behind what the
//! manifest has of the same container.

use crate::archive::Archive;
use crate::identity::Identity;
use crate::limits::{CLAIM, LANES, OBJECT_BYTES, PATIENCE, PAUSE_MAX, PAUSE_MIN, PUTS_MAX, TABLES_BYTES};
use crate::manifest::{Manifest, ManifestObject};
use crate::object::{Builder, Contents, Head, Object, piece_of};
use bytes::{Bytes, BytesMut};
use forebay_core::{
    Attributes, Claim, ClaimRequest, ClaimedEvent, Error, EventStore, Kind, LiveState, MovedStore, Primary, Result,
    Sources, Unit,
};
use forebay_dataset::storage::Back;
use md5::{Digest, Md5};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How a mover works.
#[derive(Clone, Debug)]
pub struct MoverOptions {
    /// Containers that are still being filled are moved this long after they began.
    pub move_after: Duration,
    /// Only from this device of the store.
    pub device: Option<u32>,
    /// How long a claim lasts without a heartbeat: a mover that is killed keeps others from its container for so long.
    pub claim: Duration,
    /// Bytes at which an object is ended.
    pub object_bytes: usize,
    /// An event in several streams goes into an object of each.
    pub per_stream: bool,
    /// MD5 of each object is computed too.
    pub md5: bool,
    /// Most bytes a second to the archive.
    pub bytes_per_second: Option<u64>,
    /// How long a place that fails is tried under one claim.
    pub patience: Duration,
    /// Claims that are moved beside each other, at least 1.
    pub lanes: usize,
    /// The store may have proofs in another archive: from now on they are in this one.
    pub another_archive: bool,
}

impl Default for MoverOptions {
    fn default() -> MoverOptions {
        MoverOptions {
            move_after: Duration::from_secs(3600),
            device: None,
            claim: CLAIM,
            object_bytes: OBJECT_BYTES,
            per_stream: false,
            md5: false,
            bytes_per_second: None,
            patience: PATIENCE,
            lanes: LANES,
            another_archive: false,
        }
    }
}

/// What a mover has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moved {
    /// Claims that were proved.
    pub claims: u64,
    /// Objects that manifests name.
    pub objects: u64,
    /// Bytes of these objects.
    pub object_bytes: u64,
    /// What they hold.
    #[serde(flatten)]
    pub contents: Contents,
    /// Events that the proofs cover.
    pub proved: u64,
    /// Objects that did not come back as they went.
    pub failed: u64,
    /// Claims that were given back.
    pub given_back: u64,
}

/// A mover between one store and one archive.
#[derive(Debug)]
pub struct Mover<S> {
    store: S,
    archive: Archive,
    options: MoverOptions,
    stop: Arc<AtomicBool>,
    moved: Mutex<Moved>,
    /// Which archive it writes into; the place keeps to the conditions of puts.
    began: OnceLock<Identity>,
    /// From when on the next object may go out.
    free_at: Mutex<Instant>,
    /// Memory of the last object of each lane, for the next ones.
    spare: Mutex<Vec<BytesMut>>,
    /// Lanes that changed a manifest at once would refuse each other.
    naming: Mutex<()>,
    /// It was said that the store was set back.
    is_said: AtomicBool,
}

/// A claim that is being moved.
struct Work<'a> {
    claim: &'a Claim,
    /// Its time is over: another mover may have it.
    lost: &'a AtomicBool,
    tell: &'a dyn Fn(News<'_>),
}

/// What a mover tells while it works.
#[derive(Clone, Copy, Debug)]
pub enum News<'a> {
    /// A claim was proved.
    Proved,
    /// It failed, and is tried again.
    Again(&'a Error),
    /// The archive knows later fillings of what is claimed, or others: the store was set back. Said once, and what is new is moved.
    SetBack(&'a str),
}

/// Callback for what a mover tells, with what it has done until then.
type Told<'a> = dyn FnMut(&Moved, News<'_>) + Send + 'a;

/// The end of one try to move a unit.
enum Tried {
    Done,
    /// Another mover named the same events first.
    Overtaken,
}

/// An object that grows, of one run and stream.
struct Group {
    builder: Option<Builder>,
    from: u64,
    first: Option<Primary>,
    last: Option<Primary>,
    lumi: Option<(u64, u64)>,
}

/// The heartbeat of a claim: ended with its owner.
struct Heart<'a> {
    ended: &'a (Mutex<bool>, Condvar),
}

impl Drop for Heart<'_> {
    fn drop(&mut self) {
        *self.ended.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.ended.1.notify_all();
    }
}

impl<S: EventStore + MovedStore> Mover<S> {
    /// A mover that ends its work soon after `stop` is set.
    pub fn new(store: S, archive: Archive, options: MoverOptions, stop: Arc<AtomicBool>) -> Mover<S> {
        let (moved, free_at) = (Mutex::default(), Mutex::new(Instant::now()));
        let (began, spare, naming) = (OnceLock::new(), Mutex::default(), Mutex::default());
        let is_said = AtomicBool::new(false);
        Mover { store, archive, options, stop, moved, began, free_at, spare, naming, is_said }
    }

    /// What it has done until now.
    pub fn moved(&self) -> Moved {
        *self.moved.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, change: impl FnOnce(&mut Moved)) {
        change(&mut self.moved.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Moves until it is stopped; with `once` until there is nothing left to claim. `told` hears how it goes.
    ///
    /// # Errors
    /// `Invalid` for a claim that cannot be, such as of a device that is not there; with `once` the first failure.
    pub fn run(&self, once: bool, told: &mut Told<'_>) -> Result<Moved> {
        let told = Mutex::new(told);
        std::thread::scope(|scope| {
            let others: Vec<_> = (1..self.options.lanes).map(|_| scope.spawn(|| self.lane(once, &told))).collect();
            let mut ended = self.lane(once, &told);
            for lane in others {
                let other = lane.join().map_err(|_| Error::internal("a lane of the mover panicked"));
                ended = ended.and(other.flatten());
            }
            ended.map(|()| self.moved())
        })
    }

    fn lane(&self, once: bool, told: &Mutex<&mut Told<'_>>) -> Result<()> {
        let tell = |news: News<'_>| told.lock().unwrap_or_else(PoisonError::into_inner)(&self.moved(), news);
        let mut pause = PAUSE_MIN;
        while !self.is_stopped() {
            let claimed = self.claim();
            // A claim that cannot be is not made possible by another one.
            let is_final = claimed.as_ref().is_err_and(|error| matches!(error.kind(), Kind::Invalid | Kind::Closed));
            let done = claimed
                .and_then(|claim| claim.map_or(Ok(false), |claim| self.move_claim(&claim, &tell).map(|()| true)));
            match done {
                Ok(true) => {
                    tell(News::Proved);
                    pause = PAUSE_MIN;
                    continue;
                }
                Ok(false) if once => break,
                Ok(false) => pause = PAUSE_MIN,
                Err(error) => {
                    if once || is_final {
                        return Err(error);
                    }
                    tell(News::Again(&error));
                    pause = (pause * 2).min(PAUSE_MAX);
                }
            }
            self.sleep(jittered(pause));
        }
        Ok(())
    }

    /// Claims a unit and moves it; `false` if there is none.
    ///
    /// # Errors
    /// Those of the store and of the archive. The claim was given back.
    pub fn round(&self) -> Result<bool> {
        self.claim()?.map_or(Ok(false), |claim| self.move_claim(&claim, &|_| {}).map(|()| true))
    }

    fn claim(&self) -> Result<Option<Claim>> {
        self.still_there()?;
        let MoverOptions { device, move_after, claim: duration, .. } = self.options;
        let archive = self.began.get().map(|began| began.id);
        self.store.claim(&ClaimRequest { device, move_after, duration, archive, another: self.options.another_archive })
    }

    /// The place is an archive, the one that this mover began with.
    fn still_there(&self) -> Result<()> {
        if let Some(began) = self.began.get() {
            return self.archive.still(began);
        }
        let there = self.archive.identity_there()?;
        // Before anything is taken: where conditions are ignored, two movers would overwrite each other's manifests.
        let (place, name) = (self.archive.place(), format!("check/{:016x}", rand::random::<u64>()));
        match place.ignored_condition(&name) {
            Ok(None) => {}
            Ok(Some(condition)) => return Err(place.ignores(condition)),
            // A place that is read-only, or refuses these credentials, may be mended.
            Err(error) => return Err(Error::unavailable("the archive cannot be written").with_source(error)),
        }
        self.archive.still(self.began.get_or_init(|| there))
    }

    fn move_claim(&self, claim: &Claim, tell: &dyn Fn(News<'_>)) -> Result<()> {
        let lost = AtomicBool::new(false);
        let work = Work { claim, lost: &lost, tell };
        let ended = (Mutex::new(false), Condvar::new());
        std::thread::scope(|scope| {
            let _heart = Heart { ended: &ended };
            scope.spawn(|| self.beat(claim, &lost, &ended));
            let proved = self.move_unit(&work).and_then(|()| self.prove(&work));
            match proved {
                Ok(events) => {
                    self.note(|moved| (moved.claims, moved.proved) = (moved.claims + 1, moved.proved + events));
                    Ok(())
                }
                Err(error) => {
                    self.note(|moved| moved.given_back += 1);
                    if let Err(error) = self.store.give_back(&claim.token) {
                        tracing::debug!(%error, token = %claim.token, "the claim ends by time");
                    }
                    Err(error)
                }
            }
        })
    }

    /// Extends the claim until its owner ends it, or somebody else has it.
    fn beat(&self, claim: &Claim, lost: &AtomicBool, (ended, changed): &(Mutex<bool>, Condvar)) {
        let mut is_over = ended.lock().unwrap_or_else(PoisonError::into_inner);
        while !*is_over {
            let waited = changed.wait_timeout(is_over, self.options.claim / 3);
            is_over = waited.unwrap_or_else(PoisonError::into_inner).0;
            if *is_over {
                return;
            }
            // Without the lock: the owner must be able to end while the store does not answer.
            drop(is_over);
            match self.store.extend_claim(&claim.token, self.options.claim) {
                Err(error) if matches!(error.kind(), Kind::Fenced | Kind::Closed) => {
                    lost.store(true, Ordering::Relaxed);
                    return;
                }
                _ => {}
            }
            is_over = ended.lock().unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn check(&self, work: &Work<'_>) -> Result<()> {
        if work.lost.load(Ordering::Relaxed) {
            return Err(Error::fenced(format!("claim {} ended by time: another mover may have it", work.claim.token)));
        }
        if self.is_stopped() {
            return Err(Error::unavailable("the mover was asked to end"));
        }
        Ok(())
    }

    fn prove(&self, work: &Work<'_>) -> Result<u64> {
        self.patiently(work, || self.store.prove(&work.claim.token))
    }

    /// Tries until it works, the claim is lost, or patience ends: for what a repetition may mend.
    fn patiently<T>(&self, work: &Work<'_>, mut again: impl FnMut() -> Result<T>) -> Result<T> {
        let since = Instant::now();
        let mut pause = PAUSE_MIN;
        loop {
            self.check(work)?;
            match again() {
                Err(error)
                    if matches!(error.kind(), Kind::Unavailable | Kind::OutcomeUnknown | Kind::Full)
                        && since.elapsed() < self.options.patience =>
                {
                    (work.tell)(News::Again(&error));
                    self.sleep(jittered(pause));
                    pause = (pause * 2).min(PAUSE_MAX);
                }
                done => return done,
            }
        }
    }

    /// Sleeps, unless it is stopped.
    fn sleep(&self, pause: Duration) {
        let until = Instant::now() + pause;
        while !self.is_stopped() && Instant::now() < until {
            std::thread::sleep((until - Instant::now().min(until)).min(Duration::from_millis(50)));
        }
    }

    fn move_unit(&self, work: &Work<'_>) -> Result<()> {
        // Each time behind what the manifests have by then: another mover's progress ends this.
        loop {
            match self.try_unit(work)? {
                Tried::Done => return Ok(()),
                Tried::Overtaken => self.check(work)?,
            }
        }
    }

    fn try_unit(&self, work: &Work<'_>) -> Result<Tried> {
        let claim = work.claim;
        let schema = self.store.schema();
        let keyspace = self.store.keyspace();
        let lumi = keyspace.attributes.index("lumi");
        let mut packed = vec![0; if keyspace.attributes.is_empty() { 0 } else { keyspace.attributes.packed_bytes() }];
        let mut manifests: BTreeMap<u64, Manifest> = BTreeMap::new();
        let mut groups: BTreeMap<(u64, String), Group> = BTreeMap::new();
        // Of each run the events that nothing is written of here: movers before named them.
        let mut skipped: BTreeMap<u64, u64> = BTreeMap::new();
        let mut at = 0;
        loop {
            let page = self.patiently(work, || self.store.claimed(&claim.token, at))?;
            if page.is_empty() {
                break;
            }
            for claimed in page {
                at += 1;
                if claimed.event_fragments == 0 {
                    continue;
                }
                let run = schema.run_of(claimed.primary.as_bytes());
                if let std::collections::btree_map::Entry::Vacant(unknown) = manifests.entry(run) {
                    let there = self.patiently(work, || self.archive.begin_run(run, &keyspace.name))?;
                    self.look_back(work, &there);
                    unknown.insert(there);
                }
                let mut event = None;
                let streams = self.streams_of(&claimed);
                let mut named = 0;
                for stream in &streams {
                    let done = manifests.get(&run).map_or(0, |known| known.done_of(&claim.store, &claim.unit, stream));
                    let group = groups.entry((run, stream.clone())).or_insert_with(|| Group::after(done));
                    // Named and proved by a mover before.
                    if at <= done {
                        named += 1;
                        continue;
                    }
                    if event.is_none() {
                        let sources = claimed.sources.clone().map_or(Sources::All, Sources::Only);
                        let read = || self.store.get_event(&claimed.primary, &sources);
                        let found = self.patiently(work, read)?;
                        // It may have been removed, or replayed, since it was listed: then its claim is about the rest.
                        event = found.filter(|event| {
                            matches!(event.state, LiveState::Accepted | LiveState::Debug) && !event.fragments.is_empty()
                        });
                    }
                    let Some(event) = &event else { break };
                    let attributes: &[u8] = match event.attributes == Attributes::default() {
                        true => &[],
                        false => {
                            event.attributes.pack(&keyspace.attributes, &mut packed);
                            &packed
                        }
                    };
                    if group.builder.is_none() {
                        let head = self.head(claim, run, stream, group.from)?;
                        let spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner).pop();
                        // As large as the unit lets it become, with what its tables take.
                        let expected = self.options.object_bytes.min(claim.bytes as usize) / 16 * 17 + TABLES_BYTES;
                        group.builder = Some(Builder::new(&head, schema, spare.unwrap_or_default(), expected)?);
                    }
                    if let Some(builder) = &mut group.builder {
                        builder.push(&claimed, event, attributes, schema)?;
                    }
                    group.see(&claimed.primary, lumi.and_then(|lumi| event.attributes.get(lumi)));
                    if group.builder.as_ref().is_some_and(|builder| builder.len() >= self.options.object_bytes)
                        && !self.end_object(work, (run, stream), group, at)?
                    {
                        return Ok(Tried::Overtaken);
                    }
                }
                *skipped.entry(run).or_default() += u64::from(named == streams.len());
            }
        }
        // What is proved was written here, or is named.
        for (run, manifest) in &manifests {
            let (known, end) = manifest.extent_of(&claim.store, &claim.unit);
            let skipped = skipped.get(run).copied().unwrap_or_default();
            if end > at || skipped > known {
                return Err(Error::corrupt(format!(
                    "run {run}: the manifest names {known} events of {:?}, up to number {end}; the store has {at}, and {skipped} of these are said \
                     to be named: nothing of it is proved",
                    claim.unit
                )));
            }
        }
        for ((run, stream), group) in &mut groups {
            if group.builder.is_some() && !self.end_object(work, (*run, stream), group, at)? {
                return Ok(Tried::Overtaken);
            }
        }
        Ok(Tried::Done)
    }

    /// Says so once where the archive knows what the store does not know any more.
    fn look_back(&self, work: &Work<'_>, manifest: &Manifest) {
        let Some(later) = manifest.ahead_of(&work.claim.store, &work.claim.unit) else { return };
        if !self.is_said.swap(true, Ordering::Relaxed) {
            (work.tell)(News::SetBack(&format!(
                "this store was set back: it fills {:?}, and run {} of the archive has `{}` of {:?}. Was an old backup restored? What it had \
                 decided since is in the archive twice, or decided differently; `forebay archive audit` compares them",
                work.claim.unit, manifest.run, later.name, later.unit
            )));
        }
    }

    /// Names of the objects that an event goes into.
    fn streams_of(&self, claimed: &ClaimedEvent) -> Vec<String> {
        if claimed.state == LiveState::Debug || claimed.streams.is_empty() {
            return vec!["debug".to_owned()];
        }
        let most = if self.options.per_stream { claimed.streams.len() } else { 1 };
        claimed.streams.iter().take(most).map(|(name, _)| name.clone()).collect()
    }

    fn head(&self, claim: &Claim, run: u64, stream: &str, from: u64) -> Result<Head> {
        Ok(Head {
            store: claim.store.clone(),
            keyspace: self.store.keyspace().to_toml()?,
            run,
            stream: stream.to_owned(),
            unit: claim.unit.clone(),
            of_unit: (from, from),
            written_ms: now_ms(),
        })
    }

    /// Puts an object, proves it, and names it; `false` where another mover has named its events.
    fn end_object(&self, work: &Work<'_>, (run, stream): (u64, &str), group: &mut Group, to: u64) -> Result<bool> {
        let Some(builder) = group.builder.take() else { return Ok(true) };
        let built = builder.finish();
        let (bytes, contents) = (&built.bytes, built.contents);
        let name = self.put_proved(work, run, stream, bytes)?;
        let (Some(first), Some(last)) = (group.first.take(), group.last.take()) else {
            return Err(Error::internal("an object without events"));
        };
        let object = ManifestObject {
            name: name.clone(),
            bytes: bytes.len() as u64,
            adler32: built.adler32.clone(),
            md5: self.options.md5.then(|| Md5::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()),
            stream: stream.to_owned(),
            contents,
            first,
            last,
            lumi: group.lumi.take(),
            store: work.claim.store.clone(),
            unit: work.claim.unit.clone(),
            of_unit: (group.from, to),
            written_ms: now_ms(),
        };
        group.from = to;
        // A place may still have a handle of it; a copy would cost what is saved here.
        if let Some(memory) = built.into_memory() {
            let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
            if spare.len() < self.options.lanes {
                spare.push(memory);
            }
        }
        let named = self.patiently(work, || {
            // Held for as long as the place lets a change of the manifest take: the others need its outcome anyway.
            let _turn = self.naming.lock().unwrap_or_else(PoisonError::into_inner);
            self.still_there()?;
            self.archive.extend(run, &object)
        })?;
        if !named {
            // Best effort: `gc` removes what stays.
            let _ = self.archive.place().remove(&[name]);
            return Ok(false);
        }
        self.note(|moved| {
            moved.objects += 1;
            moved.object_bytes += object.bytes;
            moved.contents.events += contents.events;
            moved.contents.fragments += contents.fragments;
            moved.contents.payload_bytes += contents.payload_bytes;
        });
        Ok(true)
    }

    /// Puts an object under a name of its own, until it comes back as it went; answers the name.
    fn put_proved(&self, work: &Work<'_>, run: u64, stream: &str, bytes: &Bytes) -> Result<String> {
        let what = match &work.claim.unit {
            Unit::Container { container, generation, .. } => format!("c{container}-g{generation}"),
            Unit::Batch => "batch".to_owned(),
        };
        let mut tries = 0;
        loop {
            tries += 1;
            // A new name each time: what an earlier try left can never be taken for this one.
            let name = Archive::name_for(run, stream, &what);
            let place = self.archive.place();
            self.patiently(work, || {
                self.keep_rate(bytes.len() as u64);
                self.check(work)?;
                place.put(&[(name.clone(), bytes.clone())])
            })?;
            let back = self.patiently(work, || place.compare_back(&name, bytes));
            let compared = back.and_then(|back| compare(bytes, back));
            let error = match compared {
                Ok(()) => return Ok(name),
                Err(error) => error,
            };
            if error.kind() != Kind::Corrupt {
                return Err(error);
            }
            self.note(|moved| moved.failed += 1);
            tracing::error!(%error, name, "an object did not come back as it went");
            let _ = place.remove(&[name]);
            if tries == PUTS_MAX {
                return Err(error);
            }
        }
    }

    /// Waits until this many bytes more keep within the rate.
    fn keep_rate(&self, bytes: u64) {
        let Some(rate) = self.options.bytes_per_second else { return };
        let begin = {
            let mut free_at = self.free_at.lock().unwrap_or_else(PoisonError::into_inner);
            let begin = (*free_at).max(Instant::now());
            *free_at = begin + Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64);
            begin
        };
        self.sleep(begin.saturating_duration_since(Instant::now()));
    }
}

impl Group {
    fn after(done: u64) -> Group {
        Group { builder: None, from: done, first: None, last: None, lumi: None }
    }

    fn see(&mut self, primary: &Primary, lumi: Option<u128>) {
        self.first = Some(self.first.map_or(*primary, |first| first.min(*primary)));
        self.last = Some(self.last.map_or(*primary, |last| last.max(*primary)));
        if let Some(lumi) = lumi.and_then(|lumi| u64::try_from(lumi).ok()) {
            let (low, high) = self.lumi.unwrap_or((lumi, lumi));
            self.lumi = Some((low.min(lumi), high.max(lumi)));
        }
    }
}

/// Whether what came back is what went, and each fragment of it has the checksum that the readout gave it.
fn compare(sent: &Bytes, back: Back) -> Result<()> {
    match back {
        Back::Same => {}
        Back::Missing => return Err(Error::corrupt("what was put is not there")),
        Back::Differs { at, bytes } => {
            return Err(Error::corrupt(format!(
                "it comes back with other bytes from {at} on ({bytes} of {})",
                sent.len()
            )));
        }
    }
    // After the comparison: a copy in memory that was damaged meanwhile is the same on the medium.
    let read = |range| piece_of(sent, range);
    Object::open(sent.len() as u64, &read)?.verify(&read).map(|_| ())
}

fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(0.5 + rand::random::<f64>())
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
