//! Windows of a ring: waited for without a thread, answered in parts.
//!
//! *Invariants*: a window keeps its chunks in place until the client has taken it, and no longer than the deadline of its
//! frames allows (tests/session/ring.rs): what is evicted meanwhile is other data.

use super::calls::Request;
use super::outbox::{Answer, Guard, Payload};
use super::stream::Streaming;
use super::{LOOK_AGAIN_FILTERED, Session};
use crate::call::Call;
use crate::transport::Transport;
use forebay_core::{Error, FrameHead, Result, SourceSchema, WireRingFragment, WireWindow, WireWindowPart};
use forebay_store::{Ring, Window};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A window that has not all arrived.
pub(super) struct Awaiting {
    head: FrameHead,
    ring: Ring,
    window: WireWindow,
    from: Instant,
    until: Instant,
}

impl<T: Transport> Session<T> {
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
        let awaiting = Awaiting { head: request.head, ring: ring.clone(), window, from, until };
        if all || awaiting.window.wait.is_zero() {
            self.give_window(awaiting);
            self.pump_streams();
        } else {
            self.awaiting.push(awaiting);
        }
    }

    /// Looks whether windows that are waited for have arrived, or will not in their time.
    pub(super) fn look_at_windows(&mut self) {
        let (now, is_leaving) = (Instant::now(), self.is_leaving());
        let mut at = 0;
        while at < self.awaiting.len() && !self.outbox.is_full() {
            let Awaiting { ring, window, until, .. } = &self.awaiting[at];
            let all = ring.has_window(window.begin, window.end, &window.sources);
            if matches!(all, Ok(false)) && now < *until && !is_leaving {
                at += 1;
                continue;
            }
            let awaiting = self.awaiting.remove(at);
            self.give_window(awaiting);
        }
    }

    /// When that is due again.
    pub(super) fn next_look_at_windows(&self) -> Option<Instant> {
        let next = self.awaiting.iter().map(|awaiting| awaiting.until).min();
        // While nothing more may be answered nobody looks: what goes out is waited for.
        next.filter(|_| !self.outbox.is_full()).map(|until| until.min(Instant::now() + LOOK_AGAIN_FILTERED))
    }

    fn give_window(&mut self, awaiting: Awaiting) {
        let Awaiting { head, ring, window: WireWindow { begin, end, sources, .. }, from, .. } = awaiting;
        match ring.window(begin, end, &sources, Duration::ZERO) {
            Ok(window) => {
                let things = window.sources.iter().map(|source| source.fragments().len() as u64).sum();
                self.shared.metrics.answered(Call::Window, things, None, from.elapsed());
                let parts = WindowParts::new(window, &ring.keyspace().source);
                self.streams.push(Streaming::of_window(head, parts, self.outbox.window()));
            }
            Err(error) => self.answered(head, Call::Window, 1, from, Err(error)),
        }
    }
}

/// A window that is being said.
pub(super) struct WindowParts {
    window: Arc<Window>,
    schema: SourceSchema,
    /// Which source comes next, which of its stretches, and which of its fragments.
    source: usize,
    stretch: usize,
    fragment: usize,
}

/// One fragment with what keeps it in place.
struct Held<'a>(&'a [u8], Guard);

impl std::ops::Deref for Held<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0
    }
}

impl From<Held<'_>> for Guard {
    fn from(held: Held<'_>) -> Guard {
        held.1
    }
}

impl WindowParts {
    fn new(window: Window, schema: &SourceSchema) -> WindowParts {
        WindowParts { window: Arc::new(window), schema: schema.clone(), source: 0, stretch: 0, fragment: 0 }
    }

    /// The next part, of so many things and about so many bytes.
    ///
    /// # Errors
    /// None that a client could meet.
    pub(super) fn next(&mut self, things: usize, bytes: u64) -> Result<Answer> {
        let (mut parts, mut payload, mut left) = (Vec::new(), Payload::default(), things);
        let window = self.window.clone();
        while left > 0
            && payload.bytes() < bytes
            && let Some(source) = window.sources.get(self.source)
        {
            left -= 1;
            let coverage: Vec<_> = source.coverage[self.stretch..].iter().take(left).copied().collect();
            (self.stretch, left) = (self.stretch + coverage.len(), left - coverage.len());
            let mut fragments = Vec::new();
            while left > 0
                && payload.bytes() < bytes
                && let Some(fragment) = source.fragment(self.fragment)
            {
                let length = u32::try_from(fragment.bytes.len())
                    .map_err(|_| Error::internal("a fragment longer than any can be"))?;
                let forebay_store::RingFragment { timestamp, span, run, status, checksum, .. } = fragment;
                fragments.push(WireRingFragment { timestamp, span, run, status, length, checksum });
                let guard = Guard::Window(window.clone(), self.source, self.fragment);
                payload.push(Held(fragment.bytes, guard));
                (self.fragment, left) = (self.fragment + 1, left - 1);
            }
            parts.push(WireWindowPart { source: source.source, coverage, fragments });
            if self.stretch == source.coverage.len() && self.fragment == source.fragments().len() {
                (self.source, self.stretch, self.fragment) = (self.source + 1, 0, 0);
            }
        }
        let more = self.source < window.sources.len();
        Ok(Answer { payload, more, ..Answer::of(WireWindowPart::encode_all(&parts, &self.schema)?) })
    }
}
