//! Drives a chaos: one life of the store after another, each ended by a close or by a simulated death of its process.
//!
//! ```text
//! life:  open ─▶ 2 producers, 2 workers, 1 operator, 1 ring ─▶ all end ─▶ ledgers = books? ─▶ close, or a copy of both
//!        levels as a dead process would leave them ─▶ next life
//! end:   drain, release, close every run ─▶ ledger of every run = books, term by term
//! ```
//!
//! Sources die and return, filters crash, hang and lie with tokens that are not in force, the clock jumps, runs pause, stop
//! and close, sources are masked, events held, removed and updated by hand, the store is full on both of its levels, and so
//! is a ring.
//!
//! *Invariants*: what the driver counts comes from the answers that it got, never from the store's figures (`books`). A
//! restart without a close forgets counts of what was never stored, as documented: by how much is read at each one and
//! shown as a term of its own; nothing else may change over it.
//!
//! *On failure*: a [`Report`] that is not balanced says what does not add up, and the seed.

use super::books::Books;
use super::operate::Operator;
use super::report::{Report, Term, forgettable, forgotten_of, ring_terms, terms};
use super::ring::{self, RingBooks};
use super::scene::{PRODUCERS, Scene, WORKERS};
use super::{produce, work};
use forebay_core::{Error, Kind, Ledger, Result, Tally};
use forebay_store::{Config, Store};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How long one life of the store lasts.
const LIFE: Duration = Duration::from_millis(700);
/// Fewest lives.
const LIVES_MIN: u64 = 3;
/// Longest time in which everything must be decided at the end.
const DRAIN: Duration = Duration::from_secs(60);
/// The thread number of the operator and the ring, for their chances.
const OPERATOR: u64 = 100;
const RING: u64 = 101;

/// A directory for the stores of one chaos, under the system's temporary one; removed on drop.
struct Directory(PathBuf);

impl Directory {
    fn new() -> std::io::Result<Directory> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("forebay-chaos-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path)?;
        Ok(Directory(path))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // The chaos has its result by now: a directory that stays changes nothing about it.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs a chaos for this time; draining comes on top. The same seed does the same again, as far as threads and clocks let
/// it.
///
/// # Errors
/// `Unavailable` without room or while the store cannot be opened again, and the errors of opening a store. What does
/// not add up is no error but a report that is not balanced.
pub(super) fn run(time: Duration, seed: u64) -> Result<Report> {
    let directory = Directory::new().map_err(|error| Error::unavailable("a temporary directory").with_source(error))?;
    Chaos::new(seed, &directory.0)?.run(time)
}

/// Copies the files of a directory, which has no others below.
fn copy_files(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        std::fs::copy(entry.path(), to.join(entry.file_name()))?;
    }
    Ok(())
}

struct Chaos {
    scene: Scene,
    store_dir: PathBuf,
    ring_dir: PathBuf,
    books: Books,
    ring_books: RingBooks,
    forgotten: BTreeMap<u64, [Tally; 5]>,
    lives: u64,
    crashes: u64,
}

impl Chaos {
    fn new(seed: u64, directory: &Path) -> Result<Chaos> {
        let scene = Scene::new(seed, directory.join("warm"))?;
        let (store_dir, ring_dir) = (directory.join("events"), directory.join("ring"));
        let store = Store::create(&store_dir, &scene.keyspace, scene.config())?;
        let mut operator = Operator::new(&scene, &store);
        operator.hold_by_hand();
        let books = operator.books;
        store.close()?;
        ring::create(&ring_dir)?;
        Ok(Chaos {
            scene,
            store_dir,
            ring_dir,
            books,
            ring_books: RingBooks::default(),
            forgotten: BTreeMap::new(),
            lives: 0,
            crashes: 0,
        })
    }

    fn run(mut self, time: Duration) -> Result<Report> {
        let start = Instant::now();
        while self.lives < LIVES_MIN || start.elapsed() < time {
            self.lives += 1;
            let store = self.open()?;
            self.live(&store);
            let went_down = store.warm_stats().map_or(0, |warm| warm.demoted_events);
            *self.books.faults.entry("events, or parts of them, gone down").or_default() += went_down;
            // Two of three lives end without a close.
            self.end(store, !self.lives.is_multiple_of(3))?;
            println!(
                "{:6.1} s  life {:>3} · {} events · {} problems",
                start.elapsed().as_secs_f64(),
                self.lives,
                self.books.contents.len(),
                self.books.problems.len()
            );
        }
        self.lives += 1;
        let store = self.open()?;
        self.drain(&store)?;
        let ledgers: BTreeMap<u64, Ledger> = store.runs().iter().map(|status| (status.run, status.ledger)).collect();
        self.check_producers();
        store.close()?;
        self.report(start.elapsed(), &ledgers)
    }

