//! A bucket of S3 as a place for objects.
//!
//! ```text
//! Bucket ── one Lane for each process ── Repeat ── object_store (signatures, paths) ── Http (connections)
//! ```
//!
//! *Invariants*: requests in flight are bounded for each bucket and process; LIST is not used; secrets are in no message.
//!
//! *On failure*: the message names bucket, object and what to do. What a put did that had no answer is found out by reading
//! the object back, or said to be unknown.

mod address;
mod attempt;
mod credentials;
mod http;
mod lane;
mod process;
mod profile;
mod repeat;

use super::directory::slice;
use super::spans::{self, Limits};
use super::{Back, Condition, Counters, Options, Part, Put, Storage, Tag, Traffic, names};
use address::{Address, Server};
use bytes::Bytes;
use credentials::Keys;
use forebay_core::{Error, Result};
use http::Http;
use lane::Lane;
use process::PerProcess;
use profile::Profile;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

/// Objects in a bucket, below a prefix.
pub struct Bucket {
    url: String,
    address: Address,
    server: Server,
    tls: Option<TlsConnector>,
    options: Options,
    keys: Keys,
    limits: Limits,
    counters: Arc<Counters>,
    lanes: PerProcess<Arc<Lane>>,
}

impl Bucket {
    /// The place at `s3://bucket/prefix`, with the server and the credentials that the environment gives. Nothing is asked of
    /// it yet.
    ///
    /// # Errors
    /// `Invalid` where address, environment or profile cannot be used.
    pub fn new(url: &str, options: &Options) -> Result<Bucket> {
        let address = Address::parse(url)?;
        let profile = Profile::read(options, credentials::in_environment(options))?;
        let server = Server::find(options, &profile)?;
        let keys = Keys::find(options, &profile)?;
        let tls = http::trust(&server, options, profile.get("ca_bundle"))?;
        let limits = Limits {
            gap_bytes_max: options.gap_bytes_max,
            gap_percent_max: options.gap_percent_max,
            span_bytes_max: options.request_bytes_max,
        };
        let url = format!("s3://{}/{}", address.bucket, address.prefix).trim_end_matches('/').to_owned();
        let (counters, lanes) = (Arc::default(), PerProcess::new());
        Ok(Bucket { url, address, server, tls, options: options.clone(), keys, limits, counters, lanes })
    }

    fn lane(&self) -> Result<Arc<Lane>> {
        let make = || {
            let http = Http::new(self.server.clone(), self.tls.clone(), self.options.stall, self.counters.clone());
            let (address, server) = (self.address.clone(), self.server.clone());
            Lane::new(address, server, self.options.clone(), self.keys.again(), http).map(Arc::new)
        };
        self.lanes.get(make).cloned()
    }

    /// One request for each of these, at once as far as their bound allows; the answers in their order. The first failure
    /// ends them all.
    fn each<I, T, F>(&self, items: Vec<I>, request: impl Fn(Arc<Lane>, I) -> F) -> Result<Vec<T>>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let lane = self.lane()?;
        let requests: Vec<F> = items.into_iter().map(|item| request(lane.clone(), item)).collect();
        process::run(async move {
            let mut answers: Vec<Option<T>> = requests.iter().map(|_| None).collect();
            let mut tasks = JoinSet::new();
            for (at, request) in requests.into_iter().enumerate() {
                tasks.spawn(async move { request.await.map(|answer| (at, answer)) });
            }
            while let Some(task) = tasks.join_next().await {
                let ended = |error| Error::internal("a request ended").with_source(error);
                let (at, answer) = task.map_err(ended)??;
                answers[at] = Some(answer);
            }
            Ok(answers.into_iter().flatten().collect())
        })
    }
}

fn check<'a>(mut names: impl Iterator<Item = &'a String>) -> Result<()> {
    names.try_for_each(|name| names::check(name))
}

impl Storage for Bucket {
    fn url(&self) -> &str {
        &self.url
    }

    fn get(&self, name: &str, bytes_max: u64) -> Result<Option<(Bytes, Tag)>> {
        names::check(name)?;
        let (lane, name) = (self.lane()?, name.to_owned());
        process::run(async move { lane.whole(&name, bytes_max).await })
    }

    fn parts(&self, parts: &[Part]) -> Result<Vec<Bytes>> {
        check(parts.iter().map(|part| &part.name))?;
        let spans = spans::plan(parts, self.limits);
        let asked = spans.iter().map(|span| (parts[span.first].name.clone(), span.range.clone())).collect();
        let read = self.each(asked, |lane, (name, range)| async move { lane.range(&name, range).await })?;
        let mut answer = vec![Bytes::new(); parts.len()];
        for (span, bytes) in spans.iter().zip(read) {
            for &at in &span.parts {
                answer[at] = slice(&bytes, span.range.start, &parts[at]);
            }
        }
        Ok(answer)
    }

    fn put(&self, objects: &[(String, Bytes)]) -> Result<()> {
        check(objects.iter().map(|(name, _)| name))?;
        self.each(objects.to_vec(), |lane, (name, bytes)| async move { lane.put(&name, bytes).await }).map(drop)
    }

    fn put_if(&self, name: &str, bytes: &Bytes, condition: Condition<'_>) -> Result<Put> {
        names::check(name)?;
        let (lane, name, bytes) = (self.lane()?, name.to_owned(), bytes.clone());
        let unchanged = match condition {
            Condition::Absent => None,
            Condition::Unchanged(tag) => Some(tag.clone()),
        };
        process::run(async move {
            let condition = unchanged.as_ref().map_or(Condition::Absent, Condition::Unchanged);
            lane.put_if(&name, bytes, condition).await
        })
    }

    fn remove(&self, names: &[String]) -> Result<()> {
        check(names.iter())?;
        self.each(names.to_vec(), |lane, name| async move { lane.remove(&name).await }).map(drop)
    }

    fn age(&self, name: &str) -> Result<Option<Duration>> {
        names::check(name)?;
        let (lane, name) = (self.lane()?, name.to_owned());
        process::run(async move { lane.age(&name).await })
    }

    fn compare_back(&self, name: &str, sent: &Bytes) -> Result<Back> {
        names::check(name)?;
        let (lane, name, sent) = (self.lane()?, name.to_owned(), sent.clone());
        process::run(async move { lane.compared(&name, &sent).await })
    }

    fn list(&self, folder: &str) -> Result<Vec<String>> {
        if !folder.is_empty() {
            names::check(folder.trim_end_matches('/'))?;
        }
        let (lane, folder) = (self.lane()?, folder.to_owned());
        process::run(async move { lane.list(&folder).await })
    }

    fn traffic(&self) -> Traffic {
        self.counters.traffic()
    }
}

impl fmt::Debug for Bucket {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Bucket")
            .field("url", &self.url)
            .field("endpoint", &self.server.endpoint)
            .field("region", &self.server.region)
            .field("keys", &self.keys)
            .finish_non_exhaustive()
    }
}
