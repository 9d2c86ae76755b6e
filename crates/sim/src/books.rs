//! The simulator's own account: what was offered, answered, granted and decided; and what must hold of it.
//!
//! *Invariants checked*: what was answered as stored is readable, with its bytes, until its event ends; late and closed are
//! final; an event has one verdict, and is granted no more after it; what was released is gone; a token is given once; a grant has
//! what was stored before; the ledger balances and agrees.
//!
//! *Not here*: the terms of the ledger beside *stored* (`counts.rs`).

use crate::counts::{Counts, Term};
use crate::net::Place;
use crate::world::CALM;
use forebay_core::{Elsewhere, Ledger, Level, LiveState, Report, Token, crc32c};
use forebay_wire::WirePut;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::Instant;

/// How long a lease lasts: no worker of the simulation extends one.
pub(crate) const LEASE: Duration = Duration::from_secs(3);
/// What a slow clock, a tick and an answer on its way add to it.
const SLACK: Duration = Duration::from_secs(2);

/// What a call did, as far as its caller knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    No,
    Perhaps,
    Yes,
}

/// A verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Judged {
    Accepted,
    Rejected,
}

/// The puts of one key.
#[derive(Default)]
struct Puts {
    /// Checksums of all bytes that were offered.
    offered: BTreeSet<u32>,
    /// Requests to put it that its home counts, or its holder if it is a conflict.
    sent: u64,
    /// Requests of a holder that asks whether the home has it, which are counted if it had it not.
    asked: bool,
    /// Bytes that may be stored: an answer is missing.
    perhaps: Vec<Vec<u8>>,
    /// Bytes that were answered as stored.
    stored: Option<Vec<u8>>,
    /// A holder has taken bytes, and tells their home.
    is_held: bool,
}

/// One event.
#[derive(Default)]
pub(crate) struct EventBook {
    puts: BTreeMap<u64, Puts>,
    /// And when it was known.
    verdict: Option<(Token, Judged, Instant)>,
    /// Verdicts without an answer.
    perhaps: Vec<(Token, Judged)>,
    /// And when it was known.
    released: Option<(Known, Instant)>,
    /// Sources whose fragments the archive has.
    archived: BTreeSet<u64>,
    /// When it was granted last.
    granted: Option<Instant>,
    /// When it was seen under a lease that should be over: a new grant may be on its way, but not for long.
    overdue: Cell<Option<Instant>>,
}

/// One run.
#[derive(Default)]
pub(crate) struct RunBook {
    pub(crate) events: BTreeMap<u64, EventBook>,
    /// When it was closed.
    pub(crate) closed: Option<Instant>,
    /// When it was to be opened.
    pub(crate) begun: Option<Instant>,
    counts: Counts,
}

/// A fragment as a home shows it.
pub(crate) enum Found {
    /// Its bytes.
    Bytes(Vec<u8>),
    /// Their length and checksum.
    Away(Elsewhere),
}

/// The account of a simulation.
#[derive(Default)]
pub(crate) struct Books {
    pub(crate) runs: BTreeMap<u64, RunBook>,
    /// By the node that gave them.
    tokens: BTreeSet<(Place, Token)>,
    /// When a node died last.
    died: Option<Instant>,
}

/// What a call found to be wrong.
pub(crate) type Checked = Result<(), String>;

/// How a put ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PutEnd {
    Stored,
    /// The same bytes were there.
    Duplicate,
    /// At a node that is not its home, which is told.
    Held,
    Conflict,
    /// Not stored, for good.
    Late,
    /// Full or closed: it is not stored, for good.
    Refused,
    /// Nothing was sent, or not taken: it is not stored, for good, and in no account.
    NotTaken,
    Unknown,
}

/// A put, as its producer knows it.
#[derive(Clone, Copy)]
pub(crate) struct Put<'a> {
    pub(crate) key: (u64, u64, u64),
    pub(crate) bytes: &'a [u8],
    pub(crate) began: Instant,
    /// Its bytes go to another node than its home.
    pub(crate) is_apart: bool,
    /// The home knew the run when it began.
    pub(crate) is_known: bool,
}

impl Books {
    pub(crate) fn event(&mut self, run: u64, event: u64) -> &mut EventBook {
        self.runs.entry(run).or_default().events.entry(event).or_default()
    }

    /// A put begins: from here on its bytes may be there.
    pub(crate) fn offered(&mut self, (run, event, source): (u64, u64, u64), bytes: &[u8]) {
        let puts = self.event(run, event).puts.entry(source).or_default();
        puts.perhaps.push(bytes.to_vec());
        puts.offered.insert(crc32c(bytes));
        self.runs.entry(run).or_default().counts.begins();
    }

