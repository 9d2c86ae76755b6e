//! The policy of a run that masks sources (`auto_mask_after`): what this store counts for it, and what it decides.
//!
//! ```text
//! one store   each round of maintenance: count ─▶ judge ─▶ mask, or unmask
//! a cluster   the run's home, now and then: every node counts ─▶ judge ─▶ an order to all nodes (forebay-cluster)
//! ```
//!
//! *Not here*: how it judges (`runs/policy.rs`), masks themselves (`mask.rs`).

use crate::engine::Engine;
use crate::runs::MaskChange;
use crate::{RunState, Store};
use forebay_core::mutants::is_planted;
use forebay_core::{Misses, Result, Source};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

/// The policy of one run, as it is now.
struct OfRun {
    run: u64,
    most: u32,
    masked: Vec<Vec<u8>>,
    takes_events: bool,
}

impl Store {
    /// Runs under the policy that take events, each with the sources of which it has to know what comes.
    pub fn policy_asks(&self) -> Vec<(u64, Vec<Source>)> {
        let engine = self.engine();
        let sources = |of: OfRun| (of.run, engine.asked_by_policy(&of));
        let packed =
            |(run, all): (u64, Vec<Vec<u8>>)| (run, all.iter().map(|source| Source::from_packed(source)).collect());
        engine.under_policy().into_iter().filter(|of| of.takes_events).map(sources).map(packed).collect()
    }

    /// What this store has counted since the last call: sources that events lacked, and those that are asked for.
    ///
    /// # Errors
    /// `Invalid` for a source of another schema.
    pub fn take_misses(&self, run: u64, asked: &[Source]) -> Result<Vec<Misses>> {
        let engine = self.engine();
        asked.iter().try_for_each(|source| engine.check_source(source))?;
        Ok(engine.take_misses(run, &asked.iter().map(|source| source.to_vec()).collect::<Vec<_>>()))
    }

    /// Judges what the nodes of a cluster have counted; answers sources to mask on all of them, and those to unmask.
    pub fn judge_misses(&self, run: u64, mut told: Vec<(u16, Vec<Misses>)>) -> Vec<(Source, bool)> {
        let engine = self.engine();
        let Some(of) = engine.under_policy().into_iter().find(|of| of.run == run) else { return Vec::new() };
        // What is of no schema here would have all nodes asked for what none of them can have.
        told.retain(|(_, all)| all.iter().all(|misses| engine.check_source(&misses.source).is_ok()));
        engine.judge(&of, &told).into_iter().map(|(source, set)| (Source::from_packed(&source), set)).collect()
    }

    /// The policy of a run masks sources, as [`Store::mask`] without an event, and unmasks others; what a person has masked stays so. Each of
    /// them is tried.
    ///
    /// # Errors
    /// The first one, as [`Store::mask`], except `OutcomeUnknown`: it does not wait for devices.
    pub fn mask_by_policy(&self, run: u64, changes: &[(Source, bool)]) -> Result<()> {
        let engine = self.engine();
        engine.relieve_log_for_words();
        changes.iter().try_for_each(|(source, _)| engine.check_source(source))?;
        let change =
            |(source, set): &(Source, bool)| engine.explained(engine.mask_by_policy(run, source.to_vec(), *set));
        changes.iter().map(change).fold(Ok(()), Result::and)
    }

    /// The policy of a run masks these sources and no others, as the home of the run says it: also one that a person has masked here, and
    /// no longer there.
    ///
    /// # Errors
    /// As [`Store::mask_by_policy`].
    pub fn set_masks_by_policy(&self, run: u64, sources: &[Source]) -> Result<()> {
        let words = self.run_words(run)?;
        let by_hand =
            |source: &&Source| words.masks.iter().rev().find(|mask| mask.0 == **source).is_some_and(|mask| mask.2);
        let lifted = sources.iter().filter(by_hand).map(|source| self.unmask(run, source, None));
        let lifted = lifted.fold(Ok(()), Result::and);
        let over =
            words.by_policy.iter().filter(|source| !sources.contains(source)).map(|source| (source.clone(), false));
        let changes: Vec<(Source, bool)> = over.chain(sources.iter().map(|source| (source.clone(), true))).collect();
        lifted.and(self.mask_by_policy(run, &changes))
    }
}

