//! The event loop: batches of a table are processed on many threads, and what comes of them is written in the order of the events.
//!
//! ```text
//! fetching threads ─▶ stored bytes ─▶ processing threads: decode, user's function ─▶ outputs ─▶ calling thread: Writer.push
//!        ▲ next batch                                                                               in the order of the events │
//!        └──────────────── a batch is let go ◀─────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! *Invariants*: at most [`EventLoop::in_flight`] batches are between being fetched and being let go, so memory is bounded by these, as
//! stored bytes, columns or outputs; batches are started in order, so the one that the writer waits for is always in flight. Both are
//! asserted below.
//!
//! *On failure*: the first error ends the loop and is returned; other batches are dropped. [`EventLoop::write`] owns the writer and drops
//! it, so nothing can be committed after an error. A panic of the user's function ends the other threads and then goes on.

use crate::read::{Dataset, Fetched, Selected};
use crate::{Array, Column, Product, Writer, parallel};
use forebay_core::{Error, Result};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Events that are processed together.
#[derive(Debug)]
pub struct Batch {
    /// Which of the table's batches.
    pub number: usize,
    /// Its events.
    pub events: Range<u64>,
    /// The columns, in the order asked for.
    pub columns: Vec<Column>,
}

/// Asks a loop to end early. Cheap to clone; may be set from any thread.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// No further batch is begun; those in the user's function are ended.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether the loop was asked to end.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// How a loop ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Events that were processed, or written where the loop writes: with output, these are the first ones of the table.
    pub events: u64,
    /// Batches of these events.
    pub batches: usize,
    /// Whether it was stopped before the last batch.
    pub stopped: bool,
}

/// Reads batches of a table and calls a function with each, on several threads.
#[derive(Debug)]
pub struct EventLoop<'a> {
    selected: Selected<'a>,
    threads: usize,
    in_flight: usize,
    stop: Stop,
}

impl<'a> EventLoop<'a> {
    /// A loop over all batches of a table, with only these columns: a thread a core, twice as many batches in flight.
    ///
    /// # Errors
    /// `Invalid` where there is no such table or column.
    pub fn new(dataset: &'a Dataset, table: &str, columns: &[&str]) -> Result<EventLoop<'a>> {
        let threads = parallel::cores();
        Ok(EventLoop {
            selected: dataset.select(table, columns)?,
            threads,
            in_flight: 2 * threads,
            stop: Stop::default(),
        })
    }

    /// Threads that decode and process, at least one; twice as many batches in flight.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> EventLoop<'a> {
        self.threads = threads.max(1);
        self.in_flight = 2 * self.threads;
        self
    }

    /// Batches in memory at most, at least one for each thread: those above the number of threads are fetched ahead, or wait for the writer.
    #[must_use]
    pub fn in_flight(mut self, batches: usize) -> EventLoop<'a> {
        self.in_flight = batches.max(self.threads);
        self
    }

    /// What ends the loop early.
    pub fn stop(&self) -> Stop {
        self.stop.clone()
    }

    /// Calls the function with each batch, in any order.
    ///
    /// # Errors
    /// The first error of a read or of the function.
    pub fn run(&self, function: impl Fn(&Batch) -> Result<()> + Sync) -> Result<Ended> {
        self.each(&function, &mut |()| Ok(()))
    }

    /// Calls the function with each batch, in any order, and writes the columns that it returns in the order of the events; none: the batch
    /// has no output. The writer encodes on threads of its own ([`crate::WriteOptions::threads`]). Stopped early, the loop gives the writer
    /// back with the output of the first batches: the caller commits it or drops it.
    ///
    /// # Errors
    /// The first error of a read, of the function or of the writer, which is dropped without a commit.
    pub fn write(
        &self,
        mut writer: Writer,
        table: &str,
        function: impl Fn(&Batch) -> Result<Vec<(Product, Array)>> + Sync,
    ) -> Result<(Writer, Ended)> {
        let ended = self.each(&function, &mut |output: Vec<(Product, Array)>| match output.is_empty() {
            true => Ok(()),
            false => writer.push(table, &output),
        })?;
        Ok((writer, ended))
    }

    /// Processes all batches; `take` gets the outputs on this thread, in the order of the batches.
    fn each<R: Send>(
        &self,
        function: &(impl Fn(&Batch) -> Result<R> + Sync),
        take: &mut dyn FnMut(R) -> Result<()>,
    ) -> Result<Ended> {
        let batches = self.selected.batches();
        let work = Work { on: self, batches: &batches, state: Mutex::new(State::default()), changed: Condvar::new() };
        let fetching = (self.in_flight - self.threads).clamp(1, self.threads.max(4));
        std::thread::scope(|scope| {
            for _ in 0..fetching.min(batches.len()) {
                scope.spawn(|| work.guarded(|| work.fetch()));
            }
            for _ in 0..self.threads.min(batches.len()) {
                scope.spawn(|| work.guarded(|| work.process(function)));
            }
            // Else a panic below, in the writer, would leave the others waiting.
            work.guarded(|| work.deliver(take));
        });
        let state = work.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        match state.error {
            Some(error) => Err(error),
            None => {
                let events = batches[..state.delivered].iter().map(|events| events.end - events.start).sum();
                Ok(Ended { events, batches: state.delivered, stopped: state.delivered < batches.len() })
            }
        }
    }
}

