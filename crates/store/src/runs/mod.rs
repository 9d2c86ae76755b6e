//! Runs as the whole store knows them, with what people and policies say of their sources, producers and events.
//!
//! *Not here*: the run's account, which each shard keeps (`events/run.rs`), and the calls (`calls`).

mod hold;
mod home;
mod mask;
mod policy;
mod prescale;
mod producer;
mod records;
mod samplers;
mod time;
mod unknown;
mod watched;

pub(crate) use hold::Hold;
pub use home::{RUN_OPENS, RunHome};
pub(crate) use mask::{MaskChange, apply_mask};
pub(crate) use prescale::PrescaleChange;
pub(crate) use producer::{Counts, KnownProducer};
pub(crate) use records::Records;
pub(crate) use samplers::{Mailbox, Pinned, Samplers};
pub(crate) use time::RunTime;
pub(crate) use unknown::{Unknown, may_open_itself};
pub(crate) use watched::Watched;

use crate::events::{Mask, Until};
use crate::locks::{self, Owner, Ranked, RankedRw};
use forebay_core::{MaskRecord, PrescaleRecord, RunConfig, RunState, Signature};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Arc, OnceLock};

/// The runs of one store.
pub(crate) struct Runs {
    pub(crate) known: Ranked<Vec<KnownRun>>,
    /// What came of runs that are not known.
    pub(crate) unknown: Unknown,
    pub(crate) holds: RankedRw<Vec<Hold>>,
    /// Number of holds: asked for every event that is given out, without the lock.
    pub(crate) holds_set: AtomicU32,
    pub(crate) next_hold: AtomicU32,
    pub(crate) samplers: Samplers,
    /// What maintenance knows of sources, by run.
    pub(crate) watched: Ranked<BTreeMap<u64, Watched>>,
    /// Who is asked for runs that are not known.
    pub(crate) home: OnceLock<Arc<dyn RunHome>>,
    /// Runs from this number on wait for the adoption of a map. Changed under `known`.
    pub(crate) closed_from: AtomicU64,
    /// Held by the thread that closes a run, before anything else, and over waits for devices.
    pub(crate) closing: Mutex<()>,
}

impl Runs {
    pub(crate) fn new(owner: Owner) -> Runs {
        Runs {
            known: Ranked::new(owner, locks::RUNS, Vec::new()),
            unknown: Unknown::default(),
            // After cells in the order: delivery asks for holds while it has an event's lock.
            holds: RankedRw::new(owner, locks::NAMES, Vec::new()),
            holds_set: AtomicU32::new(0),
            next_hold: AtomicU32::new(1),
            samplers: Samplers::default(),
            watched: Ranked::new(owner, locks::WATCHED, BTreeMap::new()),
            home: OnceLock::new(),
            closed_from: AtomicU64::new(u64::MAX),
            closing: Mutex::new(()),
        }
    }
}

/// A run as the whole store knows it.
#[derive(Clone)]
pub(crate) struct KnownRun {
    pub(crate) run: u64,
    pub(crate) state: RunState,
    pub(crate) config: RunConfig,
    /// Who opened it, and when.
    pub(crate) opened: Signature,
    pub(crate) time: RunTime,
    pub(crate) masks: Vec<Mask>,
    /// Masks as they were set and lifted.
    pub(crate) mask_records: Records<MaskRecord>,
    /// Prescales as they were changed after the opening.
    pub(crate) prescales: Records<PrescaleRecord>,
    pub(crate) producers: Vec<KnownProducer>,
}

impl KnownRun {
    pub(crate) fn new(run: u64, state: RunState, config: RunConfig) -> KnownRun {
        KnownRun {
            run,
            state,
            config,
            opened: Signature::default(),
            time: RunTime::default(),
            masks: Vec::new(),
            mask_records: Records::default(),
            prescales: Records::default(),
            producers: Vec::new(),
        }
    }

    pub(crate) fn note_mask(&mut self, record: MaskRecord) {
        self.mask_records.add(record, |_, _| true);
    }

    pub(crate) fn note_prescale(&mut self, record: PrescaleRecord) {
        self.prescales.add(record, of_one_name);
    }

    /// Keeps the last changes of each kind.
    pub(crate) fn keep_records(&mut self, most: usize) {
        self.mask_records.keep(most, |_, _| true);
        self.prescales.keep(most, of_one_name);
    }

    /// Prescales of the opening, then changes.
    pub(crate) fn all_prescales(&self) -> Vec<PrescaleRecord> {
        let first = self.config.prescales.iter().map(|(name, factor)| PrescaleRecord {
            name: name.clone(),
            factor: *factor,
            from: None,
            signature: self.opened.clone(),
        });
        first.chain(self.prescales.kept.iter().cloned()).collect()
    }

    /// Sources that the run's policy has masked, or people.
    pub(crate) fn masked_by(&self, policy: bool) -> Vec<Vec<u8>> {
        let masked = self.masks.iter().filter(|mask| mask.automatic == policy && mask.until == Until::Open);
        masked.map(|mask| mask.source.clone()).collect()
    }
}

fn of_one_name(later: &PrescaleRecord, earlier: &PrescaleRecord) -> bool {
    later.name == earlier.name
}