    fn open(&self) -> Result<Store> {
        Store::open(&self.store_dir, Config { verify: true, ..self.scene.config() })
    }

    /// One life: everybody at once, until the operator has had enough.
    fn live(&mut self, store: &Store) {
        let (scene, life) = (&self.scene, self.lives);
        scene.over.store(false, Ordering::Release);
        let mut random = scene.random(life, OPERATOR);
        let mut ring_random = scene.random(life, RING);
        let (ring_dir, ring_books) = (&self.ring_dir, &mut self.ring_books);
        let mut operator = Operator::new(scene, store);
        let books = std::thread::scope(|scope| {
            let producers = (0..PRODUCERS).map(|thread| scope.spawn(move || produce::run(scene, store, life, thread)));
            let workers = (0..WORKERS).map(|thread| scope.spawn(move || work::run(scene, store, life, 50 + thread)));
            let mut threads: Vec<_> = producers.chain(workers).collect();
            threads.push(scope.spawn(|| ring::live(scene, ring_dir, ring_books, &mut ring_random)));
            operator.run(Instant::now() + LIFE, &mut random);
            scene.over.store(true, Ordering::Release);
            let lost = |_| {
                let mut books = Books::default();
                books.problem("a thread of the chaos panicked".to_owned());
                books
            };
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(lost)).collect::<Vec<_>>()
        });
        self.books.merge(std::mem::take(&mut operator.books));
        books.into_iter().for_each(|books| self.books.merge(books));
        // Only now: in its own life a token may still be in force.
        self.scene.stale.lock().extend(std::mem::take(&mut self.books.stale));
    }

    /// Ends a life: by closing, or by leaving what a process that died now would leave.
    fn end(&mut self, store: Store, crash: bool) -> Result<()> {
        let ledgers = |store: &Store| -> BTreeMap<u64, Ledger> {
            store.runs().into_iter().map(|status| (status.run, status.ledger)).collect()
        };
        let before = ledgers(&store);
        self.check_outcomes(&before);
        let (region, image) = (self.store_dir.join("hot.fb"), self.store_dir.join("hot.image"));
        let warm_image = self.scene.warm_dir.with_extension("image");
        let moved = |error: std::io::Error| Error::unavailable("the copy of a level").with_source(error);
        if crash {
            self.crashes += 1;
            std::fs::copy(&region, &image).map_err(moved)?;
            copy_files(&self.scene.warm_dir, &warm_image).map_err(moved)?;
        }
        store.close()?;
        drop(store);
        if crash {
            std::fs::rename(&image, &region).map_err(moved)?;
            std::fs::remove_dir_all(&self.scene.warm_dir).map_err(moved)?;
            std::fs::rename(&warm_image, &self.scene.warm_dir).map_err(moved)?;
        }
        let store = self.open()?;
        let after = ledgers(&store);
        for (run, before) in &before {
            let Some(after) = after.get(run) else {
                self.books.problem(format!("run {run} is gone after a restart"));
                continue;
            };
            self.check_restart(*run, before, after, crash);
        }
        store.close()
    }

    /// Outcomes of puts, as soon as nobody is at work.
    fn check_outcomes(&mut self, ledgers: &BTreeMap<u64, Ledger>) {
        let mut problems = Vec::new();
        for (run, ledger) in ledgers {
            let book = self.books.runs.get(run).copied().unwrap_or_default();
            let forgotten = self.forgotten.get(run).copied().unwrap_or_default();
            for (name, found, counted) in [
                ("offered", ledger.offered, book.offered),
                ("stored", ledger.stored, book.stored),
                ("duplicate", ledger.duplicate, book.duplicate),
                ("conflict", ledger.conflict, book.conflict),
                ("late", ledger.late, book.late),
                ("refused", ledger.refused, book.refused),
            ] {
                let mut found = found;
                found += forgotten_of(name, &forgotten);
                if (found.fragments, found.bytes) != (counted.fragments, counted.bytes) {
                    problems
                        .push(format!("life {}, run {run}, {name}: ledger {found:?}, counted {counted:?}", self.lives));
                }
            }
            problems.extend(ledger.imbalance().map(|what| format!("life {}, run {run}: {what}", self.lives)));
        }
        problems.into_iter().for_each(|problem| self.books.problem(problem));
    }

