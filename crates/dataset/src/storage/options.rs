//! Options of a place: how many requests, how long, from which environment.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// How a place is used. The defaults suit a bucket in the same building and one at another site.
#[derive(Clone)]
pub struct Options {
    /// Requests at once. RADOS Gateways were seen to reset connections at about a thread for each of a thousand requests.
    pub in_flight: usize,
    /// Longest gap between two parts of an object that is read over to save a request.
    pub gap_bytes_max: u64,
    /// Bytes that nobody asked for, in hundredths of those asked for in a call.
    pub gap_percent_max: u64,
    /// Parts are joined to requests of at most these bytes.
    pub request_bytes_max: u64,
    /// How long a request without a byte of progress is waited for, before it is repeated.
    pub stall: Duration,
    /// How long the request for one object takes at most, with all its repeats; also how long a lock is waited for.
    pub deadline: Duration,
    /// Wait before the first repeat; each next one is about twice as long, with jitter, up to `backoff_max`.
    pub backoff: Duration,
    /// Longest wait between repeats, unless the server asks for more.
    pub backoff_max: Duration,
    /// Variables that replace those of the process: where `AWS_*` and `HOME` are looked up.
    pub environment: Option<BTreeMap<String, String>>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            in_flight: 32,
            gap_bytes_max: 16 << 10,
            gap_percent_max: 10,
            request_bytes_max: 4 << 20,
            stall: Duration::from_secs(20),
            deadline: Duration::from_secs(120),
            backoff: Duration::from_millis(50),
            backoff_max: Duration::from_secs(5),
            environment: None,
        }
    }
}

impl Options {
    /// A variable of the environment; an empty one is none.
    pub(super) fn variable(&self, name: &str) -> Option<String> {
        let value = match &self.environment {
            Some(variables) => variables.get(name).cloned(),
            None => std::env::var(name).ok(),
        };
        value.filter(|value| !value.is_empty())
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The environment may have secrets.
        out.debug_struct("Options")
            .field("in_flight", &self.in_flight)
            .field("gap_bytes_max", &self.gap_bytes_max)
            .field("gap_percent_max", &self.gap_percent_max)
            .field("request_bytes_max", &self.request_bytes_max)
            .field("stall", &self.stall)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}
