//! An event under lease: what a worker has of it, and what it can do with it, wherever the store is.

use crate::{Accept, Attributes, Key, Kind, Primary, Result, ResultFragment, SourceStates, Sources, Token};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The object that executes the calls of a lease: a store, or a client that also keeps the lease alive.
pub trait LeaseHolder {
    /// Fragments as they are read.
    type Fragment;

    /// Reads more sources of the event.
    ///
    /// # Errors
    /// `Fenced` where the lease is no longer in force, `Corrupt`, `Closed`; over the network `Unavailable`.
    fn lease_get(&self, primary: &Primary, token: &Token, sources: &Sources) -> Result<Vec<Self::Fragment>>;

    /// Extends the lease by `duration` from now: a heartbeat.
    ///
    /// # Errors
    /// `Fenced` where the lease is no longer in force or held for too long, `Closed`; over the network `Unavailable`.
    fn extend(&self, primary: &Primary, token: &Token, duration: Duration) -> Result<()>;

    /// Keeps the event whole, in these streams.
    ///
    /// # Errors
    /// As [`LeaseHolder::accept_into`].
    fn accept(&self, primary: &Primary, token: &Token, streams: &[&str]) -> Result<()>;

    /// Keeps the event in streams with chosen sources, and adds results to it.
    ///
    /// # Errors
    /// `Fenced`, `Invalid` for streams or results that cannot be, `Conflict` for a result whose source the event has,
    /// `Full`, `Closed`; over the network, or where a device does not make it durable, `OutcomeUnknown`: the same verdict with
    /// the same token may be repeated.
    fn accept_into(&self, primary: &Primary, token: &Token, accept: &Accept<'_>) -> Result<()>;

    /// Drops the event.
    ///
    /// # Errors
    /// `Fenced`, `Closed`; over the network, or where a device does not make it durable, `OutcomeUnknown`.
    fn reject(&self, primary: &Primary, token: &Token) -> Result<()>;

    /// Hands the event to a later stage, with results for it.
    ///
    /// # Errors
    /// As [`LeaseHolder::accept_into`]; `Invalid` for a stage that is unknown or not later.
    fn pass(&self, primary: &Primary, token: &Token, stage: &str, results: &[ResultFragment<'_>]) -> Result<()>;

    /// Gives the event back unharmed. It is not remembered: a repeat is `Fenced`.
    ///
    /// # Errors
    /// `Fenced`, `Closed`; over the network `OutcomeUnknown`.
    fn requeue(&self, primary: &Primary, token: &Token) -> Result<()>;

    /// Gives the event back because processing it failed: it is ready again at once, the delivery counts, and after the
    /// last one that the keyspace allows the event is in the debug stream, with this reason (of at most
    /// [`FAILURE_BYTES_MAX`](crate::limits::FAILURE_BYTES_MAX) bytes). It is not remembered: a repeat is `Fenced`.
    ///
    /// # Errors
    /// `Fenced`, `Full` without space in the log, `Closed`; over the network, or where a device does not make it durable,
    /// `OutcomeUnknown`.
    fn fail(&self, primary: &Primary, token: &Token, reason: &str) -> Result<()>;
}

/// The leases of one call, together: what happens to one tells how the others end.
#[derive(Debug, Default)]
struct Batch {
    /// A call about one of them failed: its worker may give up the rest, also those of other stores.
    failed: Arc<AtomicBool>,
    /// Giving one back did not reach the store: the others are not tried, so that a drop waits once and not for each.
    away: AtomicBool,
}

/// The holder of one lease of a batch. Dropped while its thread unwinds, it says that processing failed: an event that breaks each
/// worker gets to the debug stream. Dropped without a call of its own after a call about another lease of its batch failed, it
/// gives the event back unharmed. Otherwise a drop leaves the lease to its time-out.
#[derive(Debug)]
pub struct Held<H: LeaseHolder> {
    by: H,
    primary: Primary,
    token: Token,
    batch: Arc<Batch>,
    /// A verdict ended it, or it was fenced: nothing is left to give back.
    ended: AtomicBool,
    /// A call about this lease failed: unless the thread unwinds, it is left to its time-out.
    failed: AtomicBool,
}

/// Makes the holders of the leases of one call.
#[derive(Debug, Default)]
pub struct HeldTogether(Arc<Batch>);

impl HeldTogether {
    /// For leases of another store in the same call: where it cannot be reached, leases of the others are still given back.
    #[must_use]
    pub fn elsewhere(&self) -> HeldTogether {
        HeldTogether(Arc::new(Batch { failed: self.0.failed.clone(), away: AtomicBool::new(false) }))
    }

    /// The holder of the next lease.
    pub fn hold<H: LeaseHolder>(&self, by: H, primary: Primary, token: Token) -> Held<H> {
        let (ended, failed) = (AtomicBool::new(false), AtomicBool::new(false));
        Held { by, primary, token, batch: self.0.clone(), ended, failed }
    }
}

impl<H: LeaseHolder> Held<H> {
    /// The store or client that executes the calls.
    pub fn by(&self) -> &H {
        &self.by
    }

    /// Notes how a call about this lease went. Relaxed: who drops a lease has it from who called, which orders both.
    fn seen<T>(&self, token: &Token, answer: Result<T>, ends: bool) -> Result<T> {
        if *token != self.token {
            return answer;
        }
        match &answer {
            Ok(_) if ends => self.ended.store(true, Ordering::Relaxed),
            Ok(_) => {}
            Err(error) => {
                self.ended.fetch_or(error.kind() == Kind::Fenced, Ordering::Relaxed);
                self.failed.store(true, Ordering::Relaxed);
                self.batch.failed.store(true, Ordering::Relaxed);
            }
        }
        answer
    }
}

impl<H: LeaseHolder> Drop for Held<H> {
    fn drop(&mut self) {
        let rest = self.batch.failed.load(Ordering::Relaxed) && !self.failed.load(Ordering::Relaxed);
        let panics = std::thread::panicking();
        let wanted = !self.ended.load(Ordering::Relaxed) && (rest || panics);
        if wanted && !self.batch.away.load(Ordering::Relaxed) {
            let given_back = if panics {
                let thread = std::thread::current();
                let reason = format!("thread `{}` of the worker panicked", thread.name().unwrap_or("unnamed"));
                self.by.fail(&self.primary, &self.token, &reason)
            } else {
                self.by.requeue(&self.primary, &self.token)
            };
            // Where it cannot be given back, its time-out does the same, and counts.
            if given_back.is_err_and(|error| error.kind() != Kind::Fenced) {
                self.batch.away.store(true, Ordering::Relaxed);
            }
        }
    }
}

impl<H: LeaseHolder> LeaseHolder for Held<H> {
    type Fragment = H::Fragment;

    #[inline]
    fn lease_get(&self, primary: &Primary, token: &Token, sources: &Sources) -> Result<Vec<H::Fragment>> {
        self.seen(token, self.by.lease_get(primary, token, sources), false)
    }
    #[inline]
    fn extend(&self, primary: &Primary, token: &Token, duration: Duration) -> Result<()> {
        self.seen(token, self.by.extend(primary, token, duration), false)
    }
    #[inline]
    fn accept(&self, primary: &Primary, token: &Token, streams: &[&str]) -> Result<()> {
        self.seen(token, self.by.accept(primary, token, streams), true)
    }
    #[inline]
    fn accept_into(&self, primary: &Primary, token: &Token, accept: &Accept<'_>) -> Result<()> {
        self.seen(token, self.by.accept_into(primary, token, accept), true)
    }
    #[inline]
    fn reject(&self, primary: &Primary, token: &Token) -> Result<()> {
        self.seen(token, self.by.reject(primary, token), true)
    }
    #[inline]
    fn pass(&self, primary: &Primary, token: &Token, stage: &str, results: &[ResultFragment<'_>]) -> Result<()> {
        self.seen(token, self.by.pass(primary, token, stage, results), true)
    }
    #[inline]
    fn requeue(&self, primary: &Primary, token: &Token) -> Result<()> {
        self.seen(token, self.by.requeue(primary, token), true)
    }
    #[inline]
    fn fail(&self, primary: &Primary, token: &Token, reason: &str) -> Result<()> {
        self.seen(token, self.by.fail(primary, token, reason), true)
    }
}

/// An event under lease. Dropping it without a verdict leaves it to its time-out, which counts as a worker's failure; while
/// its thread unwinds it fails at once, and with the rest of a batch after an error it is given back unharmed ([`Held`]).
#[derive(Debug)]
pub struct Lease<F, H> {
    /// The store or client that executes the calls of the lease.
    pub holder: H,
    /// The event's name.
    pub primary: Primary,
    /// The fence: no other grant, in this life or another, has the same.
    pub token: Token,
    /// Attributes set so far.
    pub attributes: Attributes,
    /// Fragments of the sources that were asked for, in key order.
    pub fragments: Vec<F>,
    /// Expected sources that are not there, masked ones not among them.
    pub missing: Vec<Key>,
    /// The state of each of its sources.
    pub sources: SourceStates,
    /// Stage of the selection that it is in.
    pub stage: u8,
    /// 1 for the first worker; counts failures of earlier ones.
    pub delivery: u8,
    /// Fragments of the whole event.
    pub event_fragments: u32,
    /// Payload bytes of the whole event.
    pub event_bytes: u64,
}

impl<F, H: LeaseHolder<Fragment = F>> Lease<F, H> {
    /// Reads more sources of the event.
    ///
    /// # Errors
    /// As [`LeaseHolder::lease_get`].
    pub fn get(&self, sources: &Sources) -> Result<Vec<F>> {
        self.holder.lease_get(&self.primary, &self.token, sources)
    }

    /// Extends the lease by `duration` from now: a heartbeat.
    ///
    /// # Errors
    /// As [`LeaseHolder::extend`].
    pub fn extend(&self, duration: Duration) -> Result<()> {
        self.holder.extend(&self.primary, &self.token, duration)
    }

    /// Keeps the event whole, in these streams.
    ///
    /// # Errors
    /// As [`LeaseHolder::accept`].
    pub fn accept(&self, streams: &[&str]) -> Result<()> {
        self.holder.accept(&self.primary, &self.token, streams)
    }

    /// Keeps the event in streams with chosen sources, and adds results to it.
    ///
    /// # Errors
    /// As [`LeaseHolder::accept_into`].
    pub fn accept_into(&self, accept: &Accept<'_>) -> Result<()> {
        self.holder.accept_into(&self.primary, &self.token, accept)
    }

    /// Hands the event to a later stage, with results for it.
    ///
    /// # Errors
    /// As [`LeaseHolder::pass`].
    pub fn pass(&self, next_stage: &str, results: &[ResultFragment<'_>]) -> Result<()> {
        self.holder.pass(&self.primary, &self.token, next_stage, results)
    }

    /// Drops the event.
    ///
    /// # Errors
    /// As [`LeaseHolder::reject`].
    pub fn reject(&self) -> Result<()> {
        self.holder.reject(&self.primary, &self.token)
    }

    /// Gives the event back unharmed.
    ///
    /// # Errors
    /// As [`LeaseHolder::requeue`].
    pub fn requeue(&self) -> Result<()> {
        self.holder.requeue(&self.primary, &self.token)
    }

    /// Gives the event back because processing it failed, and says why.
    ///
    /// # Errors
    /// As [`LeaseHolder::fail`].
    pub fn fail(&self, reason: &str) -> Result<()> {
        self.holder.fail(&self.primary, &self.token, reason)
    }
}

/// Implements [`LeaseHolder`] by methods of the same names, of the type itself or of a part of it.
#[macro_export]
#[doc(hidden)]
macro_rules! implement_lease_holder {
    ($holder:ty, $fragment:ty, |$self:ident| $by:expr) => {
        impl $crate::LeaseHolder for $holder {
            type Fragment = $fragment;

            #[inline]
            fn lease_get(
                &self,
                primary: &$crate::Primary,
                token: &$crate::Token,
                sources: &$crate::Sources,
            ) -> $crate::Result<Vec<$fragment>> {
                let $self = self;
                $by.lease_get(primary, token, sources)
            }
            #[inline]
            fn extend(
                &self,
                primary: &$crate::Primary,
                token: &$crate::Token,
                duration: std::time::Duration,
            ) -> $crate::Result<()> {
                let $self = self;
                $by.extend(primary, token, duration)
            }
            #[inline]
            fn accept(&self, primary: &$crate::Primary, token: &$crate::Token, streams: &[&str]) -> $crate::Result<()> {
                let $self = self;
                $by.accept(primary, token, streams)
            }
            #[inline]
            fn accept_into(
                &self,
                primary: &$crate::Primary,
                token: &$crate::Token,
                accept: &$crate::Accept<'_>,
            ) -> $crate::Result<()> {
                let $self = self;
                $by.accept_into(primary, token, accept)
            }
            #[inline]
            fn reject(&self, primary: &$crate::Primary, token: &$crate::Token) -> $crate::Result<()> {
                let $self = self;
                $by.reject(primary, token)
            }
            #[inline]
            fn pass(
                &self,
                primary: &$crate::Primary,
                token: &$crate::Token,
                stage: &str,
                results: &[$crate::ResultFragment<'_>],
            ) -> $crate::Result<()> {
                let $self = self;
                $by.pass(primary, token, stage, results)
            }
            #[inline]
            fn requeue(&self, primary: &$crate::Primary, token: &$crate::Token) -> $crate::Result<()> {
                let $self = self;
                $by.requeue(primary, token)
            }
            #[inline]
            fn fail(&self, primary: &$crate::Primary, token: &$crate::Token, reason: &str) -> $crate::Result<()> {
                let $self = self;
                $by.fail(primary, token, reason)
            }
        }
    };
}
