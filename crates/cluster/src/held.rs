//! Runs with a look-up table: the homes of events are told what this node holds for them, and holders what ended here.
//!
//! ```text
//! holder: put ─▶ store: untold ── stirred, or a tick ─▶ one request of many fragments to each home ─▶ told: known, or gone
//! home:   departures ── stirred, or a tick ─▶ one order of many names to every node ─▶ what they hold of it ends
//! ```
//!
//! *Invariants*: what is held stays untold until its home has answered for it; a run is closed only where nothing is untold
//! (`close.rs` has all of it told first, the store refuses otherwise).
//!
//! *On failure*: after a call that failed it is not known what the home has: what was told with it is told again, and counted as a put
//! that is repeated. What a home has no space for is behind the others the next time. Departures that did not arrive are not
//! kept: the node compares all that it holds.

use crate::keyspace::{Keyspace, Peer};
use forebay_core::limits::HELD_ASKED_AFTER;
use forebay_core::mutants::is_planted;
use forebay_core::{Elsewhere, Error, Key, Kind, Level, Primary, PutOptions, PutOutcome, Report, Result};
use forebay_store::{Departed, HeldPart, Store};
use forebay_wire::Control;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

/// How often it is looked whether there is anything to tell.
const LOOK: Duration = Duration::from_millis(250);
/// What comes within this time goes with one request.
const GATHER: Duration = Duration::from_millis(1);
/// Parts of events that are read at once.
const PARTS: usize = 256;
/// Fragments of one request, except for those of one event.
const FRAGMENTS: usize = 512;
/// Names of one order, and those that are kept for a node that does not answer.
const NAMES: usize = 512;
const NAMES_MAX: usize = 1 << 16;

/// What goes to one other node.
#[derive(Default)]
pub(crate) struct ToHolder {
    /// Held while something is under way.
    turn: Arc<tokio::sync::Mutex<()>>,
    departing: Mutex<Departing>,
}

/// Something is to be told: said once for all that comes until it is looked for.
#[derive(Default)]
pub(crate) struct Stirred {
    is_said: AtomicBool,
    notify: Notify,
}

impl Stirred {
    /// Something is here that may have to be told. A put pays for a look at a flag, mostly.
    pub(crate) fn say(&self) {
        if !self.is_said.load(Ordering::Relaxed) && !self.is_said.swap(true, Ordering::Relaxed) {
            self.notify.notify_one();
        }
    }

    /// The next look begins. It finds what came before; what comes behind it says so again, because the lock of a cell is between the
    /// two: a put that took it later sees the flag as it is left here. Were a word lost, the next look would come after [`LOOK`].
    fn take_up(&self) {
        self.is_said.store(false, Ordering::Relaxed);
    }
}

struct Departing {
    names: Vec<Departed>,
    /// It may have missed some.
    compare: bool,
}

impl Default for Departing {
    fn default() -> Departing {
        // Words of this node's life before are lost.
        Departing { names: Vec::new(), compare: true }
    }
}

impl Departing {
    fn add(&mut self, names: impl Iterator<Item = Departed>, missed: bool) {
        self.names.extend(names);
        if missed || self.names.len() > NAMES_MAX {
            self.names.clear();
            self.compare = true;
        }
    }
}

impl Keyspace {
    /// Tells the others as long as the node works.
    pub(crate) async fn go_on_telling(self: Arc<Keyspace>) {
        loop {
            tokio::select! {
                biased;
                () = self.stirred.notify.notified() => tokio::time::sleep(GATHER).await,
                () = tokio::time::sleep(LOOK) => {}
            }
            self.stirred.take_up();
            if !self.has_tables() {
                continue;
            }
            if let Err(error) = self.take_departures().await {
                tracing::debug!(%error, "what ended here is not known");
            }
            // Apart: one that does not answer must not keep the others from being told.
            for peer in self.all_peers().into_iter().filter(|peer| peer.trouble().is_none()) {
                if let Ok(turn) = peer.held.turn.clone().try_lock_owned() {
                    let keyspace = self.clone();
                    tokio::spawn(async move {
                        let _turn = turn;
                        keyspace.tell_one(&peer, HELD_ASKED_AFTER).await;
                    });
                }
            }
        }
    }