    /// What a restart may change: the places of live events, and, without a close, counts of what was never stored.
    fn check_restart(&mut self, run: u64, before: &Ledger, after: &Ledger, crash: bool) {
        let gone = |ledger: &Ledger| {
            (ledger.stored, ledger.rejected, ledger.released, ledger.removed, ledger.superseded, ledger.lost)
        };
        if gone(before) != gone(after) {
            self.books.problem(format!("run {run} after a restart: {:?}, before {:?}", gone(after), gone(before)));
        }
        let forgotten = self.forgotten.entry(run).or_default();
        let mut wrong = None;
        for ((forgotten, before), after) in forgotten.iter_mut().zip(forgettable(before)).zip(forgettable(after)) {
            if after.fragments > before.fragments || after.bytes > before.bytes || !crash && after != before {
                wrong = Some((before, after));
            }
            *forgotten += before;
            *forgotten -= after;
        }
        if let Some((before, after)) = wrong {
            let how = if crash { "a crash" } else { "a close" };
            self.books.problem(format!("run {run} after {how}: {after:?} of what was never stored, before {before:?}"));
        }
        if let Some(imbalance) = after.imbalance() {
            self.books.problem(format!("run {run} after a restart: {imbalance}"));
        }
    }

    /// Decides, releases and closes everything.
    fn drain(&mut self, store: &Store) -> Result<()> {
        let mut operator = Operator::new(&self.scene, store);
        for hold in store.holds() {
            store.release_hold(hold.id)?;
        }
        let runs = self.scene.runs.lock().clone();
        for run in runs {
            match store.run_stop(run) {
                Err(error) if error.kind() != Kind::Closed => return Err(error),
                _ => {}
            }
        }
        let deadline = Instant::now() + DRAIN;
        while Instant::now() < deadline && !self.scene.runs.lock().is_empty() {
            self.scene.clock.jump(Duration::from_millis(200));
            store.tick();
            let (books, _) = work::drain(&self.scene, store)?;
            operator.books.merge(books);
            for info in store.debug_events() {
                operator.release(&info.primary, "debug events released");
            }
            operator.archive(usize::MAX);
            let runs = self.scene.runs.lock().clone();
            for run in runs {
                operator.close(run);
            }
        }
        for run in self.scene.runs.lock().iter() {
            let why = store.run_close(*run).err().map_or_else(String::new, |error| error.to_string());
            operator.books.problem(format!("run {run} does not close: {why}"));
        }
        let books = std::mem::take(&mut operator.books);
        drop(operator);
        self.books.merge(books);
        Ok(())
    }

    /// The summaries of runs repeat what their producers reported at the end, to the byte.
    fn check_producers(&mut self) {
        for finished in std::mem::take(&mut self.books.finished) {
            let said = self.books.summaries.get(&(finished.run, finished.name.clone())).copied();
            if said != Some((finished.fragments, finished.bytes, true)) {
                self.books.problem(format!("producer {finished:?}: the summary of its run says {said:?}"));
            }
            self.books.count("producers ended in order");
        }
    }

    fn report(self, took: Duration, ledgers: &BTreeMap<u64, Ledger>) -> Result<Report> {
        let (expected, mut problems) = self.books.expected();
        let mut sums: Vec<Term> = Vec::new();
        let mut events = [0; 4];
        for (run, expected) in &expected {
            let ledger = ledgers.get(run).copied().unwrap_or_default();
            let forgotten = self.forgotten.get(run).copied().unwrap_or_default();
            for (at, (term, found, counted)) in terms(&ledger, expected).into_iter().enumerate() {
                let forgotten = forgotten_of(term, &forgotten);
                let mut whole = found;
                whole += forgotten;
                let events_count = matches!(term, "rejected" | "released" | "removed");
                let same = if events_count {
                    whole == counted
                } else {
                    (whole.fragments, whole.bytes) == (counted.fragments, counted.bytes)
                };
                if !same {
                    problems.push(format!("run {run}, {term}: ledger {whole:?}, counted {counted:?}"));
                }
                if sums.len() <= at {
                    let none = Tally::default();
                    sums.push(Term { term, ledger: none, forgotten: none, counted: none });
                }
                sums[at].ledger += found;
                sums[at].forgotten += forgotten;
                sums[at].counted += counted;
            }
            let known = [ledger.announced(), ledger.complete, ledger.incomplete, ledger.never_seen];
            if (known[0], known[3]) != (expected.known, expected.never_seen) {
                problems.push(format!(
                    "run {run}: {} events known and {} never seen, counted {} and {}",
                    known[0], known[3], expected.known, expected.never_seen
                ));
            }
            problems.extend(ledger.imbalance().map(|what| format!("run {run}: {what}")));
            events.iter_mut().zip(known).for_each(|(sum, known)| *sum += known);
        }
        let (ring, ring_problems) = ring_terms(&ring::account(&self.ring_dir)?, &self.ring_books);
        problems.extend(ring_problems);
        let mut report = Report::of_books(self.scene.seed, self.books);
        report.problems.extend(problems);
        Ok(Report {
            seconds: took.as_secs_f64(),
            lives: self.lives,
            crashes: self.crashes,
            runs: expected.len(),
            terms: sums,
            ring,
            events,
            ..report
        })
    }
}
