//! What the stand-in has: objects, settings, the log.

use super::fault::Fault;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

/// One request, as it was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its method.
    pub method: String,
    /// Bucket and object.
    pub name: String,
    /// The status of the answer; 0: none.
    pub status: u16,
    /// Bytes of the request's body.
    pub bytes_in: u64,
    /// Bytes of the answer's body, with those that were not sent for a fault.
    pub bytes_out: u64,
}

/// An object.
#[derive(Clone, Debug)]
pub(super) struct Object {
    pub(super) bytes: Bytes,
    pub(super) tag: String,
    pub(super) modified: SystemTime,
}

/// All of it, behind one lock that is held for look-ups and changes alone.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) objects: BTreeMap<String, Object>,
    pub(super) buckets: BTreeSet<String>,
    pub(super) delay: Duration,
    /// The server's clock is ahead of this machine's by these seconds.
    pub(super) clock_seconds: i64,
    pub(super) ignores_conditions: bool,
    /// `If-Match` is compared without quotes, as some versions of Ceph do.
    pub(super) bare_tags: bool,
    pub(super) faults: Vec<Fault>,
    /// Session tokens that have expired.
    pub(super) expired: BTreeSet<String>,
    pub(super) log: Vec<Request>,
    /// Whether the hash of a signed body is not checked.
    pub(super) trusts_bodies: bool,
    /// Objects put until now: their tags.
    pub(super) puts: u64,
    pub(super) in_flight: usize,
    pub(super) in_flight_max: usize,
}

/// What a put answers.
pub(super) enum Put {
    Done(String),
    Refused,
    /// `If-Match` of an object that is not there.
    Absent,
}

impl State {
    pub(super) fn now(&self) -> SystemTime {
        let offset = Duration::from_secs(self.clock_seconds.unsigned_abs());
        let now = SystemTime::now();
        if self.clock_seconds < 0 { now - offset } else { now + offset }
    }

    fn form_of<'a>(&self, tag: &'a str) -> &'a str {
        if self.bare_tags { tag.trim_matches('"') } else { tag }
    }

    pub(super) fn put(&mut self, name: &str, bytes: Bytes, if_absent: bool, if_match: Option<&str>) -> Put {
        let there = self.objects.get(name);
        if !self.ignores_conditions {
            match (there, if_match) {
                (Some(_), _) if if_absent => return Put::Refused,
                (Some(there), Some(tag)) if self.form_of(&there.tag) != tag => return Put::Refused,
                (None, Some(_)) => return Put::Absent,
                _ => {}
            }
        }
        // A hash of the content would cost CPU that a benchmark is to measure elsewhere.
        self.puts += 1;
        let tag = format!("\"{:032x}\"", self.puts);
        let modified = self.now();
        self.objects.insert(name.to_owned(), Object { bytes, tag: tag.clone(), modified });
        Put::Done(tag)
    }
}
