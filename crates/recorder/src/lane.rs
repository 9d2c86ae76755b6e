//! One device's thread: writes images as they come, makes them durable, and passes on or gives up what the device does
//! not take.
//!
//! ```text
//! queue ─▶ append ─▶ written ─commit─▶ under way ─poll─▶ durable: settled, buffer free
//!             └──────────┴─── error ───────┴─▶ again, in another container ─▶ another device ─▶ missed, with its reason
//! ```
//!
//! *Invariants*: an image's buffer is given back when the image is durable or missed, not before, so that what was not
//! durable can be written again (test `what_a_failed_commit_held_is_written_again`).
//!
//! *On failure*: a device that failed `ATTEMPTS_MAX` times, or has no empty container left, takes nothing any more.

use super::cause::GapReason;
use super::image::Image;
use super::limits::ATTEMPTS_MAX;
use super::pool::Pool;
use super::recorder::Recorder;
use forebay_core::{Error, Kind, Result};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long the thread sleeps while something is under way, and while nothing is.
// A device's queue has no wake-up for this thread: it is polled, at a fraction of what a sync takes.
const POLL: Duration = Duration::from_millis(1);
const IDLE: Duration = Duration::from_millis(20);

/// Where images go: one device's containers.
pub(super) trait Sink {
    /// Writes an image as one extent. `Full` where no container is left; what was appended before stays in force. After
    /// `Corrupt`, bytes that changed in memory, nothing counts of this image alone; after any other error nothing that
    /// was not durable counts, and `renew` comes next.
    fn append(&mut self, image: &Image) -> Result<()>;

    /// Asks that what was appended be made durable; the ticket by which `poll` answers that.
    fn commit(&mut self) -> Result<u64>;

    /// The highest ticket that is durable, without waiting.
    fn poll(&mut self) -> Result<u64>;

    /// The highest ticket that was found durable, also after an error.
    fn durable(&self) -> u64;

    /// Goes on elsewhere after an error.
    fn renew(&mut self);

    /// Closes what is being filled; everything was committed.
    fn close(&mut self) -> Result<()>;
}

/// One device as links see it.
pub(super) struct Lane {
    pub(super) index: usize,
    pub(super) pool: Arc<Pool>,
    queue: Mutex<VecDeque<Image>>,
    arrived: Condvar,
    failed: AtomicBool,
    failure: Mutex<Option<(GapReason, String)>>,
    /// Images that it has and has not settled.
    waiting: AtomicU64,
    /// When it last got on with something.
    progressed_ns: AtomicU64,
    pub(super) recorded: AtomicU64,
    pub(super) recorded_bytes: AtomicU64,
    /// Its thread has ended in order.
    pub(super) ended: AtomicBool,
}

impl Lane {
    pub(super) fn new(index: usize, extent_bytes: usize) -> Lane {
        Lane {
            index,
            pool: Pool::new(extent_bytes),
            queue: Mutex::default(),
            arrived: Condvar::new(),
            failed: AtomicBool::new(false),
            failure: Mutex::default(),
            waiting: AtomicU64::new(0),
            progressed_ns: AtomicU64::new(0),
            recorded: AtomicU64::new(0),
            recorded_bytes: AtomicU64::new(0),
            ended: AtomicBool::new(false),
        }
    }

    /// Takes an image; `now_ns` is the recording's time.
    pub(super) fn take(&self, image: Image, now_ns: u64) {
        // Silence counts from the first image that waits: a device that had nothing to do has not stalled.
        if self.waiting.fetch_add(1, Ordering::AcqRel) == 0 {
            self.progressed_ns.store(now_ns, Ordering::Release);
        }
        self.queue.lock().push_back(image);
        self.arrived.notify_one();
    }

    /// Wakes the thread.
    pub(super) fn wake(&self) {
        self.arrived.notify_all();
    }

    /// Why it takes nothing any more; `None` while it does.
    pub(super) fn failure_reason(&self) -> Option<GapReason> {
        if !self.failed.load(Ordering::Acquire) {
            return None;
        }
        self.failure.lock().as_ref().map(|failure| failure.0)
    }

    /// The same for people.
    pub(super) fn failure_text(&self) -> Option<String> {
        self.failure.lock().as_ref().map(|(reason, text)| format!("{reason}: {text}"))
    }

    /// Nothing has moved for longer than `stall` although something waits.
    pub(super) fn is_stalled(&self, now_ns: u64, stall: Duration) -> bool {
        // Both are read without a lock: an image that settles in between makes a stall look shorter, never longer.
        let since = now_ns.saturating_sub(self.progressed_ns.load(Ordering::Acquire));
        self.waiting.load(Ordering::Acquire) > 0 && u128::from(since) > stall.as_nanos()
    }