    /// Tells every home at once what is held here, whatever its age.
    pub(crate) async fn tell_homes(self: &Arc<Keyspace>) {
        let told = self.all_peers().into_iter().map(|peer| {
            let keyspace = self.clone();
            tokio::spawn(async move {
                let _turn = peer.held.turn.lock().await;
                keyspace.tell_one(&peer, Duration::ZERO).await;
            })
        });
        for told in told.collect::<Vec<_>>() {
            let _ = told.await;
        }
    }

    pub(crate) fn has_tables(&self) -> bool {
        let Ok((map, _)) = self.place() else { return false };
        self.placement(&map).is_ok_and(|placement| !placement.tables().is_empty())
    }

    async fn take_departures(&self) -> Result<()> {
        let departures = self.here(|store| Ok(store.take_departures())).await?;
        if departures.missed || !departures.names.is_empty() {
            let (map, _) = self.place()?;
            let (placement, schema) = (self.placement(&map)?, self.store.schema());
            for peer in self.all_peers() {
                let is_holder = |name: &&Departed| {
                    let bytes = match name {
                        Departed::Event(primary) => primary.as_bytes(),
                        Departed::Fragment(key) => key.as_bytes(),
                    };
                    placement.table_for(schema.run_of(bytes)).is_some_and(|table| table.has_holder(peer.node))
                };
                let names = departures.names.iter().filter(is_holder).copied();
                peer.held.departing.lock().add(names, departures.missed);
            }
        }
        Ok(())
    }

    /// The peer's turn is held.
    async fn tell_one(&self, peer: &Peer, ask_after: Duration) {
        let told = async {
            self.tell_departures(peer).await?;
            self.tell_held(peer, ask_after).await
        };
        match told.await {
            // What came meanwhile found the turn taken.
            Ok(true) => self.stirred.say(),
            Ok(false) => {}
            Err(error) => {
                tracing::debug!(node = peer.node, name = peer.name, %error, "a node was not told what is held here");
            }
        }
    }

    async fn tell_departures(&self, peer: &Peer) -> Result<()> {
        let (map, node) = self.place()?;
        let epoch = map.epoch();
        let Departing { names, compare } =
            std::mem::replace(&mut *peer.held.departing.lock(), Departing { names: Vec::new(), compare: false });
        let told = async {
            if compare {
                peer.client.control(&Control::CompareHeld { node, epoch }).await?;
            }
            for names in names.chunks(NAMES) {
                let (mut events, mut fragments): (Vec<Primary>, Vec<Key>) = (Vec::new(), Vec::new());
                for name in names {
                    match name {
                        Departed::Event(primary) => events.push(*primary),
                        Departed::Fragment(key) => fragments.push(*key),
                    }
                }
                peer.client.control(&Control::Depart { node, epoch, events, fragments }).await?;
            }
            Ok(())
        };
        let told = told.await;
        if told.is_err() && !is_planted("departure-lost") {
            peer.held.departing.lock().compare = true;
        }
        told
    }

    /// Answers whether anything was told.
    async fn tell_held(&self, peer: &Peer, ask_after: Duration) -> Result<bool> {
        let mut any = false;
        loop {
            let home = peer.node;
            let of = |report, age| self.here(move |store| store.untold(home, report, age, PARTS));
            let prompt = of(Report::Prompt, Duration::ZERO).await?;
            let later = of(Report::Later, ask_after).await?;
            let read = prompt.len().max(later.len());
            let mut all_taken = true;
            for (parts, report) in [(prompt, Report::Prompt), (later, Report::Later)] {
                any |= !parts.is_empty();
                all_taken &= self.tell_parts(peer, parts, report).await?;
            }
            // What is not taken now waits for the next time.
            if read < PARTS || !all_taken {
                return Ok(any && all_taken);
            }
        }
    }

