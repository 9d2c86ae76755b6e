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
//! *On failure*: after a call that failed it is not known what the home has: all is asked, and not told, until one succeeds, so that
//! nothing is counted twice. Departures that did not arrive are not kept: the node compares all that it holds.

use crate::keyspace::{Keyspace, Peer};
use forebay_core::{Elsewhere, Key, Level, Primary, PutOptions, PutOutcome, Report, Result};
use forebay_store::{Departed, HeldPart};
use forebay_wire::Control;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How often it is looked whether there is anything to tell.
const LOOK: Duration = Duration::from_millis(250);
/// What comes within this time goes with one request.
const GATHER: Duration = Duration::from_millis(1);
/// Age from which on a holder asks its home about fragments that clients tell.
const ASK_AFTER: Duration = Duration::from_secs(1);
/// How long a home may make a fragment wait for space.
const PUT: Duration = Duration::from_millis(500);
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
    /// The last call failed: it is not known what the home has.
    is_doubtful: AtomicBool,
    departing: Mutex<Departing>,
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
    fn add(&mut self, names: &[Departed], missed: bool) {
        self.names.extend_from_slice(names);
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
                () = self.stirred.notified() => tokio::time::sleep(GATHER).await,
                () = tokio::time::sleep(LOOK) => {}
            }
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
                        keyspace.tell_one(&peer, ASK_AFTER).await;
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
            for peer in self.all_peers() {
                peer.held.departing.lock().add(&departures.names, departures.missed);
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
            Ok(true) => self.stirred.notify_one(),
            Ok(false) => {}
            Err(error) => {
                peer.held.is_doubtful.store(true, Ordering::Relaxed);
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
        if told.is_err() {
            peer.held.departing.lock().compare = true;
        }
        told
    }

    /// Answers whether there was anything.
    async fn tell_held(&self, peer: &Peer, ask_after: Duration) -> Result<bool> {
        let mut any = false;
        loop {
            let home = peer.node;
            let of = |report, age| self.here(move |store| store.untold(home, report, age, PARTS));
            let prompt = of(Report::Prompt, Duration::ZERO).await?;
            let later = of(Report::Later, ask_after).await?;
            let read = prompt.len().max(later.len());
            let report = match peer.held.is_doubtful.load(Ordering::Relaxed) {
                true => Report::Later,
                false => Report::Prompt,
            };
            let all_told =
                self.tell_parts(peer, prompt, report).await? & self.tell_parts(peer, later, Report::Later).await?;
            peer.held.is_doubtful.store(!all_told, Ordering::Relaxed);
            any |= read > 0;
            if read < PARTS || !all_told {
                return Ok(any && all_told);
            }
        }
    }

    /// Answers whether the home has answered for all of them.
    async fn tell_parts(&self, peer: &Peer, parts: Vec<HeldPart>, report: Report) -> Result<bool> {
        let mut all_told = true;
        let mut parts = parts.into_iter().filter(|part| !part.fragments.is_empty()).peekable();
        while parts.peek().is_some() {
            let mut some: Vec<HeldPart> = Vec::new();
            let mut fragments = 0;
            while let Some(part) =
                parts.next_if(|part| some.is_empty() || fragments + part.fragments.len() <= FRAGMENTS)
            {
                fragments += part.fragments.len();
                some.push(part);
            }
            all_told &= self.tell_some(peer, some, report).await?;
        }
        Ok(all_told)
    }

    async fn tell_some(&self, peer: &Peer, parts: Vec<HeldPart>, report: Report) -> Result<bool> {
        let bytes: Vec<[u8; Elsewhere::BYTES]> =
            parts.iter().flat_map(|part| &part.fragments).map(|(_, away, _)| away.to_bytes()).collect();
        let fragments = parts.iter().flat_map(|part| {
            part.fragments.iter().enumerate().map(move |(at, (key, _, status))| {
                // With the first one: they are of the event.
                let attributes = Some(&part.attributes).filter(|set| at == 0 && !set.is_empty());
                (*key, *status, attributes)
            })
        });
        let puts: Vec<(Key, &[u8], PutOptions<'_>)> = fragments
            .zip(&bytes)
            .map(|((key, status, attributes), bytes)| {
                let level = Some(Level::Elsewhere);
                let options =
                    PutOptions { status, attributes, deadline: Some(PUT), level, report, ..PutOptions::default() };
                (key, &bytes[..], options)
            })
            .collect();
        let mut outcomes = peer.client.put_many(&puts).await?.into_iter();
        let mut all_told = true;
        for part in parts {
            let mut gone = Vec::new();
            let mut is_told = true;
            for ((key, ..), outcome) in part.fragments.iter().zip(outcomes.by_ref()) {
                match outcome {
                    Ok(PutOutcome::Late | PutOutcome::LateUnknown) => gone.push(*key),
                    Ok(_) => {}
                    Err(error) => {
                        is_told = false;
                        let key = self.store.schema().text(key.as_bytes());
                        tracing::debug!(home = peer.node, key, %error, "a fragment that is held here was not taken");
                    }
                }
            }
            if is_told {
                self.here(move |store| store.told(&part, &gone)).await?;
            }
            all_told &= is_told;
        }
        Ok(all_told)
    }
}
