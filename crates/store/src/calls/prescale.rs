//! Prescales of the trigger: recorded for the run's summary. Who applies them is the trigger.
//!
//! *Invariants*: a change is journaled before it is listed; the newest one of each name is kept (`runs/records.rs`).

use crate::Store;
use crate::decisions::encode_prescale;
use crate::engine::Engine;
use crate::placement::Ticket;
use crate::runs::PrescaleChange;
use forebay_core::limits::PRESCALES_MAX;
use forebay_core::{Error, PrescaleFactor, Primary, Result, check_prescale_name};
use forebay_media::bytes::Blob;
use forebay_media::hot::Class;
use std::collections::BTreeSet;

impl Store {
    /// Records that the trigger prescales by this factor, for events from `from` on or with `None` from now on: the run's
    /// summary lists it with who said so and when. Forebay does not apply it. The same factor again is a success.
    ///
    /// # Errors
    /// `Invalid` for an unknown run, a name that is empty or too long, or more names than a run can have; `Closed`, `Full`
    /// without space to journal it, `OutcomeUnknown` where a device does not make it durable.
    pub fn prescale(&self, run: u64, name: &str, factor: PrescaleFactor, from: Option<&Primary>) -> Result<()> {
        let engine = self.engine();
        engine.relieve_log_for_words();
        check_prescale_name(name)?;
        if let Some(from) = from {
            engine.check_primary(from)?;
        }
        let (name, from, signature) = (name.to_owned(), from.copied(), self.signature());
        let change = PrescaleChange { run, name, factor, from, signature };
        let ticket = engine.explained(engine.change_prescale(&change))?;
        engine.settle(ticket)
    }
}

impl Engine {
    fn change_prescale(&self, change: &PrescaleChange) -> Result<Ticket> {
        let _effects = self.decisions.effects.begin();
        self.check_open()?;
        let mut runs = self.runs.known.lock();
        let known = self.not_closed(&mut runs, change.run)?;
        let (bytes, what) = encode_prescale(change);
        // Without the signature: a repeat has another time.
        let name = [&b"prescale"[..], &bytes[..what]].concat();
        let record = change.record(&self.keyspace.schema);
        let all = known.all_prescales();
        let newest = all.iter().rfind(|known| known.name == record.name);
        match newest {
            Some(newest) if (newest.factor, &newest.from) == (record.factor, &record.from) => {
                return Ok(self.ticket_again(&name));
            }
            Some(_) => {}
            None => {
                let names: BTreeSet<&str> = all.iter().map(|known| &*known.name).collect();
                if names.len() >= PRESCALES_MAX {
                    let message = format!("run {}: {} prescales have names, the limit", change.run, names.len());
                    return Err(Error::invalid(message));
                }
            }
        }
        let ticket = self.journal_blob(Class::Evacuation, Blob::Prescale, &bytes, &name)?;
        known.note_prescale(record);
        Ok(ticket)
    }
}
