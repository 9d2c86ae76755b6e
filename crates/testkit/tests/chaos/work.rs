//! A worker: decides events, in order most of the time; crashes, hangs, and lies with tokens that are not in force.

use super::books::{Books, Ending};
use super::scene::{FAST, FINAL, RESULT_ACCEPT, RESULT_PASS, Scene, check, payload};
use forebay_core::{Kind, Primary, Result, ResultFragment, Tally, Token};
use forebay_store::{Accept, GetAny, Lease, Sources, Store};
use rand::RngExt;
use rand::rngs::StdRng;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Tokens that a worker remembers for lying with them.
const OLD_MAX: usize = 64;
/// Leases that a worker keeps beyond all measure.
const HUNG_MAX: usize = 8;

/// What a token was used for, so that anything else with it must be fenced.
#[derive(Clone, Copy, PartialEq)]
enum Used {
    Rejected,
    Accepted,
    Requeued,
}

struct Worker<'s> {
    scene: &'s Scene,
    store: &'s Store,
    books: Books,
    old: Vec<(Primary, Token, Used)>,
    hung: Vec<Lease>,
    crashed: Vec<(Primary, Token)>,
}

/// The body of a worker thread, for one life of the store.
pub(super) fn run(scene: &Scene, store: &Store, life: u64, thread: u64) -> Books {
    let mut random = scene.random(life, thread);
    let mut worker =
        Worker { scene, store, books: Books::default(), old: Vec::new(), hung: Vec::new(), crashed: Vec::new() };
    while !scene.over() {
        if scene.stalled.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(2));
            continue;
        }
        if let Err(error) = worker.round(&mut random) {
            worker.books.problem(format!("worker: {error}"));
        }
    }
    let hung = worker.hung.iter().map(|lease| (lease.primary, lease.token));
    worker.books.stale.extend(hung.chain(worker.crashed).take(OLD_MAX));
    worker.books
}

/// Rejects everything that is ready, as the last worker of all.
pub(super) fn drain(scene: &Scene, store: &Store) -> Result<(Books, usize)> {
    let mut worker =
        Worker { scene, store, books: Books::default(), old: Vec::new(), hung: Vec::new(), crashed: Vec::new() };
    let mut taken = 0;
    for stage in [FINAL, FAST] {
        for lease in store.get_any(&GetAny { stage: Some(stage.to_owned()), n: 256, ..GetAny::default() })? {
            taken += 1;
            worker.verify(&lease);
            worker.reject(&lease)?;
        }
    }
    Ok((worker.books, taken))
}

