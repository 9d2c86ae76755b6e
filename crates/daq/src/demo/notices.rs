//! What the main thread notices while a demo runs: a source that dies and returns, masks, and events to look at.

use super::plan::RUN;
use super::shared::Shared;
use super::summary::Happened;
use crate::display::EventDisplay;
use crate::limits::{AUTO_MASK_EVENTS, MASK_POLL};
use forebay_core::Result;
use forebay_store::{Sampler, Sampling};
use std::time::{Duration, Instant};

pub(super) struct Notices {
    sampler: Option<Sampler>,
    looked: Option<Instant>,
    silent: Option<u32>,
    masked: Vec<String>,
    pub(super) happened: Vec<Happened>,
}

impl Notices {
    pub(super) fn new(shared: &Shared<'_>) -> Result<Notices> {
        let sampler = shared.plan.config.watch.then(|| shared.store.sampler(&Sampling::default())).transpose()?;
        Ok(Notices { sampler, looked: None, silent: None, masked: Vec::new(), happened: Vec::new() })
    }

    /// What there is to say since the last look.
    pub(super) fn look(&mut self, shared: &Shared<'_>) -> Result<Vec<String>> {
        let mut lines = Vec::new();
        let now = shared.trigger.elapsed().as_secs_f64();
        if shared.plan.config.kill.is_some() && self.looked.is_none_or(|looked| looked.elapsed() >= MASK_POLL) {
            self.looked = Some(Instant::now());
            for what in self.changes(shared) {
                lines.push(format!("{now:6.1} s {what}"));
                self.happened.push(Happened { at_s: now, what });
            }
        }
        if let Some(sampler) = &mut self.sampler
            && let Some(sample) = sampler.next(Duration::ZERO)?
        {
            lines.push(EventDisplay::of_sample(&sample, shared.store.keyspace()).text());
        }
        Ok(lines)
    }

    fn changes(&mut self, shared: &Shared<'_>) -> Vec<String> {
        let mut changes = Vec::new();
        let silent = shared.silent();
        match (self.silent, silent) {
            (None, Some(source)) => changes.push(format!("source {source} stops sending")),
            (Some(source), None) => changes.push(format!("source {source} sends again")),
            _ => {}
        }
        self.silent = silent;
        let Some(status) = shared.store.runs().into_iter().find(|status| status.run == RUN) else { return changes };
        for source in status.masked.iter().filter(|source| !self.masked.contains(source)) {
            changes.push(format!(
                "source {source} is masked: at least {AUTO_MASK_EVENTS} events in a row came without it, {} in all",
                status.ledger.incomplete
            ));
        }
        for source in self.masked.iter().filter(|source| !status.masked.contains(source)) {
            changes.push(format!("source {source} is unmasked: events wait for it again"));
        }
        self.masked = status.masked;
        changes
    }
}