impl Engine {
    /// A round of a store that is in no cluster; the home of a run asks all nodes.
    pub(crate) fn apply_policies(&self) {
        if self.life.epoch.load(Ordering::Relaxed) > 0 && !is_planted("policy-alone") {
            return;
        }
        for of in self.under_policy() {
            let told = self.take_misses(of.run, &self.asked_by_policy(&of));
            for (source, set) in self.judge(&of, &[(0, told)]) {
                // Without space for it the next round finds the same again.
                let _ = self.mask_by_policy(of.run, source, set);
            }
        }
    }

    fn mask_by_policy(&self, run: u64, source: Vec<u8>, set: bool) -> Result<()> {
        let signature = self.signed_by_itself();
        self.set_mask(&MaskChange { run, source, set, from: None, automatic: true, signature })
    }

    fn under_policy(&self) -> Vec<OfRun> {
        let runs = self.runs.known.lock();
        let alive = runs.iter().filter(|known| known.state != RunState::Closed);
        let of = alive.filter_map(|known| {
            let most = known.config.auto_mask?;
            Some(OfRun {
                run: known.run,
                most,
                masked: known.masked_by(true),
                takes_events: known.state.takes_events(),
            })
        });
        of.collect()
    }

    fn asked_by_policy(&self, of: &OfRun) -> Vec<Vec<u8>> {
        let watched = self.runs.watched.lock();
        let suspects = watched.get(&of.run).into_iter().flat_map(|watched| watched.policy.suspects());
        let mut asked: Vec<Vec<u8>> = suspects.chain(&of.masked).cloned().collect();
        asked.sort_unstable();
        asked.dedup();
        asked
    }

    fn judge(&self, of: &OfRun, told: &[(u16, Vec<Misses>)]) -> Vec<(Vec<u8>, bool)> {
        let mut watched = self.runs.watched.lock();
        // Mostly there is nothing to look at, and nothing is kept for that.
        if of.masked.is_empty()
            && told.iter().all(|told| told.1.is_empty())
            && watched.get(&of.run).is_none_or(|watched| watched.policy.is_idle())
        {
            return Vec::new();
        }
        let mut changes = watched.entry(of.run).or_default().policy.judge(of.most, &of.masked, told);
        drop(watched);
        if !changes.is_empty() {
            // What people have masked the policy leaves as it is.
            let by_hand = self.known(&mut self.runs.known.lock(), of.run).map(|known| known.masked_by(false));
            changes.retain(|(source, _)| !by_hand.as_ref().is_ok_and(|masked| masked.contains(source)));
        }
        changes
    }

    fn take_misses(&self, run: u64, asked: &[Vec<u8>]) -> Vec<Misses> {
        let mut all: BTreeMap<Vec<u8>, Misses> = BTreeMap::new();
        for cell in &self.shards.cells {
            let mut shard = cell.lock();
            let Some(index) = shard.events.run_index(run) else { continue };
            let of_run = &mut shard.events.runs[index as usize];
            if of_run.is_over() {
                return Vec::new();
            }
            // Taken out: what this round has counted is not counted by the next one.
            for (source, (row, fragments)) in std::mem::take(&mut of_run.missed) {
                let row = if of_run.sources.fragments(&source) == fragments { row } else { 0 };
                let misses = all.entry(source).or_default();
                misses.all = misses.all.saturating_add(row);
                misses.in_a_row = misses.in_a_row.max(row);
            }
        }
        asked.iter().for_each(|source| _ = all.entry(source.clone()).or_default());
        if all.is_empty() {
            return Vec::new();
        }
        for cell in &self.shards.cells {
            let shard = cell.lock();
            let Some(index) = shard.events.run_index(run) else { continue };
            let sources = &shard.events.runs[index as usize].sources;
            all.iter_mut().for_each(|(source, misses)| misses.fragments += sources.fragments(source));
        }
        let named = |(source, misses): (Vec<u8>, Misses)| Misses { source: Source::from_packed(&source), ..misses };
        all.into_iter().map(named).collect()
    }
}