    /// The request of a put was sent to a node; these are the holder of its bytes and its home.
    pub(crate) fn sent(&mut self, (run, event, source): (u64, u64, u64), to: Place, of: [Place; 2], put: &WirePut) {
        let Some(book) = self.runs.get_mut(&run) else { return };
        let puts = book.events.entry(event).or_default().puts.entry(source).or_default();
        match (put.level, put.report) {
            // The holder asks: that is counted only where it is new to the home.
            (Some(Level::Elsewhere), Report::Later) => puts.asked = true,
            (Some(Level::Elsewhere), _) => (puts.sent, book.counts.sent) = (puts.sent + 1, book.counts.sent + 1),
            _ => {
                puts.sent += 1;
                book.counts.tries += 1;
                // What a holder takes is counted when its home is told.
                book.counts.sent += u64::from(to == of[1] || of[0] == of[1]);
            }
        }
    }

    /// A node has died: what it counted since its last snapshot of the log is lost.
    pub(crate) fn died(&mut self) {
        self.died = Some(Instant::now());
        self.runs.values_mut().for_each(|book| book.counts.forget());
    }

    /// A put has ended.
    pub(crate) fn answered(&mut self, put: Put<'_>, end: PutEnd) -> Checked {
        let Put { key: (run, event, source), bytes, .. } = put;
        let Some(book) = self.runs.get_mut(&run) else { return Ok(()) };
        let is_closed = book.closed.is_some();
        let puts = book.events.entry(event).or_default().puts.entry(source).or_default();
        book.counts.answered(&put, end, puts.stored.is_none(), self.died.is_none_or(|died| put.began > died));
        let at = puts.perhaps.iter().position(|offered| offered == bytes);
        match end {
            PutEnd::Unknown => {}
            PutEnd::Held => puts.is_held = true,
            PutEnd::Late | PutEnd::Refused | PutEnd::NotTaken => _ = at.map(|at| puts.perhaps.remove(at)),
            PutEnd::Conflict => {
                at.map(|at| puts.perhaps.remove(at));
                if puts.stored.as_ref().is_some_and(|stored| stored == bytes) {
                    return Err(format!("{run}/{event}/{source}: a conflict with its own bytes"));
                }
            }
            PutEnd::Stored | PutEnd::Duplicate => {
                at.map(|at| puts.perhaps.remove(at));
                if let Some(stored) = &puts.stored
                    && stored != bytes
                {
                    return Err(format!("{run}/{event}/{source}: two different puts were answered as stored"));
                }
                if is_closed && puts.stored.is_none() {
                    return Err(format!("{run}/{event}/{source}: stored in a run that was closed"));
                }
                puts.stored = Some(bytes.to_vec());
            }
        }
        Ok(())
    }

    /// Sources of an event that are stored for sure now: a grant that is asked for from here on has them.
    pub(crate) fn stored(&self, run: u64) -> BTreeMap<u64, BTreeSet<u64>> {
        let events = self.runs.get(&run).into_iter().flat_map(|run| &run.events);
        let stored = |book: &EventBook| {
            let sources = book.puts.iter().filter(|(_, puts)| puts.stored.is_some());
            sources.map(|(source, _)| *source).collect()
        };
        events.map(|(event, book)| (*event, stored(book))).collect()
    }

    /// An event was granted by a node, with these fragments, in a call that began then.
    pub(crate) fn granted(
        &mut self,
        (run, event): (u64, u64),
        (by, token): (Place, Token),
        fragments: &[(u64, Vec<u8>)],
        stored_before: Option<&BTreeSet<u64>>,
        began: Instant,
    ) -> Checked {
        if !self.tokens.insert((by, token)) {
            return Err(format!("{run}/{event}: token {token} was given before"));
        }
        let book = self.event(run, event);
        book.granted = Some(Instant::now());
        // An answer that took as long as a lease may be of one that was over before the verdict, and so may one of another life of the home.
        if let Some((by, judged, known)) = book.verdict
            && (known < began || began.elapsed() < LEASE && by.boot == token.boot)
        {
            return Err(format!("{run}/{event}: granted again ({token}) after it was {judged:?} by {by}"));
        }
        if book.released.is_some_and(|(known, when)| known == Known::Yes && when < began) {
            return Err(format!("{run}/{event}: granted ({token}) after it was released"));
        }
        for (source, bytes) in fragments {
            check_bytes(&format!("{run}/{event}/{source}"), book.puts.get(source), |offered| offered == bytes)?;
        }
        for source in stored_before.into_iter().flatten() {
            if !fragments.iter().any(|fragment| fragment.0 == *source) {
                return Err(format!("{run}/{event}/{source}: stored before, and not in the grant {token}"));
            }
        }
        Ok(())
    }

