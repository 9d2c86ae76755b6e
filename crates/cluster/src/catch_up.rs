//! What a node is told that was away: the state of every run whose home is here, and holds.
//!
//! *Invariants*: a node counts as up only if it missed no order since what it was told was read (`Peer::is_up`).
//!
//! *Not here*: when it is told (`node.rs` now and then, `close.rs` before a close).

use crate::keyspace::{Keyspace, Peer};
use crate::orders::read;
use forebay_core::mutants::is_planted;
use forebay_core::{HoldInfo, Result, RunState, RunStatus, Signature};
use forebay_wire::Control;

impl Keyspace {
    /// Tells a node that may lack orders what there is. Answers whether there was anything to do.
    pub(crate) async fn catch_up(&self, peer: &Peer) -> Result<bool> {
        if peer.trouble().is_none() {
            return Ok(false);
        }
        // Who has the turn now, and tells it everything, has read that before the order of this call: it is told again.
        let _in_order = peer.turn.lock().await;
        // Read before what it is told: an order that it misses meanwhile is told by the next round.
        let mut missed = peer.missed();
        loop {
            if is_planted("catch-up-skipped") && peer.is_up(missed) {
                return Ok(true);
            }
            if let Err(error) = self.tell_everything(peer).await {
                peer.fails(&error);
                return Err(error);
            }
            if peer.is_up(missed) {
                return Ok(true);
            }
            missed = peer.missed();
        }
    }

    /// Each order may be repeated: what the node has is a success.
    async fn tell_everything(&self, peer: &Peer) -> Result<()> {
        // Of two maps the later one counts for both.
        self.learn(peer).await?;
        let (map, own) = self.place()?;
        peer.client.control(&Control::Learn { node: own, epoch: map.epoch() }).await?;
        let theirs: Vec<RunStatus> = read(&peer.client.control(&Control::Runs).await?)?;
        let signed = Signature::AUTO;
        for mine in self.store.runs() {
            let run = mine.run;
            if self.home_of(run)? != own {
                continue;
            }
            let known = theirs.iter().find(|status| status.run == run).map(|status| status.state);
            match (mine.state, known) {
                // A run that it never knew is none of which it could take anything.
                (_, Some(RunState::Closed)) | (RunState::Closed, None) => continue,
                (RunState::Closed, Some(_)) => {
                    self.send(peer, signed, &Control::RunClose { run }).await?;
                    continue;
                }
                // It was stopped while this node was away.
                (state, Some(RunState::Stopped)) if state.takes_events() => {
                    self.here_as(signed, &Control::RunStop { run }).await?;
                    self.all_peers().iter().for_each(|peer| peer.falls_behind("a run that is stopped"));
                    continue;
                }
                _ => {}
            }
            let words = self.store.run_words(run)?;
            if known.is_none() {
                let config = words.config.to_toml(self.store.schema())?;
                self.send(peer, signed, &Control::RunOpen { run, config }).await?;
            }
            // What the policy masks now is said below: its mask must not be lifted before.
            let masks = words.masks.into_iter().filter(|mask| mask.2 || !words.by_policy.contains(&mask.0));
            for (source, from, set) in masks {
                self.send(peer, signed, &Control::Mask { run, source, from, set }).await?;
            }
            if words.config.auto_mask.is_some() {
                self.send(peer, signed, &Control::MasksByPolicy { run, sources: words.by_policy }).await?;
            }
            // A close that its home gave up, with its life.
            self.send(peer, signed, &Control::AbandonClose { run }).await?;
            let known = known.unwrap_or(RunState::Open);
            let order = match mine.state {
                state if state == known => None,
                RunState::Paused => Some(Control::RunPause { run }),
                RunState::Stopped => Some(Control::RunStop { run }),
                _ => Some(Control::RunResume { run }),
            };
            if let Some(order) = order {
                self.send(peer, signed, &order).await?;
            }
        }
        if self.home_of(0)? == own {
            let theirs: Vec<HoldInfo> = read(&peer.client.control(&Control::Holds).await?)?;
            let mine = self.store.holds();
            for hold in theirs.iter().filter(|hold| mine.iter().all(|known| known.id != hold.id)) {
                self.send(peer, signed, &Control::ReleaseHold { id: hold.id }).await?;
            }
            for HoldInfo { id, run, conditions, .. } in mine {
                self.send(peer, signed, &Control::HoldAs { id, run, conditions }).await?;
            }
        }
        Ok(())
    }
}
