//! Demoting: a thread for each ring takes its ticks to the recording, piece after piece.

use super::Controls;
use super::prepare::{PIN, pin_begins, pin_end};
use crate::{Coverage, RingSources};
use forebay_core::{Error, GapCause, KeepsTicks, Kind, Result, RingStore, RingView, RingWindow};
use forebay_recorder::{GapManifest, GapReason, RecordingLink};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Ticks that are demoted at once, as time.
const PIECE: Duration = Duration::from_millis(50);
/// How often a wait for the ring looks whether it shall end.
const LOOK: Duration = Duration::from_millis(20);

/// Demotes all rings side by side, then ends the recording.
pub(super) fn demote_all<R: RingStore>(controls: &Controls, demotions: Vec<Demotion<R>>) -> Result<GapManifest> {
    std::thread::scope(|scope| {
        for demotion in demotions {
            let number = demotion.number;
            let started = std::thread::Builder::new()
                .name(format!("ring-record-{number}"))
                .spawn_scoped(scope, move || demotion.run());
            // Its links are dropped with it: what the others take is recorded, and its ticks are missing.
            if let (Err(error), Some(of_ring)) = (started, controls.rings.get(number)) {
                *of_ring.trouble.lock() = Some(format!("cannot start the thread of a ring: {error}"));
            }
        }
    });
    if controls.abandoned.load(Ordering::Acquire) {
        return Err(Error::closed("the recording was given up"));
    }
    controls.recording.finish()
}

/// One ring's, on a thread of its own.
pub(super) struct Demotion<R: RingStore> {
    pub(super) ring: R,
    /// Its place among the rings of the recording.
    pub(super) number: usize,
    pub(super) controls: Arc<Controls>,
    pub(super) sources: RingSources,
    pub(super) links: Vec<RecordingLink>,
    pub(super) pin: R::Pin,
    /// When the pin was moved last.
    pub(super) pinned: Instant,
    pub(super) at: u64,
    pub(super) deadline: Instant,
    pub(super) patience: Duration,
}

impl<R: RingStore> Demotion<R> {
    fn run(mut self) {
        // Piece by piece: a window holds guards on all of its chunks, and the pin follows behind each.
        let piece = self.ring.keyspace().ticks(PIECE).max(1);
        while self.at < self.controls.end {
            let end = self.at.saturating_add(piece).min(self.controls.end);
            match self.demote(end) {
                Ok(true) => self.at = end,
                Ok(false) => break,
                Err(error) => {
                    self.say(Some(error.to_string()));
                    self.miss_the_rest();
                    break;
                }
            }
            if let Some(of_ring) = self.controls.rings.get(self.number) {
                of_ring.tick.store(end, Ordering::Release);
            }
            // After the piece is handed over: a fragment that is not yet in a buffer of the recording is still pinned.
            self.move_pin();
        }
        // Links hand over what they hold when they are dropped; `finish` refuses while one is held.
        drop(self);
    }

    /// The ring has closed, or its server is away: what is left of its ticks is in no container.
    fn miss_the_rest(&mut self) {
        let (at, end) = (self.at, self.controls.end);
        for link in &mut self.links {
            let from = link.next_tick().unwrap_or(at);
            if from < end {
                // A recording that has ended meanwhile has its account already.
                let _ = link.missed(from, end, link.frames_in(from, end), GapReason::RingRestart);
            }
        }
    }

    fn say(&self, trouble: Option<String>) {
        if let Some(of_ring) = self.controls.rings.get(self.number) {
            *of_ring.trouble.lock() = trouble;
        }
    }

    fn is_over(&self) -> bool {
        Instant::now() >= self.deadline
    }

    /// Demotes `[at, end)` of all sources, once it has come, or should have; `false` where it was stopped before that.
    fn demote(&mut self, end: u64) -> Result<bool> {
        let window = loop {
            if self.controls.stops() {
                return Ok(false);
            }
            // In short steps, so that a stop, or a clock that nobody feeds, is seen soon.
            let wait = if self.is_over() { Duration::ZERO } else { LOOK };
            // Asked before the window is read: what has come by then is in it.
            let overdue = self.is_overdue(end)?;
            let window = self.ring.window(self.at, end, &self.sources, wait)?;
            let mut stretches = (0..window.sources()).flat_map(|at| window.coverage(at));
            if stretches.all(|stretch| stretch.state != Coverage::NotYet) || overdue {
                break window;
            }
            // Its guards would keep chunks from being evicted that are recorded already.
            drop(window);
            if self.pinned.elapsed() > PIN / 4 {
                self.move_pin();
            }
        };
        let mut links = std::mem::take(&mut self.links);
        let piece = Piece { begin: self.at, end, controls: &self.controls, deadline: self.deadline };
        let sources = links.iter_mut().enumerate();
        let demoted = sources.map(|(at, link)| piece.demote(&window, at, link)).collect::<Result<Vec<bool>>>();
        self.links = links;
        Ok(demoted?.into_iter().all(|whole| whole))
    }

