//! Windows of a ring: waited for without a thread, answered in parts.
//!
//! *Invariants*: a connection has one slice of one window in place, and what is on its way of it (tests/session/ring.rs): a
//! ring waits for no slow reader.

use super::calls::Request;
use super::outbox::{Answer, Payload};
use super::stream::Streaming;
use super::{LOOK_AGAIN_FILTERED, Session};
use crate::shared::{now, since};
use crate::slices::{Slice, Slices};
use crate::transport::Transport;
use forebay_core::{Call, Error, Result, ServedStore, SourceSchema};
use forebay_ring::Ring;
use forebay_wire::{FrameHead, WireRingFragment, WireWindow, WireWindowPart};
use std::sync::Arc;
use std::time::Instant;

/// A window that has not all arrived.
pub(super) struct Awaiting {
    head: FrameHead,
    ring: Ring,
    window: WireWindow,
    from: Instant,
    until: Instant,
    /// When it is looked at again.
    next_look: Instant,
}

impl<T: Transport, S: ServedStore> Session<T, S> {
    /// Answers with a window, now or once it is all there.
    pub(super) fn window(&mut self, request: &Request, ring: &Ring, from: Instant) {
        let asked = WireWindow::decode(&request.meta, &ring.keyspace().source);
        let has = asked.and_then(|window| {
            let all = ring.has_window(window.begin, window.end, &window.sources)?;
            Ok((window, all))
        });
        let (window, all) = match has {
            Ok(has) => has,
            Err(error) => return self.answered(request.head, Call::Window, 1, from, Err(error)),
        };
        let until = from + window.wait.min(self.shared.limits.wait_max);
        let awaiting = Awaiting {
            head: request.head,
            ring: ring.clone(),
            window,
            from,
            until,
            next_look: from + LOOK_AGAIN_FILTERED,
        };
        // A client that does not wait gets what is there, with the rest named as not yet there.
        if all || awaiting.window.wait.is_zero() {
            self.give_window(awaiting);
            self.pump_streams();
        } else {
            self.work.awaiting.push(awaiting);
        }
    }

    /// Looks whether windows that are waited for have arrived, or will not in their time.
    pub(super) fn look_at_windows(&mut self) {
        if self.work.awaiting.is_empty() {
            return;
        }
        let (now, is_leaving) = (now(), self.is_leaving());
        let mut at = 0;
        while at < self.work.awaiting.len() && !self.outbox.is_full() {
            let Awaiting { ring, window, until, next_look, .. } = &mut self.work.awaiting[at];
            if now < *next_look && now < *until && !is_leaving {
                at += 1;
                continue;
            }
            // A ring gives no notice of single sources: it is asked again, for each window at most once in this time.
            *next_look = now + LOOK_AGAIN_FILTERED;
            let all = ring.has_window(window.begin, window.end, &window.sources);
            if matches!(all, Ok(false)) && now < *until && !is_leaving {
                at += 1;
                continue;
            }
            let awaiting = self.work.awaiting.remove(at);
            self.give_window(awaiting);
        }
    }

    /// When that is due again.
    pub(super) fn next_look_at_windows(&self) -> Option<Instant> {
        let next = self.work.awaiting.iter().map(|awaiting| awaiting.until.min(awaiting.next_look)).min();
        // While nothing more may be answered nobody looks: what goes out is waited for.
        next.filter(|_| !self.outbox.is_full())
    }

    fn give_window(&mut self, awaiting: Awaiting) {
        let Awaiting { head, ring, window: WireWindow { begin, end, sources, .. }, from, .. } = awaiting;
        self.shared.metrics.answered(Call::Window, 1, None, since(from));
        let parts = WindowParts {
            slices: Slices::new(&ring, begin, end, &sources),
            schema: ring.keyspace().source.clone(),
            slice: None,
            stretch: 0,
            fragment: 0,
        };
        self.work.streams.push(Streaming::of_window(head, parts, self.outbox.window()));
    }
}

/// A window that is being said.
pub(super) struct WindowParts {
    slices: Slices,
    schema: SourceSchema,
    /// The slice under way; which of its stretches comes next, and which of its fragments.
    slice: Option<Arc<Slice>>,
    stretch: usize,
    fragment: usize,
}

impl WindowParts {
    /// Whether something is kept in place for it.
    pub(super) fn is_under_way(&self) -> bool {
        self.slice.is_some()
    }

    /// The next part, with its number of things and about its number of bytes.
    ///
    /// # Errors
    /// `Closed` where the ring closes meanwhile.
    pub(super) fn next<S: ServedStore>(&mut self, things: usize, bytes: u64) -> Result<Answer<S>> {
        let (mut parts, mut payload, mut left) = (Vec::new(), Payload::default(), things);
        while left > 0 && payload.bytes() < bytes {
            let slice = match self.slice.take() {
                Some(slice) => slice,
                None => match self.slices.next()? {
                    Some(slice) => {
                        (self.stretch, self.fragment) = (0, slice.fragments().start);
                        Arc::new(slice)
                    }
                    None => return self.answer(&parts, payload, false),
                },
            };
            left -= 1;
            // Stretches before fragments: the client joins them by source, part by part.
            let coverage: Vec<_> = slice.coverage()[self.stretch..].iter().take(left).copied().collect();
            (self.stretch, left) = (self.stretch + coverage.len(), left - coverage.len());
            let mut fragments = Vec::new();
            while left > 0
                && payload.bytes() < bytes
                && let Some(fragment) = slice.window.sources[0].fragment(self.fragment)
            {
                let length = u32::try_from(fragment.bytes.len())
                    .map_err(|_| Error::internal("a fragment longer than any can be"))?;
                let forebay_ring::RingFragment { timestamp, span, run, status, checksum, .. } = fragment;
                fragments.push(WireRingFragment { timestamp, span, run, status, length, checksum });
                payload.push_of_ring(&slice, self.fragment);
                (self.fragment, left) = (self.fragment + 1, left - 1);
            }
            parts.push(WireWindowPart { source: slice.source(), coverage, fragments });
            if self.stretch < slice.coverage().len() || self.fragment < slice.fragments().end {
                // Its pins stay until its last fragment is queued; the next slice is read after that.
                self.slice = Some(slice);
            }
        }
        self.answer(&parts, payload, true)
    }

    fn answer<S: ServedStore>(&self, parts: &[WireWindowPart], payload: Payload<S>, more: bool) -> Result<Answer<S>> {
        Ok(Answer { payload, more, ..Answer::of(WireWindowPart::encode_all(parts, &self.schema)?) })
    }
}
