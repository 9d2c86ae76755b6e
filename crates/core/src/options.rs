//! Options and answers of calls.

use crate::limits::HELD_ASKED_AFTER;
use crate::{Attributes, Error, Filter, KeySchema, Keyspace, Level, Result, Source};
use std::time::Duration;

/// How a fragment is put.
#[derive(Clone, Copy, Debug, Default)]
pub struct PutOptions<'a> {
    /// The producer's status bits.
    pub status: u32,
    /// Attributes of the event; those already set must have the same values.
    pub attributes: Option<&'a Attributes>,
    /// How long to wait for space; `None` takes the store's `put_deadline`.
    pub deadline: Option<Duration>,
    /// Return only when the fragment is on a device of the warm level and survives the loss of power.
    pub persisted: bool,
    /// Level to which the fragment goes; `None` takes that of its source's group.
    pub level: Option<Level>,
    /// When the node that holds a fragment tells the home of its event, where that is another node.
    pub report: Report,
}

/// When the home of an event hears of a fragment that another node holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Report {
    /// At once, and whatever becomes of it is in the account.
    #[default]
    Prompt,
    /// The holder asks later whether the home knows it, because a client tells the home itself. What the home knows already,
    /// or has ended, is not counted again.
    Later,
}

/// The outcome of a put.
#[must_use = "a late fragment is not in the store"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutOutcome {
    /// The fragment is stored.
    Stored,
    /// The same bytes were there already: success.
    Duplicate,
    /// The event is leased, decided or removed: the fragment is not stored. A final answer.
    Late,
    /// Late, and an earlier try of the same put was sent whose answer was lost: that try may have stored the fragment
    /// before the event was leased, decided or removed, and whether it did is unknown. A final answer as well: nothing more
    /// will be stored. Only clients answer it, never an embedded store.
    LateUnknown,
}

impl PutOutcome {
    /// Whether nothing was stored by the try that was answered: `Late` or `LateUnknown`.
    pub fn is_late(self) -> bool {
        matches!(self, PutOutcome::Late | PutOutcome::LateUnknown)
    }

    /// What this answer to a repeat says of the whole put, where the answer to an earlier try was lost: a duplicate may be
    /// what that try stored, and is a success in any case; what is late now may have been in time then.
    ///
    /// A client does this for the tries of one call. A caller that repeats a call after `OutcomeUnknown` does it for
    /// the answers of the two calls; [`Error::of_repeat`] is the same for errors.
    pub fn of_repeat(self) -> PutOutcome {
        match self {
            PutOutcome::Stored | PutOutcome::Duplicate => PutOutcome::Stored,
            PutOutcome::Late | PutOutcome::LateUnknown => PutOutcome::LateUnknown,
        }
    }

    /// The outcome of a put whose bytes went to their holder, by a look-up table, which answered this one; the home answered
    /// `of_home` to what it was told then, `took` after the put began.
    pub fn with_home(self, of_home: PutOutcome, took: Duration) -> PutOutcome {
        match (self, of_home) {
            // One of both has it newly: the holder told the home before, or had it from a put that nobody answered.
            (PutOutcome::Stored, PutOutcome::Duplicate) => PutOutcome::Stored,
            // The holder may have told the home, which had it until its event was decided. Half: by a clock of another machine.
            (PutOutcome::Duplicate, PutOutcome::Late) => PutOutcome::LateUnknown,
            (PutOutcome::Stored, PutOutcome::Late) if took >= HELD_ASKED_AFTER / 2 => PutOutcome::LateUnknown,
            (_, of_home) => of_home,
        }
    }
}

/// Which sources of an event to read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Sources {
    /// None: attributes and states only.
    None,
    /// Every source.
    #[default]
    All,
    /// These (packed sub-keys after the primary key, in ascending order).
    Only(Vec<Source>),
}

impl Sources {
    /// Sources by number, for schemas with one sub-key after the primary key.
    ///
    /// # Errors
    /// `Invalid` for other schemas and numbers that do not fit.
    pub fn only(schema: &KeySchema, sources: impl IntoIterator<Item = u64>) -> Result<Sources> {
        if schema.sub_keys().len() != schema.primary_len() + 1 {
            return Err(Error::invalid("sources by number need a schema with one sub-key after the primary key"));
        }
        let lead = vec![0; schema.primary_len()];
        let pack = |source| schema.key(&[&lead[..], &[source]].concat()).map(|key| schema.source_of(&key));
        let mut list = sources.into_iter().map(pack).collect::<Result<Vec<_>>>()?;
        list.sort_unstable();
        list.dedup();
        Ok(Sources::Only(list))
    }

