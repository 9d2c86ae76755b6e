//! The end of a region's life in this process: who still uses it, and who releases it. Event stores and rings close
//! by the same protocol.
//!
//! ```text
//!            once                 cells closed           shut                    calls ended, or the limit
//! open ──▶ closing, no new calls ──▶ no new users ──▶ users let go one by one ──▶ flushed, clean ──▶ ended
//!                                                       │                                            │
//!                                                       └── the last of all, users and closer ───────┴──▶ lock let go
//! ```
//!
//! A *user* of a segment is a record in flight or a guard (`segment.rs`, one word per segment). A call becomes a user
//! under the lock of its cell, while that is not closed, and releasing the segment is its last access to the region.
//!
//! *Lifecycle*: [`Closing::once`] runs the closing in the first thread that asks; others wait for its end and get its
//! answer. [`Closing::shut`] marks every segment. Each segment then counts once in `left`, until its last user is gone;
//! the closer counts once until it has written its last byte. The thread that removes the last count unlocks the file.
//!
//! *Invariants*: a shut segment without users gets no user (asserted in `segment.rs`; one that still has users may get
//! more: a guard can be taken beside a guard); the lock is released exactly once, and no thread accesses the region on
//! behalf of this life after that (loom models below, tests/close/).
//!
//! *On failure*: what does not end within the limit keeps the lock: the closing says so, and the last to let go unlocks.
//!
//! *Not here*: how calls are refused (a cell of the store or a source of the ring is closed under its lock), what is flushed
//! (`open.rs` of both).

use super::Segment;
use crate::sync::{AtomicU32, Ordering};
use forebay_core::{Error, Kind, Result};
use parking_lot::{Condvar, Mutex};
use std::fmt;
use std::time::{Duration, Instant};

/// How long a closing waits for calls in flight: a copy ends within it on any machine that is not starved.
pub const CALLS_WAIT: Duration = Duration::from_secs(5);
/// Between two looks at who still uses the region.
const PAUSE: Duration = Duration::from_micros(100);

/// How far the closing is.
enum Course {
    Open,
    UnderWay,
    /// Its answer, for all who ask.
    Ended(std::result::Result<(), (Kind, String)>),
}

/// See the module.
pub struct Closing {
    /// Segments with users, and the closer. Counts once every segment is shut.
    left: AtomicU32,
    course: Mutex<Course>,
    ended: Condvar,
}

impl Default for Closing {
    /// A region that is in use.
    fn default() -> Closing {
        Closing { left: AtomicU32::new(0), course: Mutex::new(Course::Open), ended: Condvar::new() }
    }
}

impl Closing {
    /// Closes, the first time; every other call waits for the end of that and answers the same.
    ///
    /// # Errors
    /// Those of `close`.
    pub fn once(&self, close: impl FnOnce() -> Result<()>) -> Result<()> {
        let mut course = self.course.lock();
        loop {
            match &*course {
                Course::Open => break,
                Course::UnderWay => self.ended.wait(&mut course),
                Course::Ended(answer) => {
                    return answer.clone().map_err(|(kind, message)| Error::new(kind, message));
                }
            }
        }
        *course = Course::UnderWay;
        // Not held while it closes: calls in flight and waiters of the end take it.
        drop(course);
        let end = End(self);
        let answer = close();
        end.with(answer.as_ref().copied().map_err(|error| (error.kind(), error.message().to_owned())));
        answer
    }

    /// From now on the last user of each segment, and the closer, let the region go.
    pub(super) fn shut(&self, segments: &[Segment]) {
        debug_assert_eq!(self.left.load(Ordering::Relaxed), 0, "shut twice");
        // All of them and the closer, before the first user can see that its segment is shut. Counted one by one, the first
        // user to let go could find zero and unlock a region that others still access.
        self.left.store(segments.len() as u32 + 1, Ordering::Release);
        for segment in segments {
            if segment.shut() {
                let last = self.let_go();
                debug_assert!(!last, "the closer itself counts");
            }
        }
    }

    /// A segment's last user has let go, or the closer has; `true` for the one who unlocks.
    pub(super) fn let_go(&self) -> bool {
        // As in a segment's word: the last one must see all accesses of the others before it unlocks the file, after which
        // another process writes the same memory.
        let before = self.left.fetch_sub(1, Ordering::AcqRel);
        debug_assert!(before > 0, "let go of twice");
        before == 1
    }
}

/// Ends the closing also if it panics, so that no thread waits forever.
struct End<'a>(&'a Closing);

impl End<'_> {
    fn with(self, answer: std::result::Result<(), (Kind, String)>) {
        // Those who wait are woken by the drop that follows, which also ends a closing that panicked.
        *self.0.course.lock() = Course::Ended(answer);
    }
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        let mut course = self.0.course.lock();
        if matches!(*course, Course::UnderWay) {
            *course = Course::Ended(Err((Kind::Internal, "the thread that closed it panicked".to_owned())));
        }
        drop(course);
        self.0.ended.notify_all();
    }
}

/// Waits until there are none left of what `count` counts, at most for `limit`; how many are left.
pub fn wait_for_none(limit: Duration, count: impl Fn() -> u64) -> u64 {
    let begun = Instant::now();
    loop {
        let left = count();
        if left == 0 || begun.elapsed() >= limit {
            return left;
        }
        // Calls in flight signal nobody: a wake-up for each would cost every put, a closing waits once in a life.
        std::thread::sleep(PAUSE);
    }
}