    /// Why no buffer is free.
    pub(super) fn reason(&self, now_ns: u64, stall: Duration) -> GapReason {
        match self.failure_reason() {
            Some(reason) => reason,
            None if self.is_stalled(now_ns, stall) => GapReason::DeviceStalled,
            None => GapReason::DeviceSlow,
        }
    }

    /// It did not end in time.
    pub(super) fn give_up(&self) {
        self.fail(GapReason::DeviceStalled, "it did not answer until the recording was given up".to_owned());
    }

    fn fail(&self, reason: GapReason, text: String) {
        // The text before the flag: a thread that finds the flag finds why. The first reason stays, later ones follow from it.
        self.failure.lock().get_or_insert((reason, text));
        self.failed.store(true, Ordering::Release);
    }

    fn progressed(&self, recorder: &Recorder) {
        self.progressed_ns.store(recorder.now_ns(), Ordering::Release);
    }

    fn next(&self, wait: Duration) -> Option<Image> {
        // Guards the queue alone; links push under no other lock of this crate.
        let mut queue = self.queue.lock();
        if queue.is_empty() && !wait.is_zero() {
            self.arrived.wait_for(&mut queue, wait);
        }
        queue.pop_front()
    }
}

/// The body of a device's thread.
pub(super) fn run(recorder: &Recorder, lane: &Lane, sink: &mut dyn Sink) {
    let mut writing = Writing {
        recorder,
        lane,
        sink,
        again: VecDeque::new(),
        written: Vec::new(),
        bytes: 0,
        oldest: None,
        under_way: VecDeque::new(),
    };
    writing.run();
    lane.ended.store(true, Ordering::Release);
}

struct Writing<'a> {
    recorder: &'a Recorder,
    lane: &'a Lane,
    sink: &'a mut dyn Sink,
    /// To be written again.
    again: VecDeque<Image>,
    /// Appended since the last commit.
    written: Vec<Image>,
    bytes: u64,
    oldest: Option<Instant>,
    /// Committed, not durable yet.
    under_way: VecDeque<(u64, Vec<Image>)>,
}