/// What the threads share.
struct Work<'a, R> {
    on: &'a EventLoop<'a>,
    batches: &'a [Range<u64>],
    /// Held for moments only, never while something is read, processed or written.
    state: Mutex<State<'a, R>>,
    changed: Condvar,
}

struct State<'a, R> {
    /// The next batch to fetch.
    next: usize,
    /// Batches that are being fetched or processed.
    busy: usize,
    fetched: VecDeque<(usize, Fetched<'a>)>,
    processed: BTreeMap<usize, R>,
    /// Batches whose output was taken: the first ones.
    delivered: usize,
    error: Option<Error>,
    /// No thread goes on.
    ended: bool,
}

impl<R> Default for State<'_, R> {
    fn default() -> Self {
        State {
            next: 0,
            busy: 0,
            fetched: VecDeque::new(),
            processed: BTreeMap::new(),
            delivered: 0,
            error: None,
            ended: false,
        }
    }
}

/// Ends the loop where its thread panics, so that no other thread waits for it.
struct Guard<'a, 'b, R>(&'b Work<'a, R>);

impl<R> Drop for Guard<'_, '_, R> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.lock().ended = true;
            self.0.changed.notify_all();
        }
    }
}

impl<'a, R: Send> Work<'a, R> {
    fn guarded(&self, run: impl FnOnce()) {
        let _guard = Guard(self);
        run();
    }
}

impl<'a, R> Work<'a, R> {
    /// Poisoning adds nothing: the state is changed in single steps, and a panic ends the loop through its guard.
    fn lock(&self) -> MutexGuard<'_, State<'a, R>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'s>(&self, state: MutexGuard<'s, State<'a, R>>) -> MutexGuard<'s, State<'a, R>> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    fn stopped(&self) -> bool {
        self.on.stop.is_set()
    }

    /// Changes the state and wakes the others.
    fn change(&self, change: impl FnOnce(&mut State<'a, R>)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    fn fail(&self, error: Error) {
        self.change(|state| {
            state.error.get_or_insert(error);
            state.ended = true;
        });
    }

    /// Fetches batches until there are none.
    fn fetch(&self) {
        parallel::one_of_many();
        loop {
            let mut state = self.lock();
            while !state.ended
                && !self.stopped()
                && state.next < self.batches.len()
                && state.next - state.delivered >= self.on.in_flight
            {
                state = self.wait(state);
            }
            if state.ended || self.stopped() || state.next == self.batches.len() {
                return;
            }
            let number = state.next;
            state.next += 1;
            state.busy += 1;
            debug_assert!(state.next - state.delivered <= self.on.in_flight, "batches in flight are bounded");
            drop(state);
            match self.on.selected.fetch(self.batches[number].clone()) {
                Ok(fetched) => self.change(|state| {
                    state.busy -= 1;
                    state.fetched.push_back((number, fetched));
                }),
                Err(error) => return self.fail(error),
            }
        }
    }

    /// Processes fetched batches until no more come.
    fn process(&self, function: &(impl Fn(&Batch) -> Result<R> + Sync)) {
        parallel::one_of_many();
        loop {
            let mut state = self.lock();
            let (number, fetched) = loop {
                if state.ended || self.stopped() {
                    return self.changed.notify_all();
                }
                if let Some(first) = state.fetched.pop_front() {
                    break first;
                }
                if state.next == self.batches.len() && state.busy == 0 {
                    return;
                }
                state = self.wait(state);
            };
            state.busy += 1;
            drop(state);
            let events = self.batches[number].clone();
            let output = fetched.decode().and_then(|columns| function(&Batch { number, events, columns }));
            match output {
                Ok(output) => self.change(|state| {
                    state.busy -= 1;
                    state.processed.insert(number, output);
                }),
                Err(error) => return self.fail(error),
            }
        }
    }

    /// Takes outputs in the order of the batches.
    fn deliver(&self, take: &mut dyn FnMut(R) -> Result<()>) {
        loop {
            let mut state = self.lock();
            let output = loop {
                let next = state.delivered;
                if state.ended || next == self.batches.len() {
                    return;
                }
                if let Some(output) = state.processed.remove(&next) {
                    break output;
                }
                // Stopped: nothing new begins, and nothing that is under way can become the next output.
                if self.stopped() && state.busy == 0 {
                    return;
                }
                debug_assert!(state.next - next <= self.on.in_flight, "batches in flight are bounded");
                state = self.wait(state);
            };
            drop(state);
            match take(output) {
                // The others wait for room in flight.
                Ok(()) => self.change(|state| state.delivered += 1),
                Err(error) => return self.fail(error),
            }
        }
    }
}