    /// Whether these ticks should have come by now, and the patience is over. As long as nobody knows the ring's time, only
    /// the recording's own end is known.
    fn is_overdue(&self, end: u64) -> Result<bool> {
        Ok(self.is_over() || !self.ring.may_come(end, self.patience)?)
    }

    /// Lets go of what is recorded, and keeps what comes: all of it that the quota allows.
    fn move_pin(&mut self) {
        let names = match &self.sources {
            RingSources::Only(names) => names.as_slice(),
            RingSources::All => &[],
        };
        if self.at >= self.controls.end {
            return;
        }
        let end = match pin_end(&self.ring, names, self.controls.end) {
            Ok(end) => end.max(self.at.saturating_add(1)),
            // A server that does not answer: the next piece finds out.
            Err(error) => return self.say(Some(error.to_string())),
        };
        let mut trouble = None;
        for begin in pin_begins(self.at, end) {
            let moved = match self.pin.move_to(begin, end, PIN) {
                // A device stopped for longer than the pin lasts.
                Err(error) if error.kind() == Kind::Fenced => {
                    self.ring.pin(begin, end, &self.sources, PIN).map(|pin| self.pin = pin)
                }
                moved => moved,
            };
            let Err(error) = moved else { break };
            trouble.get_or_insert(error.to_string());
            if error.kind() != Kind::Full {
                break;
            }
        }
        self.pinned = Instant::now();
        self.say(trouble);
    }
}

/// Ticks that go to the recording together.
struct Piece<'a> {
    begin: u64,
    end: u64,
    controls: &'a Controls,
    deadline: Instant,
}

impl Piece<'_> {
    /// One source's part: stretch by stretch, in order; `false` where it was stopped on the way.
    fn demote<W: RingWindow>(&self, window: &W, at: usize, link: &mut RecordingLink) -> Result<bool> {
        // What only reaches into the first piece belongs to it, what reaches into a later one was pushed with the one
        // before.
        let first = link.next_tick().is_none();
        let numbered = (0..).map_while(|number| window.fragment(at, number).map(|fragment| (number, fragment)));
        let mut fragments = numbered.filter(|(_, fragment)| first || fragment.timestamp >= self.begin).peekable();
        for stretch in window.coverage(at) {
            // What the fragment before reaches into is covered.
            let from = link.next_tick().map_or(stretch.begin, |next| next.clamp(stretch.begin, stretch.end));
            debug_assert!(stretch.begin <= from && from <= stretch.end, "ticks outside of their stretch");
            let frames = link.frames_in(from, stretch.end);
            match stretch.state {
                Coverage::Complete => {
                    let end = stretch.end.min(self.end);
                    while let Some((number, fragment)) = fragments.next_if(|(_, fragment)| fragment.timestamp < end) {
                        if self.controls.stops() {
                            return Ok(false);
                        }
                        // A recording outlives the ring: bytes that have rotted must not be copied under a fresh checksum.
                        let is_right = || window.verify(at, number).is_ok();
                        self.push(link, &fragment, is_right)?;
                    }
                }
                _ if from == stretch.end => {}
                Coverage::Gap(GapCause::NeverArrived) => link.silent(from, stretch.end)?,
                Coverage::NotYet => link.absent(from, stretch.end, GapReason::RingNotYet)?,
                Coverage::Gap(cause) => link.missed(from, stretch.end, frames, GapReason::of_ring(cause))?,
                Coverage::Gone if window.first(at).is_some_and(|first| stretch.end <= first) => {
                    link.absent(from, stretch.end, GapReason::RingBefore)?;
                }
                Coverage::Gone => link.missed(from, stretch.end, frames, GapReason::RingGone)?,
            }
        }
        Ok(true)
    }

    fn push(&self, link: &mut RecordingLink, fragment: &RingView<'_>, is_right: impl Fn() -> bool) -> Result<()> {
        let end = fragment.timestamp + u64::from(fragment.span);
        if Instant::now() >= self.deadline {
            return link.missed(fragment.timestamp, end, 1, GapReason::DeviceStalled);
        }
        if !is_right() {
            return link.missed(fragment.timestamp, end, 1, GapReason::Corrupt);
        }
        // A frame that the device does not take is a gap by then.
        link.push(fragment.timestamp, fragment.span, fragment.bytes).map(drop)
    }
}