impl Worker<'_> {
    fn round(&mut self, random: &mut StdRng) -> Result<()> {
        let stage = if random.random_bool(0.3) { FINAL } else { FAST };
        let request = GetAny {
            stage: Some(stage.to_owned()),
            n: random.random_range(1..16),
            wait: Duration::from_millis(2),
            ..GetAny::default()
        };
        for lease in self.store.get_any(&request)? {
            self.verify(&lease);
            self.decide(lease, stage, random)?;
        }
        self.lie(random);
        self.keep_hanging(random)
    }

    fn verify(&mut self, lease: &Lease) {
        for fragment in &lease.fragments {
            let verified = fragment.verify().and_then(|()| check(self.scene, &fragment.key(), fragment));
            self.books.expect("a fragment of a leased event", verified);
        }
    }

    fn decide(&mut self, lease: Lease, stage: &str, random: &mut StdRng) -> Result<()> {
        match random.random_range(0..100) {
            0..55 => self.reject(&lease),
            55..75 => self.accept(&lease, random),
            75..85 if stage == FAST => self.pass(&lease),
            75..90 => {
                match lease.requeue() {
                    Ok(()) => self.used(&lease, Used::Requeued),
                    Err(error) => self.fenced("requeue", &error),
                }
                Ok(())
            }
            90..97 => {
                self.books.count("workers crashed");
                self.crashed.push((lease.primary, lease.token));
                self.crashed.truncate(OLD_MAX);
                Ok(())
            }
            _ => {
                if self.hung.len() < HUNG_MAX {
                    self.books.count("workers hung");
                    self.hung.push(lease);
                }
                Ok(())
            }
        }
    }

    fn reject(&mut self, lease: &Lease) -> Result<()> {
        match lease.reject() {
            Ok(()) => {
                self.books.endings.push((self.scene.name(&lease.primary), Ending::Rejected));
                self.used(lease, Used::Rejected);
            }
            Err(error) => self.fenced("reject", &error),
        }
        Ok(())
    }

    fn accept(&mut self, lease: &Lease, random: &mut StdRng) -> Result<()> {
        let name = self.scene.name(&lease.primary);
        let mut streams = vec![("physics", Sources::All)];
        if random.random_bool(0.3) {
            streams.push(("calib", self.scene.part()?));
        }
        let (source, bytes) = (self.scene.schema.source(&[RESULT_ACCEPT])?, payload(name, RESULT_ACCEPT, 0));
        let results = [ResultFragment::new(&source, &bytes)];
        let results = if random.random_bool(0.5) { &results[..] } else { &[] };
        match lease.accept_into(&Accept { streams: &streams, results }) {
            Ok(()) => {
                self.result(lease, results.iter().map(|result| result.bytes.len() as u64).sum(), results.len());
                self.scene.accepted.lock().push(lease.primary);
                self.used(lease, Used::Accepted);
                self.books.count("events accepted");
            }
            Err(error) if error.kind() == Kind::Full => {
                self.books.count("results without space");
                self.reject(lease)?;
            }
            Err(error) => self.fenced("accept", &error),
        }
        Ok(())
    }

    fn pass(&mut self, lease: &Lease) -> Result<()> {
        let bytes = payload(self.scene.name(&lease.primary), RESULT_PASS, 0);
        let source = self.scene.schema.source(&[RESULT_PASS])?;
        match lease.pass(FINAL, &[ResultFragment::new(&source, &bytes)]) {
            Ok(()) => {
                self.result(lease, bytes.len() as u64, 1);
                self.books.count("events passed");
            }
            Err(error) if error.kind() == Kind::Full => self.books.count("results without space"),
            Err(error) => self.fenced("pass", &error),
        }
        Ok(())
    }

    /// A result is offered and stored with its verdict.
    fn result(&mut self, lease: &Lease, bytes: u64, results: usize) {
        if results == 0 {
            return;
        }
        let (name, tally) = (self.scene.name(&lease.primary), Tally::fragment(bytes));
        let book = self.books.run(name.0);
        book.offered += tally;
        book.stored += tally;
        *self.books.contents.entry(name).or_default() += tally;
    }

    /// A verdict that came too late: the clock had jumped, or the lease was held for too long.
    fn fenced(&mut self, what: &str, error: &forebay_core::Error) {
        if error.kind() == Kind::Fenced {
            self.books.count("verdicts fenced");
        } else {
            self.books.problem(format!("{what}: {error}"));
        }
    }

    fn used(&mut self, lease: &Lease, used: Used) {
        if self.old.len() == OLD_MAX {
            self.old.remove(0);
        }
        self.old.push((lease.primary, lease.token, used));
    }

    /// Calls with tokens that are not in force: every one must be fenced.
    fn lie(&mut self, random: &mut StdRng) {
        if self.old.is_empty() || !random.random_bool(0.3) {
            return;
        }
        let (primary, token, used) = self.old[random.random_range(0..self.old.len())];
        let forged = Token { counter: token.counter.wrapping_add(1 << 40), ..token };
        let answers = match used {
            Used::Rejected => vec![
                ("accept after reject", self.store.accept(&primary, &token, &["physics"])),
                ("reject with a forged token", self.store.reject(&primary, &forged)),
            ],
            Used::Accepted => vec![
                ("reject after accept", self.store.reject(&primary, &token)),
                ("heartbeat after accept", self.store.extend(&primary, &token, Duration::from_secs(1))),
            ],
            Used::Requeued => vec![("reject after requeue", self.store.reject(&primary, &token))],
        };
        for (lie, answer) in answers {
            self.must_be_fenced(lie, answer);
        }
        if used == Used::Rejected
            && (primary, token) == self.old.last().map_or((primary, token), |last| (last.0, last.1))
        {
            let again = self.store.reject(&primary, &token);
            if self.books.expect("the same reject again", again).is_some() {
                self.books.count("verdicts repeated");
            }
        }
        let stale = self.scene.stale.lock().pop();
        if let Some((primary, token)) = stale {
            let answer = self.store.reject(&primary, &token);
            self.must_be_fenced("reject with a token of an earlier life", answer);
        }
    }

    fn must_be_fenced(&mut self, lie: &str, answer: Result<()>) {
        match answer {
            Err(error) if error.kind() == Kind::Fenced => self.books.count("lies fenced"),
            Err(error) => self.books.problem(format!("{lie}: {error}, expected Fenced")),
            Ok(()) => self.books.problem(format!("{lie}: succeeded, expected Fenced")),
        }
    }

    /// Heartbeats for leases that nobody works on, until the store has enough of it.
    fn keep_hanging(&mut self, random: &mut StdRng) -> Result<()> {
        for lease in std::mem::take(&mut self.hung) {
            match lease.extend(Duration::from_millis(30)) {
                Err(error) if error.kind() == Kind::Fenced => {
                    self.books.count("hung leases ended by the store");
                    // The token decides, not the clock: until the store has looked, the verdict still counts.
                    self.reject(&lease)?;
                }
                Err(error) => self.books.problem(format!("heartbeat: {error}")),
                Ok(()) if random.random_bool(0.02) => self.reject(&lease)?,
                Ok(()) => self.hung.push(lease),
            }
        }
        Ok(())
    }
}
