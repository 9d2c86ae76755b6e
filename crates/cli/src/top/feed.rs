//! The source of readings: a thread that looks again and again, such as at a server's pages over HTTP.
//!
//! *On failure*: a server that is away is a reading like any other; the next one asks again.

use super::page::Page;
use forebay_core::{Error, Result};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// Time for one page.
const PAGE_DEADLINE: Duration = Duration::from_secs(5);
/// Bytes of one page.
const PAGE_BYTES_MAX: u64 = 32 << 20;

/// A server as it was at one time.
pub(super) struct Reading {
    /// When the answer was there.
    pub(super) at: Instant,
    /// Its metrics.
    pub(super) page: Page,
    /// What it says in words; empty where nothing is wrong.
    pub(super) words: Words,
}

/// What `/status` says.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Words {
    #[serde(default)]
    pub(super) keyspaces: BTreeMap<String, KeyspaceWords>,
}

/// What it says of one keyspace.
#[derive(Debug, Default, Deserialize)]
pub(super) struct KeyspaceWords {
    /// Why the trigger is held.
    pub(super) inhibit: Option<InhibitWords>,
}

/// Why the trigger is held, who can change that, and what ends it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, serde::Serialize)]
pub(super) struct InhibitWords {
    pub(super) scope: String,
    pub(super) cause: String,
    pub(super) owner: String,
    pub(super) ends: String,
}

/// Asks one server.
#[derive(Clone)]
pub(super) struct Source {
    agent: ureq::Agent,
    url: String,
}

impl Source {
    /// Of a server at this URL, with or without `/metrics` at its end.
    ///
    /// # Errors
    /// `Invalid` for what is no URL of HTTP.
    pub(super) fn new(url: &str) -> Result<Source> {
        let base = url.trim_end_matches('/').trim_end_matches("/metrics").trim_end_matches('/');
        // Plain HTTP only: the page of metrics has no TLS.
        let host = base.strip_prefix("http://").unwrap_or_default();
        let well_formed =
            base.parse::<ureq::http::Uri>().is_ok_and(|uri| uri.host().is_some_and(|host| !host.is_empty()));
        if host.is_empty() || !well_formed {
            return Err(Error::invalid(format!("`{url}` is no address of metrics: expected http://HOST:PORT")));
        }
        let config = ureq::Agent::config_builder().timeout_global(Some(PAGE_DEADLINE)).max_redirects(0);
        Ok(Source { agent: config.build().into(), url: base.to_owned() })
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Reads the server now.
    ///
    /// # Errors
    /// `Unavailable` where it does not answer, `Corrupt` where what it answers is no page of metrics.
    pub(super) fn read(&self) -> Result<Reading> {
        let page = Page::read(&self.get("/metrics")?)?;
        // Words take another look at the stores: only where there is something to say. Figures alone will do.
        let said = (page.sum("forebay_inhibit", &[]) > 0.0).then(|| self.get("/status").ok()).flatten();
        let words = said.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
        Ok(Reading { at: Instant::now(), page, words })
    }

    fn get(&self, path: &str) -> Result<String> {
        let url = format!("{}{path}", self.url);
        let away = |error: ureq::Error| Error::unavailable(format!("{url} cannot be read")).with_source(error);
        let mut answer = self.agent.get(&url).call().map_err(away)?;
        answer.body_mut().with_config().limit(PAGE_BYTES_MAX).read_to_string().map_err(away)
    }
}

/// Readings as they come.
pub(super) struct Feed<R> {
    readings: Receiver<Result<R>>,
}

impl<R: Send + 'static> Feed<R> {
    /// Reads every so often, until it is dropped.
    pub(super) fn start(read: impl FnMut() -> Result<R> + Send + 'static, interval: Duration) -> Result<Feed<R>> {
        // One under way is enough: who shows them later than they come wants the newest.
        let (sender, readings) = sync_channel(1);
        let run = move || read_all(read, interval, &sender);
        let thread = std::thread::Builder::new().name("top feed".to_owned()).spawn(run);
        thread.map_err(|error| Error::unavailable("the system gives no thread").with_source(error))?;
        Ok(Feed { readings })
    }

    /// The next reading within this time.
    pub(super) fn next(&self, wait: Duration) -> Option<Result<R>> {
        match self.readings.recv_timeout(wait) {
            Ok(reading) => Some(reading),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(Err(Error::internal("the thread that reads has ended"))),
        }
    }
}

fn read_all<R>(mut read: impl FnMut() -> Result<R>, interval: Duration, readings: &SyncSender<Result<R>>) {
    loop {
        let next = Instant::now() + interval;
        if readings.send(read()).is_err() {
            return;
        }
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_checked_before_anything_is_asked() {
        for url in ["http://127.0.0.1:7442", "http://127.0.0.1:7442/", "http://127.0.0.1:7442/metrics"] {
            assert_eq!(Source::new(url).unwrap().url(), "http://127.0.0.1:7442");
        }
        for url in ["", "127.0.0.1:7442", "https://a", "http://", "http:///metrics", "ftp://a", "http://a b"] {
            assert!(Source::new(url).is_err(), "{url}");
        }
    }
}
