//! Ranges and windows: many answers to one request, made as the client takes them.
//!
//! *Invariants*: parts are made while less than half a MiB waits, so that a client that does not read costs that and one
//! part; a list of events is made when its first part is due, on a thread. A connection has one list, or one slice of a ring,
//! at a time.

use super::calls::wire_fragment;
use super::outbox::{Answer, Payload};
use super::window::WindowParts;
use forebay_core::{Bounds, EventInfo, Key, ReadFragment, Result, ServedStore};
use forebay_wire::{FrameHead, WireRange, WireWriter};

/// Bytes and fragments of one part.
const PART_BYTES: u64 = 256 << 10;
const PART_THINGS: usize = 1024;
/// Most bytes of meta for one fragment or event.
const THING_BYTES: u64 = 64;

/// A range that is being answered.
pub(super) struct Streaming<S: ServedStore> {
    pub(super) head: FrameHead,
    what: What<S>,
    /// Fragments or events of one part.
    things: usize,
}

enum What<S: ServedStore> {
    Fragments { range: Box<S::Range>, after: Option<Key> },
    Events { store: S, bounds: Bounds, list: Option<std::vec::IntoIter<EventInfo>> },
    Window(WindowParts),
}

/// Things of one part for a client that takes `window` bytes at once.
fn things(window: u64) -> usize {
    let things = (window / 4 / THING_BYTES).min(PART_THINGS as u64) as usize;
    debug_assert!(things > 0, "a part without things would never come to an end");
    things
}

impl<S: ServedStore> Streaming<S> {
    /// Starts to answer a client that takes `window` bytes at once.
    ///
    /// # Errors
    /// `Invalid` for what is no range.
    pub(super) fn start(store: &S, head: FrameHead, meta: &[u8], window: u64) -> Result<Streaming<S>> {
        let asked = WireRange::decode(meta, store.keyspace())?;
        let what = if asked.events {
            What::Events { store: store.clone(), bounds: asked.bounds, list: None }
        } else {
            What::Fragments { range: Box::new(store.range(&asked.bounds)), after: asked.after }
        };
        Ok(Streaming { head, what, things: things(window) })
    }

    /// Starts to answer with a window of a ring.
    pub(super) fn of_window(head: FrameHead, parts: WindowParts, window: u64) -> Streaming<S> {
        Streaming { head, what: What::Window(parts), things: things(window) }
    }

    /// Whether the next part takes long to be made: the first of a list.
    pub(super) fn takes_long(&self) -> bool {
        matches!(self.what, What::Events { list: None, .. })
    }

    /// Whether it has a list of what is still to come, or keeps a slice of a ring in place: one of them at a time.
    pub(super) fn has_list(&self) -> bool {
        match &self.what {
            What::Events { list, .. } => list.is_some(),
            What::Window(parts) => parts.is_under_way(),
            What::Fragments { .. } => false,
        }
    }

    /// The next part; the last one says that none follows.
    ///
    /// # Errors
    /// Those of the range.
    pub(super) fn part(&mut self) -> Result<Answer<S>> {
        match &mut self.what {
            What::Window(parts) => parts.next(self.things, PART_BYTES),
            What::Events { store, bounds, list } => {
                let events = match list {
                    Some(events) => events,
                    // One look at the store for all parts: the answer is a list of one moment.
                    none => none.insert(store.events(bounds)?.into_iter()),
                };
                let part: Vec<EventInfo> = events.by_ref().take(self.things).collect();
                let mut out = WireWriter::new();
                out.u32(part.len() as u32);
                for info in &part {
                    out.short(info.primary.as_bytes())?;
                    out.u8(info.state as u8);
                    out.u8(info.stage);
                    out.u32(info.fragments);
                    out.u64(info.bytes);
                    out.u8(info.deliveries);
                }
                Ok(Answer { more: events.len() > 0, ..Answer::of(out.finish()) })
            }
            What::Fragments { range, after } => {
                let mut said = Vec::new();
                let mut payload = Payload::default();
                let mut more = true;
                while said.len() < self.things && payload.bytes() < PART_BYTES {
                    let Some(fragment) = range.next().transpose()? else {
                        more = false;
                        break;
                    };
                    // A client that continues after a lost connection has these already. They are skipped by key:
                    // fragments may have come and gone meanwhile.
                    if after.is_some_and(|after| fragment.key() <= after) {
                        continue;
                    }
                    said.push((fragment.key(), wire_fragment(&fragment)));
                    payload.push(fragment);
                }
                let mut out = WireWriter::new();
                out.fragments(&said)?;
                Ok(Answer { payload, more, ..Answer::of(out.finish()) })
            }
        }
    }
}
