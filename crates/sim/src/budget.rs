//! Where the processor's time goes: what each kind of task takes, without what is inside it and counted on its own.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::time::{Duration, Instant};

/// What is counted on its own.
#[derive(Clone, Copy)]
pub(crate) enum What {
    Sessions,
    Ticks,
    Openings,
    Producers,
    Workers,
    Operator,
    Movers,
    Checks,
}

const NAMES: [&str; 8] = [
    "sessions, with the calls of the store",
    "ticks of the stores",
    "deaths, and openings",
    "producers, with their clients",
    "workers, with their clients",
    "operator, with its clients",
    "movers",
    "checks",
];

thread_local! {
    static SPENT: Cell<[Duration; NAMES.len()]> = const { Cell::new([Duration::ZERO; NAMES.len()]) };
    /// What was counted inside the work that is under way.
    static INSIDE: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// Does this work, and counts it.
pub(crate) fn timed<T>(what: What, work: impl FnOnce() -> T) -> T {
    let (begun, outside) = (Instant::now(), INSIDE.replace(Duration::ZERO));
    let done = work();
    let all = begun.elapsed();
    let mut spent = SPENT.get();
    spent[what as usize] += all.saturating_sub(INSIDE.get());
    SPENT.set(spent);
    INSIDE.set(outside + all);
    done
}

/// The same of a task.
pub(crate) async fn metered<F: Future>(what: What, task: F) -> F::Output {
    let mut task = pin!(task);
    poll_fn(|context| timed(what, || task.as_mut().poll(context))).await
}

/// What the simulations of this thread took so far, by kind. The rest of the time is that of the nodes' own tasks, of
/// connections, and of tokio.
pub fn spent() -> impl Iterator<Item = (&'static str, Duration)> {
    NAMES.into_iter().zip(SPENT.get())
}
