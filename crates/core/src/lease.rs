//! An event under lease: what a worker has of it, and what it can do with it, wherever the store is.

use crate::{Accept, Attributes, Key, Primary, Result, ResultFragment, SourceStates, Sources, Token};
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
}

/// An event under lease. Dropping it without a verdict leaves it to its time-out, which counts as a worker's failure.
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
        }
    };
}
