//! How the threads of a scenario end: each can end all, none is waited for in vain.

use forebay_core::Result;
use std::sync::atomic::{AtomicBool, Ordering};

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
        let _abort = AbortOnPanic(self);
        body().inspect_err(|_| self.abort())
    }
}

/// Ends all threads when the scope that started them is left, whatever the reason.
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