    /// A verdict is on its way: from here on it may be in force.
    pub(crate) fn judges(&mut self, (run, event): (u64, u64), token: Token, judged: Judged) {
        self.event(run, event).perhaps.push((token, judged));
    }

    /// It was answered: in force, or not and never.
    pub(crate) fn judged(&mut self, (run, event): (u64, u64), token: Token, judged: Judged, known: Known) -> Checked {
        let Some(book) = self.runs.get_mut(&run) else { return Ok(()) };
        let book = book.events.entry(event).or_default();
        if known == Known::Perhaps {
            return Ok(());
        }
        book.perhaps.retain(|(perhaps, _)| *perhaps != token);
        if known == Known::Yes {
            if let Some((by, before, _)) = book.verdict {
                return Err(format!("{run}/{event}: {judged:?} by {token} after it was {before:?} by {by}"));
            }
            book.verdict = Some((token, judged, Instant::now()));
        }
        Ok(())
    }

    /// An accepted event was released, as far as the operator knows.
    pub(crate) fn released(&mut self, (run, event): (u64, u64), known: Known) {
        let released = &mut self.event(run, event).released;
        if known != Known::No && released.is_none_or(|(before, _)| before != Known::Yes) {
            *released = Some((known, Instant::now()));
        }
    }

    /// A mover has read a fragment, with these bytes.
    pub(crate) fn read(&self, (run, event, source): (u64, u64, u64), bytes: &[u8]) -> Checked {
        // One that is over may have left the books.
        let Some(book) = self.runs.get(&run) else { return Ok(()) };
        let puts = book.events.get(&event).and_then(|book| book.puts.get(&source));
        check_bytes(&format!("{run}/{event}/{source} in the archive"), puts, |offered| offered == bytes)
    }

    /// The archive has these fragments.
    pub(crate) fn archived(&mut self, fragments: Vec<(u64, u64, u64)>) {
        for (run, event, source) in fragments {
            if let Some(book) = self.runs.get_mut(&run).and_then(|run| run.events.get_mut(&event)) {
                book.archived.insert(source);
            }
        }
    }

    /// What the home of an event has of it must agree with what was answered; `calm` is how long no fault has been there.
    pub(crate) fn check_event(
        &self,
        (run, event): (u64, u64),
        found: Option<(LiveState, Vec<(u64, Found)>)>,
        calm: Duration,
    ) -> Checked {
        let Some(book) = self.runs.get(&run).and_then(|run| run.events.get(&event)) else { return Ok(()) };
        let name = format!("{run}/{event}");
        let Some((state, fragments)) = found else {
            let was_stored = book.puts.values().any(|puts| puts.stored.is_some());
            let mut stored = book.puts.iter().filter(|(_, puts)| puts.stored.is_some());
            let may_go = book.released.is_some() || stored.all(|(source, _)| book.archived.contains(source));
            let may_be_gone = match book.verdict {
                Some((_, Judged::Rejected, _)) => true,
                Some((_, Judged::Accepted, _)) => may_go,
                // Given up after too many deliveries, it goes to the archive as well.
                None => may_go || book.perhaps.iter().any(|(_, judged)| *judged == Judged::Rejected),
            };
            return if was_stored && !may_be_gone {
                Err(format!("{name}: stored, {:?}, and gone", book.verdict.map(|verdict| verdict.1)))
            } else {
                Ok(())
            };
        };
        if book.released.is_some_and(|(known, _)| known == Known::Yes) {
            return Err(format!("{name}: released, and found {}", state.name()));
        }
        match (book.verdict, state) {
            (Some((_, Judged::Accepted, _)), LiveState::Accepted) => {}
            (None, LiveState::Accepted) if !book.perhaps.iter().any(|(_, judged)| *judged == Judged::Accepted) => {
                return Err(format!("{name}: accepted by nobody"));
            }
            (None, _) => {}
            (Some((token, judged, _)), state) => {
                return Err(format!("{name}: {judged:?} by {token}, and found {}", state.name()));
            }
        }
        // A grant whose answer was lost in a fault is over in calm.
        let age = book.granted.map_or(Duration::ZERO, |at| at.elapsed());
        let is_overdue = state == LiveState::Leased && calm > CALM && age > LEASE + SLACK;
        let seen = book.overdue.replace(is_overdue.then(|| book.overdue.get().unwrap_or_else(Instant::now)));
        if is_overdue && seen.is_some_and(|seen| seen.elapsed() > Duration::from_millis(100)) {
            return Err(format!("{name}: a worker has it for {age:?}, longer than its lease"));
        }
        for (source, fragment) in &fragments {
            let is_it = |offered: &[u8]| match fragment {
                Found::Bytes(bytes) => offered == bytes,
                Found::Away(away) => is_of(away, offered),
            };
            check_bytes(&format!("{name}/{source}"), book.puts.get(source), is_it)?;
        }
        for (source, puts) in &book.puts {
            if puts.stored.is_some() && !fragments.iter().any(|fragment| fragment.0 == *source) {
                return Err(format!("{name}/{source}: stored, and not in the event"));
            }
        }
        Ok(())
    }

