//! Ranges: many answers to one request, made as the client takes them.
//!
//! *Invariants*: one part is under way at a time, so that a client that does not read costs one part and no more.

use super::calls::wire_fragment;
use super::outbox::{Answer, Payload};
use forebay_core::{EventInfo, FrameHead, Key, Result, WireRange, WireWriter};
use forebay_store::{Range, Store};

/// Bytes and fragments of one part.
const PART_BYTES: u64 = 256 << 10;
const PART_THINGS: usize = 1024;

/// A range that is being answered.
pub(super) struct Streaming {
    pub(super) head: FrameHead,
    what: What,
}

enum What {
    Fragments { range: Box<Range>, after: Option<Key> },
    Events { events: std::vec::IntoIter<EventInfo> },
}

impl Streaming {
    /// Starts to answer.
    ///
    /// # Errors
    /// `Invalid` for what is no range, `Closed`.
    pub(super) fn start(store: &Store, head: FrameHead, meta: &[u8]) -> Result<Streaming> {
        let asked = WireRange::decode(meta, store.keyspace())?;
        let what = if asked.events {
            What::Events { events: store.events(&asked.bounds)?.into_iter() }
        } else {
            What::Fragments { range: Box::new(store.range(&asked.bounds)), after: asked.after }
        };
        Ok(Streaming { head, what })
    }

    /// The next part; the last one says that none follows.
    ///
    /// # Errors
    /// Those of the range.
    pub(super) fn part(&mut self) -> Result<Answer> {
        match &mut self.what {
            What::Events { events } => {
                let part: Vec<EventInfo> = events.by_ref().take(PART_THINGS).collect();
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
                Ok(Answer { meta: Ok(out.finish()), payload: Payload::default(), more: events.len() > 0 })
            }
            What::Fragments { range, after } => {
                let mut said = Vec::new();
                let mut payload = Payload::default();
                let mut more = true;
                while said.len() < PART_THINGS && payload.bytes() < PART_BYTES {
                    let Some(fragment) = range.next().transpose()? else {
                        more = false;
                        break;
                    };
                    if after.is_some_and(|after| fragment.key() <= after) {
                        continue;
                    }
                    said.push((fragment.key(), wire_fragment(&fragment)));
                    payload.push(fragment);
                }
                let mut out = WireWriter::new();
                out.fragments(&said)?;
                Ok(Answer { meta: Ok(out.finish()), payload, more })
            }
        }
    }
}