    /// Answers whether the home has answered for all of them.
    async fn tell_parts(&self, peer: &Peer, parts: Vec<HeldPart>, report: Report) -> Result<bool> {
        let (mut failed, mut all_taken) = (Ok(()), true);
        let mut parts = parts.into_iter().peekable();
        while parts.peek().is_some() {
            let mut some: Vec<HeldPart> = Vec::new();
            let mut fragments = 0;
            while let Some(part) =
                parts.next_if(|part| some.is_empty() || fragments + part.fragments.len() <= FRAGMENTS)
            {
                fragments += part.fragments.len();
                some.push(part);
            }
            // After a call that failed the others are not tried: they have their turn later.
            let outcomes = match failed {
                Ok(()) => self.tell_some(peer, &some, report).await,
                Err(_) => Err(Error::unavailable("the call before it failed")),
            };
            match outcomes {
                Ok(outcomes) => all_taken &= self.heard(peer, some, outcomes).await?,
                Err(error) => {
                    self.here(move |store| some.iter().try_for_each(|part| store.untaken(part))).await?;
                    failed = failed.and(Err(error));
                }
            }
        }
        failed.map(|()| all_taken)
    }

    async fn tell_some(&self, peer: &Peer, parts: &[HeldPart], report: Report) -> Result<Vec<Result<PutOutcome>>> {
        let fragments = || parts.iter().flat_map(|part| part.fragments.iter().map(move |fragment| (part, fragment)));
        let bytes: Vec<[u8; Elsewhere::BYTES]> = fragments().map(|(_, fragment)| fragment.away.to_bytes()).collect();
        let mut puts: Vec<(Key, &[u8], PutOptions<'_>)> = Vec::with_capacity(bytes.len());
        for ((part, fragment), bytes) in fragments().zip(&bytes) {
            let options = PutOptions {
                status: fragment.status,
                // With each: whichever is new to the home brings them.
                attributes: Some(&part.attributes).filter(|set| !set.is_empty()),
                // A home that is full says so at once: others may be what it waits for.
                deadline: Some(Duration::ZERO),
                level: Some(Level::Elsewhere),
                report,
                ..PutOptions::default()
            };
            puts.push((fragment.key, bytes, options));
        }
        let answer = peer.client.put_many(&puts).await;
        if is_planted("telling-forgotten") && answer.is_err() {
            return Ok(puts.iter().map(|_| Ok(PutOutcome::Stored)).collect());
        }
        let outcomes = answer?;
        match outcomes.len() == puts.len() {
            true => Ok(outcomes),
            false => Err(Error::corrupt("an answer with another number of outcomes than puts")),
        }
    }

    /// Notes what the home has answered; answers whether that was for all of them.
    async fn heard(&self, peer: &Peer, parts: Vec<HeldPart>, outcomes: Vec<Result<PutOutcome>>) -> Result<bool> {
        let mut outcomes = outcomes.into_iter();
        let mut answered = Vec::with_capacity(parts.len());
        for mut part in parts {
            let mut gone = Vec::new();
            let whole = part.fragments.len();
            part.fragments.retain(|fragment| {
                let key = || self.store.schema().text(fragment.key.as_bytes());
                match outcomes.next() {
                    Some(Ok(PutOutcome::Late | PutOutcome::LateUnknown)) => gone.push(fragment.key),
                    Some(Ok(_)) => {}
                    // The same answer each time: its bytes stay here until their event ends.
                    Some(Err(error)) if matches!(error.kind(), Kind::Conflict | Kind::Invalid) => {
                        let (node, key) = (peer.node, key());
                        tracing::warn!(node, key, %error, "a fragment that is held here is refused by its home");
                    }
                    Some(Err(error)) => {
                        tracing::debug!(node = peer.node, key = key(), %error, "a fragment is not taken by its home yet");
                        return false;
                    }
                    None => return false,
                }
                true
            });
            let is_answered = part.fragments.len() == whole;
            answered.push((part, gone, is_answered));
        }
        let all_taken = answered.iter().all(|(.., is_answered)| *is_answered);
        let noted = move |store: &Store| {
            answered.iter().try_for_each(|(part, gone, is_answered)| {
                store.told(part, gone)?;
                if *is_answered { Ok(()) } else { store.untaken(part) }
            })
        };
        self.here(noted).await?;
        Ok(all_taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_comes_behind_a_look_is_said_again_and_what_comes_before_it_once() {
        let stirred = Stirred::default();
        let heard = || tokio::time::timeout(Duration::ZERO, stirred.notify.notified());
        stirred.say();
        stirred.say();
        assert!(heard().await.is_ok());
        stirred.say();
        assert!(heard().await.is_err(), "the look that was said before finds it");
        stirred.take_up();
        stirred.say();
        assert!(heard().await.is_ok());
    }
}
