//! Starts and ends the threads of a scenario. Each can end all; no wait depends on a thread that has ended.

use forebay_core::{Error, Kind, Result};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, Scope, ScopedJoinHandle};

/// Starts the threads of a role.
pub(crate) fn spawn<'scope, 'env, T: Send + 'scope>(
    scope: &'scope Scope<'scope, 'env>,
    role: &str,
    threads: usize,
    body: impl Fn(usize) -> Result<T> + Copy + Send + 'scope,
) -> Result<Vec<ScopedJoinHandle<'scope, Result<T>>>> {
    let one = |thread: usize| {
        let builder = Builder::new().name(format!("{role}-{thread}"));
        builder
            .spawn_scoped(scope, move || body(thread))
            .map_err(|error| Error::unavailable(format!("no thread for {role} {thread}")).with_source(error))
    };
    (0..threads).map(one).collect()
}

/// What threads failed with. A scenario joins all of them before it looks at the first failure: a later one may say more.
#[derive(Default)]
pub(crate) struct Failures(Vec<Error>);

impl Failures {
    /// Joins the threads of a role; the reports of those that did not fail.
    pub(crate) fn join<T>(&mut self, threads: Vec<ScopedJoinHandle<'_, Result<T>>>) -> Vec<T> {
        let mut reports = Vec::new();
        for thread in threads {
            // A panic is one thread's failure: the store and its data are still there to be looked at.
            match thread.join().unwrap_or_else(|_| Err(Error::internal("a thread of the scenario panicked"))) {
                Ok(report) => reports.push(report),
                Err(error) => self.0.push(error),
            }
        }
        reports
    }

    /// Whether every thread has a report so far.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The failure to report, if there is one: corruption comes before what followed from it.
    pub(crate) fn result(mut self) -> Result<()> {
        // Wrong bytes are the finding of the run; time-outs and closed stores of other threads are consequences.
        let corrupt = self.0.iter().position(|error| error.kind() == Kind::Corrupt).unwrap_or(0);
        if self.0.is_empty() { Ok(()) } else { Err(self.0.swap_remove(corrupt)) }
    }
}

/// How far a scenario has come towards its end.
#[derive(Default)]
pub(crate) struct Ends {
    /// A thread has failed: everybody ends now.
    aborted: AtomicBool,
    /// Data taking is over and took too long to end: nobody waits for space any more.
    giving_up: AtomicBool,
    /// Nothing is left to decide, or the time for it is over: the filters end.
    finished: AtomicBool,
}

impl Ends {
    pub(crate) fn abort(&self) {
        // Release, and Acquire where it is read: a thread that sees the end also sees what led to it.
        self.aborted.store(true, Ordering::Release);
    }
}

/// What all threads of a scenario share.
pub(crate) trait Together {
    fn ends(&self) -> &Ends;

    fn abort(&self) {
        self.ends().abort();
    }

    fn aborted(&self) -> bool {
        self.ends().aborted.load(Ordering::Acquire)
    }

    fn give_up(&self) {
        self.ends().giving_up.store(true, Ordering::Release);
    }

    /// Whether a put that finds the store full is not to be tried again.
    fn gives_up(&self) -> bool {
        // An abort implies all other ends: no thread may go on waiting for one that has failed.
        self.ends().giving_up.load(Ordering::Acquire) || self.aborted()
    }

    fn finish(&self) {
        self.ends().finished.store(true, Ordering::Release);
    }

    /// Whether the filters are to end.
    fn finished(&self) -> bool {
        self.ends().finished.load(Ordering::Acquire) || self.aborted()
    }

    /// Runs the body of a thread: its failure or panic ends the others.
    fn guarded<T>(&self, body: impl FnOnce() -> Result<T>) -> Result<T>
    where
        Self: Sized,
    {
        // A guard, not a `catch_unwind`: the panic still reaches `join`, which reports it.
        let _abort = AbortOnPanic(self);
        body().inspect_err(|_| self.abort())
    }
}

/// Ends all threads when the scope that started them is left, for any reason.
pub(crate) struct EndThreads<'s, S: Together>(pub(crate) &'s S);

impl<S: Together> Drop for EndThreads<'_, S> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Tells the others when a thread dies of a panic.
struct AbortOnPanic<'s, S: Together>(&'s S);

impl<S: Together> Drop for AbortOnPanic<'_, S> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.abort();
        }
    }
}