/// What one holder still has of a store or ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptBy {
    /// Name of the holder (`Store::named`, `Ring::named`).
    pub holder: String,
    /// Guards: fragments in place, chunks under windows.
    pub guards: u64,
    /// Reservations that are neither committed nor given up.
    pub reservations: u64,
}

/// What keeps the lock of a store or ring that is closed: once there is nothing left, others can open it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Holders with guards or reservations.
    pub holders: Vec<KeptBy>,
    /// Calls in flight.
    pub calls: u64,
}

impl Kept {
    /// From who uses the segments (guards, records in flight), counted first, and what holders have of that.
    pub fn new((pins, in_flight): (u64, u64), holders: Vec<KeptBy>) -> Kept {
        let guards: u64 = holders.iter().map(|holder| holder.guards).sum();
        let reservations: u64 = holders.iter().map(|holder| holder.reservations).sum();
        // Saturating: holders are counted after users, so that one that comes in between counts on its side only.
        let calls = pins.saturating_sub(guards) + in_flight.saturating_sub(reservations);
        Kept { holders, calls }
    }

    /// Nothing is left.
    pub fn is_empty(&self) -> bool {
        self.calls == 0 && self.holders.is_empty()
    }
}

impl fmt::Display for Kept {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return write!(out, "nothing");
        }
        let mut between = "";
        for KeptBy { holder, guards, reservations } in &self.holders {
            write!(out, "{between}{guards} guards and {reservations} reservations of `{holder}`")?;
            between = ", ";
        }
        if self.calls > 0 {
            write!(out, "{between}{} calls in flight", self.calls)?;
        }
        Ok(())
    }
}

/// The answer of a closing that calls in flight outlasted.
pub fn outlasted(what: &str, kept: &Kept) -> Error {
    Error::unavailable(format!(
        "the {what} is closed and takes no more calls, but what began before did not end within {CALLS_WAIT:?}: {kept}; \
         its lock is released when the last of them ends, and the next opening reads every record"
    ))
}

#[cfg(all(test, feature = "loom"))]
mod models {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::{Arc, Mutex};
    use loom::thread;

    /// A region of one segment behind one cell; `memory` is what another life writes once the lock is let go.
    struct Life {
        segment: Segment,
        closing: Closing,
        /// The cell: whether it is closed.
        cell: Mutex<bool>,
        memory: UnsafeCell<()>,
        unlocked: loom::sync::atomic::AtomicU32,
    }

    impl Life {
        fn new() -> Arc<Life> {
            let segment = Segment::default();
            segment.adopt();
            Arc::new(Life {
                segment,
                closing: Closing::default(),
                cell: Mutex::new(false),
                memory: UnsafeCell::new(()),
                unlocked: loom::sync::atomic::AtomicU32::new(0),
            })
        }

        /// As `Hot::left`.
        fn left(&self, left: crate::hot::segment::Left) {
            if left.was_last_user() {
                self.let_go();
            }
        }

        fn let_go(&self) {
            if self.closing.let_go() {
                // The next life owns the memory: loom reports any access of this one that is not ordered before.
                self.memory.with_mut(|_| ());
                self.unlocked.fetch_add(1, Ordering::Relaxed);
            }
        }

        fn close(&self) {
            *self.cell.lock().unwrap() = true;
            self.closing.shut(std::slice::from_ref(&self.segment));
            self.let_go();
        }

        fn assert_unlocked_once(&self) {
            assert_eq!(self.unlocked.load(Ordering::Relaxed), 1, "the lock is let go exactly once");
        }
    }

    #[test]
    fn loom_publish_beside_close() {
        loom::model(|| {
            let life = Life::new();
            let writer = {
                let life = life.clone();
                thread::spawn(move || {
                    {
                        let closed = life.cell.lock().unwrap();
                        if *closed {
                            return;
                        }
                        life.segment.begin();
                    }
                    // The bytes, outside of all locks.
                    life.memory.with_mut(|_| ());
                    let closed = life.cell.lock().unwrap();
                    // Ended, or booked: the last access.
                    life.memory.with_mut(|_| ());
                    life.left(if *closed { life.segment.abandoned(1) } else { life.segment.written() });
                })
            };
            life.close();
            writer.join().unwrap();
            life.assert_unlocked_once();
        });
    }

    #[test]
    fn loom_window_beside_close() {
        loom::model(|| {
            let life = Life::new();
            let readers: Vec<_> = (0..2)
                .map(|_| {
                    let life = life.clone();
                    thread::spawn(move || {
                        {
                            let closed = life.cell.lock().unwrap();
                            if *closed {
                                return;
                            }
                            life.segment.pin();
                        }
                        life.memory.with(|_| ());
                        life.left(life.segment.unpin());
                    })
                })
                .collect();
            life.close();
            readers.into_iter().for_each(|reader| reader.join().unwrap());
            life.assert_unlocked_once();
        });
    }

    #[test]
    fn loom_two_segments_and_the_closer_let_go_once() {
        loom::model(|| {
            let segments = [Segment::default(), Segment::default()];
            segments.iter().for_each(Segment::pin);
            let (segments, closing) = (Arc::new(segments), Arc::new(Closing::default()));
            let guard = {
                let (segments, closing) = (segments.clone(), closing.clone());
                thread::spawn(move || {
                    let first = segments[0].unpin().was_last_user() && closing.let_go();
                    let second = segments[1].unpin().was_last_user() && closing.let_go();
                    u32::from(first) + u32::from(second)
                })
            };
            closing.shut(&segments[..]);
            let here = u32::from(closing.let_go());
            assert_eq!(here + guard.join().unwrap(), 1);
        });
    }
}
