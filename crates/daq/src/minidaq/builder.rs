//! Puts trigger records together in the store: the header when the trigger fires, then each fragment as it comes.
//!
//! ```text
//! run/trigger/0/4/0     TriggerRecordHeader with one component per link
//! run/trigger/0/1/link  FragmentHeader (72 B) + frames, copied once, from the ring's memory into the store's
//! ```
//!
//! The store knows when a record is complete: no table of records is kept here.
//!
//! *On failure*: a put that finds no space is tried again until the record is stored or the run gives up, which is an
//! error; nothing is counted as written before the store has answered.

use super::plan::RUN;
use super::shared::MiniDaqShared;
use super::trigger::Trigger;
use crate::dune::{
    ComponentRequest, FRAGMENT_HEADER_BYTES, FragmentErrors, FragmentHeader, RecordErrors, SourceId,
    TriggerRecordHeader,
};
use crate::threads::Together;
use forebay_core::{Error, Kind, Result};
use forebay_ring::SourceWindow;
use forebay_store::{PutOptions, PutOutcome, Store};
use std::time::Duration;

/// Between two tries where a put finds no space.
const RETRY: Duration = Duration::from_millis(1);
/// The bit of `trigger_type` that says that the trigger was emulated.
const TRIGGER_TYPE: u64 = 1;

pub(crate) struct Builder<'s, 'a> {
    shared: &'s MiniDaqShared<'a>,
    store: Store,
}

impl<'s, 'a> Builder<'s, 'a> {
    pub(crate) fn new(shared: &'s MiniDaqShared<'a>, holder: &str) -> Builder<'s, 'a> {
        Builder { shared, store: shared.store.named(holder) }
    }

    /// Puts the trigger record header: from now on the record is there.
    pub(crate) fn announce(&self, trigger: &Trigger) -> Result<()> {
        let header = record_header(trigger, self.shared.plan.links).encode();
        let outcome = self.put(trigger, SourceId::BUILDER, header.len(), 0, |memory| {
            memory.copy_from_slice(&header);
            Ok(())
        })?;
        match outcome {
            PutOutcome::Stored => Ok(()),
            other => {
                let message = format!("the header of trigger record {} was answered {other:?}", trigger.number);
                Err(Error::internal(message))
            }
        }
    }

    /// Puts the fragment of a link: its header, and the frames of the window (none for a window that is none). Answers what
    /// became of it and its bytes.
    pub(crate) fn fragment(
        &self,
        trigger: &Trigger,
        source: SourceId,
        errors: FragmentErrors,
        window: Option<&SourceWindow>,
    ) -> Result<(PutOutcome, u64)> {
        let size = FRAGMENT_HEADER_BYTES as u64 + window.map_or(0, SourceWindow::bytes_total);
        let header = self.fragment_header(trigger, source, errors, size).encode();
        let length = usize::try_from(size).map_err(|_| Error::invalid(format!("a fragment of {size} bytes")))?;
        let outcome = self.put(trigger, source, length, errors.0, |memory| {
            let (head, mut rest) = memory.split_at_mut(FRAGMENT_HEADER_BYTES);
            head.copy_from_slice(&header);
            for fragment in window.iter().flat_map(|window| window.fragments()) {
                fragment.verify()?;
                let (place, after) = std::mem::take(&mut rest)
                    .split_at_mut_checked(fragment.bytes.len())
                    .ok_or_else(|| Error::internal("a window holds more than it said"))?;
                place.copy_from_slice(fragment.bytes);
                rest = after;
            }
            if rest.is_empty() { Ok(()) } else { Err(Error::internal("a window holds less than it said")) }
        })?;
        Ok((outcome, size))
    }

    fn fragment_header(
        &self,
        trigger: &Trigger,
        source: SourceId,
        error_bits: FragmentErrors,
        size: u64,
    ) -> FragmentHeader {
        let plan = self.shared.plan;
        FragmentHeader {
            size,
            trigger_number: trigger.number,
            trigger_timestamp: trigger.timestamp,
            window_begin: trigger.window_begin,
            window_end: trigger.window_end,
            run_number: RUN,
            error_bits,
            fragment_type: plan.fragment_type(),
            sequence_number: 0,
            detector_id: plan.frames.link(source.id).detector.into(),
            source,
        }
    }

    /// Stores a fragment of `length` bytes that `fill` writes, however long the store is full.
    fn put(
        &self,
        trigger: &Trigger,
        source: SourceId,
        length: usize,
        status: u32,
        fill: impl Fn(&mut [u8]) -> Result<()>,
    ) -> Result<PutOutcome> {
        let key = self.shared.plan.key(trigger.number, source)?;
        let options = PutOptions { status, ..PutOptions::default() };
        loop {
            let once = || -> Result<PutOutcome> {
                let mut memory = self.store.reserve(&key, length, &options)?;
                fill(&mut memory)?;
                memory.commit()
            };
            match once() {
                Ok(PutOutcome::Duplicate) => {
                    let message = format!("trigger record {}: {source} was put twice", trigger.number);
                    return Err(Error::internal(message));
                }
                Err(error) if error.kind() == Kind::Full && !self.shared.gives_up() => std::thread::sleep(RETRY),
                other => return other,
            }
        }
    }
}

/// The header of a trigger record: every link is asked for the same window.
pub(crate) fn record_header(trigger: &Trigger, links: u32) -> TriggerRecordHeader {
    let Trigger { number, timestamp, window_begin, window_end } = *trigger;
    let component = |link| ComponentRequest { source: SourceId::link(link), window_begin, window_end };
    TriggerRecordHeader {
        trigger_number: number,
        trigger_timestamp: timestamp,
        run_number: RUN,
        error_bits: RecordErrors::default(),
        trigger_type: TRIGGER_TYPE,
        sequence_number: 0,
        max_sequence_number: 0,
        source: SourceId::BUILDER,
        components: (0..links).map(component).collect(),
    }
}
