//! What a client takes from the machine: time, chance, connections, threads. A simulator gives its own.
//!
//! *Invariant*: the blocking clients take them from nowhere else (`clippy.toml`), but for the thread that extends leases, and time for sockets
//! of the system.

use crate::address::Address;
use forebay_core::{MachineTimer, Result, Timer};
use std::io::{Read, Write};
use std::time::{Duration, Instant};

/// A part of a call, which may go on while others do.
pub type Part<'a> = Box<dyn FnOnce() + Send + 'a>;

/// A connection that is no socket of the system.
pub trait Stream: Read + Write + Send {
    /// How long one read or write may take.
    fn set_timeout(&mut self, timeout: Duration);

    /// Whether the other side is still there and has said nothing that nobody asked for.
    fn is_quiet(&self) -> bool;
}

/// What a blocking client takes from the machine.
pub trait Machine: Timer {
    /// Waits this long.
    fn sleep(&self, time: Duration);

    /// A random number from 0 to 1, for pauses between tries.
    fn draw(&self) -> f64;

    /// Does all of them beside each other; all are done when it returns.
    fn beside(&self, parts: Vec<Part<'_>>);

    /// A connection that is made before this moment; `None` where it is a socket of the system.
    ///
    /// # Errors
    /// `Unavailable` where nobody answers.
    fn connect(&self, _address: &Address, _end: Instant) -> Option<Result<Box<dyn Stream>>> {
        None
    }
}

#[expect(clippy::disallowed_methods, reason = "the one place")]
impl Machine for MachineTimer {
    fn sleep(&self, time: Duration) {
        std::thread::sleep(time);
    }

    fn draw(&self) -> f64 {
        rand::random()
    }

    fn beside(&self, mut parts: Vec<Part<'_>>) {
        let Some(last) = parts.pop() else { return };
        std::thread::scope(|scope| {
            let others: Vec<_> = parts.into_iter().map(|part| scope.spawn(part)).collect();
            last();
            for other in others {
                other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            }
        });
    }
}

/// Does something with each part, beside each other if that is worth a thread; answers in the order of the parts.
pub(crate) fn beside<P: Send, T: Send>(
    machine: &dyn Machine,
    parts: impl IntoIterator<Item = P>,
    is_worth_it: bool,
    each: impl Fn(P) -> T + Sync,
) -> Vec<T> {
    let parts: Vec<P> = parts.into_iter().collect();
    if !is_worth_it || parts.len() < 2 {
        return parts.into_iter().map(each).collect();
    }
    let mut answers: Vec<Option<T>> = parts.iter().map(|_| None).collect();
    let (each, mut tasks) = (&each, Vec::<Part<'_>>::new());
    for (part, answer) in parts.into_iter().zip(&mut answers) {
        tasks.push(Box::new(move || *answer = Some(each(part))));
    }
    machine.beside(tasks);
    // One that is left out would give its place to another one.
    answers.into_iter().map(|answer| answer.unwrap_or_else(|| panic!("a machine does all parts"))).collect()
}