    /// The sources of a group of the keyspace.
    ///
    /// # Errors
    /// `Invalid` for an unknown group.
    pub fn group(keyspace: &Keyspace, name: &str) -> Result<Sources> {
        Ok(Sources::Only(keyspace.group(name)?.sources.clone()))
    }

    /// Whether this packed source is read.
    pub fn takes(&self, rest: &[u8]) -> bool {
        match self {
            Sources::None => false,
            Sources::All => true,
            Sources::Only(list) => list.binary_search_by(|source| source.as_bytes().cmp(rest)).is_ok(),
        }
    }
}

/// What `get_any` leases.
#[derive(Clone, Debug)]
pub struct GetAny {
    /// Stage of the selection whose events are wanted; `None` is the first stage.
    pub stage: Option<String>,
    /// Most events to lease in this call.
    pub n: usize,
    /// Only events that are on this level; `None` takes both, in the keyspace's order of delivery.
    pub level: Option<Level>,
    /// Conditions on attributes.
    pub filter: Filter,
    /// Only events whose first fragment arrived at least this long ago.
    pub min_age: Duration,
    /// Sources to read in the same call.
    pub sources: Sources,
    /// How long to wait for a first event.
    pub wait: Duration,
    /// Lease time without a heartbeat; `None` takes the store's.
    pub lease: Option<Duration>,
}

impl Default for GetAny {
    fn default() -> Self {
        GetAny {
            stage: None,
            n: 1,
            level: None,
            filter: Filter::default(),
            min_age: Duration::ZERO,
            sources: Sources::All,
            wait: Duration::ZERO,
            lease: None,
        }
    }
}

/// How an event is announced.
#[derive(Clone, Debug, Default)]
pub struct OpenEvent<'a> {
    /// Sources that it must have (packed sub-keys after the primary key), before its class and its run are asked.
    pub sources: Option<&'a [Source]>,
    /// Attributes of the event, its class among them.
    pub attributes: Option<&'a Attributes>,
}

/// A fragment that a worker adds to an event with its verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResultFragment<'a> {
    /// Its source, which the event does not have yet.
    pub source: &'a Source,
    /// Its payload.
    pub bytes: &'a [u8],
}

impl<'a> ResultFragment<'a> {
    /// A result of a source.
    pub fn new(source: &'a Source, bytes: &'a [u8]) -> ResultFragment<'a> {
        ResultFragment { source, bytes }
    }
}

/// Where an accepted event goes.
#[derive(Clone, Debug, Default)]
pub struct Accept<'a> {
    /// Streams by name, with the sources that each keeps. A stream also keeps all results.
    pub streams: &'a [(&'a str, Sources)],
    /// Fragments that the worker adds.
    pub results: &'a [ResultFragment<'a>],
}

/// Options of a sampler.
#[derive(Clone, Debug)]
pub struct Sampling {
    /// Conditions on attributes.
    pub filter: Filter,
    /// Only events of this stage; `None` takes all.
    pub stage: Option<String>,
    /// Only events of this run; `None` takes all.
    pub run: Option<u64>,
    /// Show events as they are decided, rejected ones too, instead of those that are in the store.
    pub decided: bool,
    /// Sources whose bytes are copied.
    pub sources: Sources,
    /// Most events a second.
    pub rate_hz: f64,
    /// Most payload bytes copied of one event: further fragments are left out, and counted.
    pub bytes_max: u64,
}

impl Default for Sampling {
    fn default() -> Self {
        Sampling {
            filter: Filter::default(),
            stage: None,
            run: None,
            decided: false,
            sources: Sources::All,
            rate_hz: 1.0,
            bytes_max: 16 << 20,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_at_a_home_is_certain_only_where_its_holder_cannot_have_told_it() {
        use PutOutcome::{Duplicate, Late, LateUnknown, Stored};
        let (soon, later) = (Duration::from_millis(3), HELD_ASKED_AFTER);
        for (held, of_home, took, said) in [
            (Stored, Stored, soon, Stored),
            (Stored, Duplicate, soon, Stored),
            (Duplicate, Duplicate, later, Duplicate),
            (Stored, Late, soon, Late),
            (Stored, Late, later, LateUnknown),
            (Duplicate, Late, soon, LateUnknown),
            (Stored, LateUnknown, soon, LateUnknown),
            (Late, Late, later, Late),
        ] {
            assert_eq!(held.with_home(of_home, took), said, "{held:?} {of_home:?} {took:?}");
        }
    }
}