impl Writing<'_> {
    fn run(&mut self) {
        let commit_bytes = self.commit_bytes();
        loop {
            let waits = match (self.written.is_empty() && self.under_way.is_empty(), self.again.is_empty()) {
                (_, false) => Duration::ZERO,
                (true, true) => IDLE,
                (false, true) => POLL,
            };
            let image = self.again.pop_front().or_else(|| self.lane.next(waits));
            let came = image.is_some();
            if let Some(image) = image {
                self.append(image);
            }
            // At half of the interval, because the device takes the other half: `commit_every` is what a user is promised.
            let old = self.oldest.is_some_and(|oldest| oldest.elapsed() >= self.recorder.config.commit_every / 2);
            let ends = !came && self.recorder.is_closing();
            if !self.written.is_empty() && (self.bytes >= commit_bytes || old || ends) {
                self.commit();
            }
            self.settle();
            // Not as soon as this lane is idle: another one that fails now hands its images over here.
            let idle = self.again.is_empty() && self.written.is_empty() && self.under_way.is_empty();
            if !came && idle && self.recorder.is_closing() && self.recorder.is_settled() {
                break;
            }
        }
        // On a device that failed nothing more is written; a full one still closes what it has.
        if self.lane.failure_reason() != Some(GapReason::DeviceError)
            && let Err(error) = self.sink.close()
        {
            // Everything is durable; the next opening finds it by a scan.
            self.lane.fail(GapReason::DeviceError, format!("closing the last container: {error}"));
        }
    }

    /// Asked for often enough that buffers come back before all of them wait for it.
    fn commit_bytes(&self) -> u64 {
        let config = &self.recorder.config;
        // A quarter of the buffers: while one commit is under way, links fill the rest and do not wait for it.
        let quarter = config.buffers_per_link as u64 * config.extent_bytes as u64 / 4;
        config.commit_bytes.min(quarter.max(config.extent_bytes as u64 / 2))
    }

    fn append(&mut self, image: Image) {
        if let Some(reason) = self.lane.failure_reason() {
            self.displace(image, reason);
            return;
        }
        match self.sink.append(&image) {
            Ok(()) => {
                self.lane.progressed(self.recorder);
                self.bytes += image.bytes();
                self.oldest.get_or_insert_with(Instant::now);
                self.written.push(image);
            }
            // What was appended before stays in force: only this image goes elsewhere.
            Err(error) if error.kind() == Kind::Full => {
                self.lane.fail(GapReason::DiskFull, error.message().to_owned());
                self.displace(image, GapReason::DiskFull);
            }
            // Its bytes changed in memory after they were summed: no device would take them any better.
            Err(error) if error.kind() == Kind::Corrupt => self.give_up(image, GapReason::Corrupt),
            Err(error) => self.failed(&error, Some(image)),
        }
    }

    fn commit(&mut self) {
        match self.sink.commit() {
            Ok(ticket) => {
                self.under_way.push_back((ticket, std::mem::take(&mut self.written)));
                (self.bytes, self.oldest) = (0, None);
            }
            Err(error) => self.failed(&error, None),
        }
    }

    /// Books what has become durable.
    fn settle(&mut self) {
        if self.under_way.is_empty() {
            return;
        }
        match self.sink.poll() {
            Ok(durable) => self.settle_to(durable),
            Err(error) => self.failed(&error, None),
        }
    }

    fn settle_to(&mut self, durable: u64) {
        let tickets = self.under_way.iter().map(|(ticket, _)| *ticket);
        debug_assert!(tickets.is_sorted(), "commits are settled in the order in which they were asked for");
        while let Some((_, images)) = self.under_way.pop_front_if(|(ticket, _)| *ticket <= durable) {
            self.lane.progressed(self.recorder);
            for image in images {
                if let Some(books) = self.recorder.books(image.link) {
                    books.durable(image.number, |frames, bytes| {
                        self.lane.recorded.fetch_add(frames, Ordering::Relaxed);
                        self.lane.recorded_bytes.fetch_add(bytes, Ordering::Relaxed);
                    });
                }
                self.settled(image);
            }
        }
    }

    /// Nothing that is not durable counts: it is written again, for a few times.
    fn failed(&mut self, error: &Error, image: Option<Image>) {
        // First what is there: it must not be written a second time, nor be named as missed.
        self.settle_to(self.sink.durable());
        let under_way = self.under_way.drain(..).flat_map(|(_, images)| images);
        let mut images: Vec<Image> = under_way.chain(self.written.drain(..)).chain(image).collect();
        (self.bytes, self.oldest) = (0, None);
        // Per image, not per device: one image that no container takes must not give up a device that takes others.
        images.iter_mut().for_each(|image| image.attempts += 1);
        if images.iter().any(|image| image.attempts >= ATTEMPTS_MAX) {
            let stalled = self.lane.is_stalled(self.recorder.now_ns(), self.recorder.config.stall);
            let reason = if stalled { GapReason::DeviceStalled } else { GapReason::DeviceError };
            self.lane.fail(reason, error.to_string());
            let again = std::mem::take(&mut self.again);
            images.into_iter().chain(again).for_each(|image| self.displace(image, reason));
            return;
        }
        // Another writer takes another container: the one that failed is poisoned, and what was durable in it plays back.
        self.sink.renew();
        // In front and in their order: images of a link stay in order on the medium as far as its device allows.
        images.into_iter().rev().for_each(|image| self.again.push_front(image));
    }

    /// The device does not take it: another one gets it, or it is missed.
    fn displace(&mut self, mut image: Image, reason: GapReason) {
        // Counted, so that an image that no device takes counts as missed instead of being passed round forever.
        image.hops += 1;
        image.attempts = 0;
        let elsewhere = self.recorder.lane_for(self.lane.index).ok().filter(|_| image.hops < self.recorder.lanes.len());
        if let Some(other) = elsewhere {
            // Still outstanding: only the lane changes, and the recording waits for it as before.
            self.lane.waiting.fetch_sub(1, Ordering::AcqRel);
            other.take(image, self.recorder.now_ns());
            return;
        }
        self.give_up(image, reason);
    }

    fn give_up(&self, image: Image, reason: GapReason) {
        if let Some(books) = self.recorder.books(image.link) {
            books.failed(image.number, reason);
        }
        self.settled(image);
    }

    fn settled(&self, image: Image) {
        // The buffer first: a link that waits for one goes on before the account of the recording is settled.
        drop(image);
        let waiting = self.lane.waiting.fetch_sub(1, Ordering::AcqRel);
        debug_assert!(waiting > 0, "a lane settles an image that it did not have");
        // Release, with the acquire of `is_settled`: a thread that finds nothing outstanding finds all of it booked.
        let outstanding = self.recorder.outstanding.fetch_sub(1, Ordering::AcqRel);
        debug_assert!(outstanding > 0, "an image is settled twice");
    }
}
