//! The operator: ticks the store, and does to it what happens in a control room and a machine room.

use super::books::{Books, Ending};
use super::scene::{BY_HAND, SOURCES, Scene, check, payload};
use forebay_core::{Attributes, Kind, Result, Tally};
use forebay_store::{PutOptions, PutOutcome, Sampler, Sampling, Store};
use rand::RngExt;
use rand::rngs::StdRng;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Runs that take events at once.
const RUNS: usize = 3;
/// Longest time in which nobody selects, so that the store fills.
const FILL_MAX: Duration = Duration::from_millis(500);
/// Most holds at once.
const HOLDS: usize = 3;

pub(super) struct Operator<'s> {
    scene: &'s Scene,
    store: &'s Store,
    pub(super) books: Books,
    stalled_until: Option<Instant>,
    holds: Vec<u32>,
    sampler: Option<Sampler>,
}

impl<'s> Operator<'s> {
    pub(super) fn new(scene: &'s Scene, store: &'s Store) -> Operator<'s> {
        let sampler = store.sampler(&Sampling { rate_hz: 200.0, ..Sampling::default() }).ok();
        Operator { scene, store, books: Books::default(), stalled_until: None, holds: Vec::new(), sampler }
    }

    /// Events that only the operator touches are kept from workers, over restarts too.
    pub(super) fn hold_by_hand(&mut self) {
        let held = self.store.hold(None, &["class=by-hand"]);
        self.books.expect("hold of events by hand", held);
    }

    /// Until the life is over.
    pub(super) fn run(&mut self, end: Instant, random: &mut StdRng) {
        // Each life begins with a selection that does nothing until the store is full.
        self.stall(FILL_MAX);
        while Instant::now() < end {
            self.store.tick();
            self.opens(random);
            let full = self.scene.full.swap(false, Ordering::Relaxed);
            if self.stalled_until.is_some_and(|until| full || Instant::now() >= until) {
                self.stalled_until = None;
                self.scene.stalled.store(false, Ordering::Relaxed);
            }
            if let Err(error) = self.act(random) {
                self.books.problem(format!("operator: {error}"));
            }
            std::thread::sleep(Duration::from_micros(random.random_range(300..3000)));
        }
        self.scene.stalled.store(false, Ordering::Relaxed);
        for hold in std::mem::take(&mut self.holds) {
            let released = self.store.release_hold(hold);
            self.books.expect("release of a hold", released);
        }
    }

    fn stall(&mut self, most: Duration) {
        self.books.count("selection stalled");
        self.scene.full.store(false, Ordering::Relaxed);
        self.scene.stalled.store(true, Ordering::Relaxed);
        self.stalled_until = Some(Instant::now() + most);
    }

    fn opens(&mut self, random: &mut StdRng) {
        while self.scene.runs.lock().len() < RUNS {
            let run = u64::from(self.scene.next_run.fetch_add(1, Ordering::Relaxed));
            let opened = self.scene.run_config(random).and_then(|config| self.store.run_open(run, &config));
            match opened {
                Ok(()) => {
                    self.scene.runs.lock().push(run);
                    self.books.count("runs opened");
                    self.books.run(run);
                }
                Err(error) if error.kind() == Kind::Full => return,
                Err(error) => return self.books.problem(format!("opening run {run}: {error}")),
            }
        }
    }

    fn act(&mut self, random: &mut StdRng) -> Result<()> {
        let Some(run) = self.scene.any_run(random) else { return Ok(()) };
        let source = random.random_range(0..SOURCES);
        let packed = self.scene.schema.source(&[source])?;
        match random.random_range(0..100) {
            0..6 => {
                self.scene.dead.fetch_xor(1 << source, Ordering::Relaxed);
                self.books.count("sources died or returned");
            }
            6..10 => {
                let by = Duration::from_millis(random.random_range(5..400));
                self.scene.clock.jump(by);
                self.books.count("clock jumps");
            }
            10..16 => {
                let change = if random.random_bool(0.5) { Store::mask } else { Store::unmask };
                let from = self.scene.primary((run, random.random_range(1..20_000)))?;
                let answer = change(self.store, run, &packed, random.random_bool(0.3).then_some(&from));
                self.allowed("masks changed", answer, &[Kind::Full, Kind::Closed]);
            }
            16..22 => {
                let change = if random.random_bool(0.5) { Store::run_pause } else { Store::run_resume };
                let answer = change(self.store, run);
                self.allowed("runs paused or resumed", answer, &[Kind::Full, Kind::Closed]);
            }
            22..28 => self.hold(run, random),
            // Rare, or nobody would select most of the time.
            28 => {
                self.stall(Duration::from_millis(random.random_range(20..150)));
            }
            32..35 => {
                let answer = self.store.run_stop(run);
                self.allowed("runs stopped", answer, &[Kind::Full, Kind::Closed]);
            }
            35..45 => self.close(run),
            45..60 => self.by_hand(run)?,
            60..75 => self.debug(random),
            75..80 => {
                if let Some(sampler) = &mut self.sampler
                    && let Some(sample) = sampler.next(Duration::ZERO)?
                {
                    self.books.count("events sampled");
                    for fragment in &sample.fragments {
                        let verified = fragment.verify();
                        self.books.expect("a fragment of a sample", verified);
                    }
                }
            }
            80..85 => {
                let key = self.scene.key((run, random.random_range(1..20_000)), source)?;
                let why = self.store.why(&key);
                self.books.expect("why", why);
            }
            85..90 => {
                let imbalance = self.store.ledger(run)?.imbalance();
                self.books.count("ledgers looked at");
                if let Some(imbalance) = imbalance {
                    self.books.problem(format!("run {run} in the middle: {imbalance}"));
                }
            }
            _ => self.archive(usize::MAX),
        }
        Ok(())
    }

    fn allowed(&mut self, what: &'static str, answer: Result<()>, kinds: &[Kind]) {
        match answer {
            Ok(()) => self.books.count(what),
            Err(error) if kinds.contains(&error.kind()) => {}
            Err(error) => self.books.problem(format!("{what}: {error}")),
        }
    }

    fn hold(&mut self, run: u64, random: &mut StdRng) {
        if self.holds.len() >= HOLDS || !self.holds.is_empty() && random.random_bool(0.5) {
            let hold = self.holds.swap_remove(random.random_range(0..self.holds.len()));
            let released = self.store.release_hold(hold);
            if self.books.expect("release of a hold", released) == Some(false) {
                self.books.problem(format!("hold {hold} was not there to be released"));
            }
            return;
        }
        match self.store.hold(Some(run), &["lumi=0..3"]) {
            Ok(hold) => {
                self.holds.push(hold);
                self.books.count("holds set");
            }
            Err(error) if error.kind() == Kind::Full => {}
            Err(error) => self.books.problem(format!("hold: {error}")),
        }
    }

    /// Closes a run that has nothing left.
    pub(super) fn close(&mut self, run: u64) {
        match self.store.run_close(run) {
            Ok(summary) => {
                self.scene.runs.lock().retain(|open| *open != run);
                self.books.count("runs closed");
                for producer in summary.producers {
                    let said = (producer.fragments, producer.bytes, producer.finished);
                    self.books.summaries.insert((run, producer.name), said);
                }
                if let Some(imbalance) = summary.ledger.imbalance() {
                    self.books.problem(format!("summary of run {run}: {imbalance}"));
                }
            }
            Err(error) if matches!(error.kind(), Kind::Unavailable | Kind::Full) => {}
            Err(error) => self.books.problem(format!("closing run {run}: {error}")),
        }
    }

    /// An event from its first fragment to its removal, with an update and the removal of a single fragment.
    fn by_hand(&mut self, run: u64) -> Result<()> {
        let event = (run, BY_HAND + u64::from(self.scene.next_by_hand.fetch_add(1, Ordering::Relaxed)));
        let attributes = Attributes::parse(&self.scene.keyspace.attributes, &["class=by-hand"])?;
        let options = PutOptions { attributes: Some(&attributes), ..PutOptions::default() };
        let mut live = [None; 3];
        for (source, live) in live.iter_mut().enumerate() {
            let bytes = payload(event, source as u64, 0);
            let answer = self.store.put(&self.scene.key(event, source as u64)?, &bytes, &options);
            let book = self.books.run(run);
            let offered = Tally::fragment(bytes.len() as u64);
            match answer {
                Ok(PutOutcome::Stored) => {
                    book.stored += offered;
                    *live = Some(bytes.len() as u64);
                }
                Err(error) if matches!(error.kind(), Kind::Full | Kind::Closed) => book.refused += offered,
                Ok(other) => self.books.problem(format!("put by hand of {event:?}: {other:?}")),
                Err(error) => self.books.problem(format!("put by hand of {event:?}: {error}")),
            }
            self.books.run(run).offered += offered;
        }
        if live.iter().all(Option::is_none) {
            return Ok(());
        }
        self.books.by_hand.insert(event);
        self.change_by_hand(event, &mut live)?;
        let removed = self.store.remove_event(&self.scene.primary(event)?);
        if self.books.expect("removal of an event", removed) != Some(true) {
            self.books.problem(format!("event {event:?} was not there to be removed"));
            return Ok(());
        }
        let removed = &mut self.books.run(run).removed;
        removed.events += 1;
        live.iter().flatten().for_each(|bytes| *removed += Tally::fragment(*bytes));
        self.books.count("events removed by hand");
        Ok(())
    }

    fn change_by_hand(&mut self, event: (u64, u64), live: &mut [Option<u64>; 3]) -> Result<()> {
        if let Some(before) = live[0] {
            let (key, bytes) = (self.scene.key(event, 0)?, payload(event, 0, 1));
            match self.store.update(&key, &bytes, None) {
                Ok(_) => {
                    let book = self.books.run(event.0);
                    let version = Tally::fragment(bytes.len() as u64);
                    book.offered += version;
                    book.stored += version;
                    book.superseded += Tally::fragment(before);
                    live[0] = Some(bytes.len() as u64);
                }
                Err(error) if error.kind() == Kind::Full => {}
                Err(error) => self.books.problem(format!("update of {event:?}: {error}")),
            }
        }
        if let Some(bytes) = live[1] {
            let removed = self.store.remove(&self.scene.key(event, 1)?);
            if self.books.expect("removal of a fragment", removed) == Some(true) {
                self.books.run(event.0).removed += Tally::fragment(bytes);
                live[1] = None;
            }
        }
        Ok(())
    }

    /// What nobody could process goes to workers again, or to the archive.
    fn debug(&mut self, random: &mut StdRng) {
        for info in self.store.debug_events().into_iter().take(20) {
            if random.random_bool(0.5) {
                match self.store.replay(&info.primary) {
                    Ok(_) => self.books.count("events replayed"),
                    // Its run was closed while it was there: the archive has to take it.
                    Err(error) if error.kind() == Kind::Closed => {}
                    Err(error) => self.books.problem(format!("replay: {error}")),
                }
            } else {
                self.release(&info.primary, "debug events released");
            }
        }
    }

    pub(super) fn release(&mut self, primary: &forebay_core::Primary, what: &'static str) {
        let name = self.scene.name(primary);
        let released = self.store.release(primary);
        match self.books.expect(what, released) {
            Some(true) => {
                self.books.endings.push((name, Ending::Released));
                self.books.count(what);
            }
            Some(false) => self.books.problem(format!("{what}: event {name:?} was not there")),
            None => {}
        }
    }

    /// The archive takes over what was accepted, after a look at its bytes.
    pub(super) fn archive(&mut self, most: usize) {
        let taken: Vec<_> = {
            let mut accepted = self.scene.accepted.lock();
            let from = accepted.len().saturating_sub(most);
            accepted.drain(from..).collect()
        };
        for primary in taken {
            let event = self.store.get_event(&primary, &forebay_store::Sources::All);
            match self.books.expect("an accepted event", event).flatten() {
                Some(event) => {
                    for fragment in &event.fragments {
                        let verified = fragment.verify().and_then(|()| check(self.scene, &fragment.key(), fragment));
                        self.books.expect("a fragment of an accepted event", verified);
                    }
                }
                None => self.books.problem(format!("accepted event {:?} is gone", self.scene.name(&primary))),
            }
            self.release(&primary, "events released");
        }
    }
}