    /// The account's figures: stored are at least the fragments that were answered so, at most those that may be; the other terms
    /// are what `counts.rs` allows. Of a closed run each fragment that a holder has taken is stored or late, unless a fault was there: what
    /// is asked about is not counted, and a crash loses what was counted as late. Answers whether that could be compared.
    pub(crate) fn check_account(&self, run: u64, ledger: &Ledger, calm: Duration) -> Result<bool, String> {
        let Some(book) = self.runs.get(&run) else { return Ok(false) };
        let (stored, late) = (ledger.stored.fragments, ledger.late.fragments);
        let puts = || book.events.values().flat_map(|event| event.puts.values());
        let least = puts().filter(|puts| puts.stored.is_some()).count() as u64;
        let most = puts().filter(|puts| puts.stored.is_some() || !puts.perhaps.is_empty()).count() as u64;
        if !(least..=most).contains(&stored) {
            return Err(format!("run {run}: the ledger has {stored} stored fragments, the books {least} to {most}"));
        }
        let told = puts().filter(|puts| puts.stored.is_some() || puts.is_held).count() as u64;
        let is_calm = book.begun.is_some_and(|begun| calm > begun.elapsed() + CALM);
        let was_calm = book.closed.is_some() && is_calm;
        if was_calm && stored + late < told {
            return Err(format!(
                "run {run}: closed with {stored} fragments stored and {late} late, of {told} that were taken"
            ));
        }
        let repeats = |puts: &Puts| (puts.sent + u64::from(puts.asked)).saturating_sub(1);
        let others = puts().filter(|puts| puts.offered.len() > 1).map(repeats).sum();
        let most = [
            (Term::Duplicate, book.counts.most(Term::Duplicate, is_calm).min(puts().map(repeats).sum())),
            (Term::Conflict, if is_calm { book.counts.most(Term::Conflict, true).min(others) } else { others }),
            (Term::Late, book.counts.most(Term::Late, is_calm)),
            (Term::Refused, book.counts.most(Term::Refused, is_calm)),
        ];
        for (term, most) in most {
            let (least, found) = (book.counts.least(term), term.of(ledger).fragments);
            if !(least..=most).contains(&found) {
                return Err(format!(
                    "run {run}: the ledger has {found} fragments {term:?}, the books {least} to {most}"
                ));
            }
        }
        book.counts.check().map_err(|what| format!("run {run}: {what}"))?;
        Ok(was_calm)
    }

    /// The run is closed; earlier ones are forgotten.
    pub(crate) fn closed(&mut self, run: u64) {
        if let Some(book) = self.runs.get_mut(&run) {
            book.closed = Some(Instant::now());
        }
        while self.runs.len() > 3 {
            self.runs.pop_first();
        }
    }
}

/// Whether a record has the length and checksum of these bytes.
pub(crate) fn is_of(away: &Elsewhere, bytes: &[u8]) -> bool {
    (away.length as usize, away.checksum) == (bytes.len(), crc32c(bytes))
}

fn check_bytes(name: &str, puts: Option<&Puts>, is_it: impl Fn(&[u8]) -> bool) -> Checked {
    let fits = |puts: &Puts| match &puts.stored {
        Some(stored) => is_it(stored),
        None => puts.perhaps.iter().any(|offered| is_it(offered)),
    };
    match puts {
        Some(puts) if fits(puts) => Ok(()),
        _ => Err(format!("{name}: bytes that were never put, or refused for good")),
    }
}
