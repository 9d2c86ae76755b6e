//! Requests of one process to a bucket: bounded, repeated, each with its deadline.
//!
//! ```text
//! permit ─▶ attempt ─▶ answer
//!             ▲  └─ failure ─▶ repeat: other keys, backoff, or give up with words
//!             └──────────────────┘
//! ```
//!
//! *Invariant*: a permit is held over the waits between repeats too: a server that has too much to do gets fewer requests.

use super::address::{Address, Server};
use super::attempt::{self, ATTEMPT, Attempt, ERROR_BYTES_MAX, Expected, Failure, Seen};
use super::credentials::{Keys, Source};
use super::http::Http;
use super::repeat::Repeat;
use crate::storage::{Back, Comparison, Condition, Options, Put, Tag};
use bytes::Bytes;
use forebay_core::{Error, Kind, Result};
use futures_util::TryStreamExt;
use object_store::aws::{AmazonS3, AmazonS3Builder, S3ConditionalPut};
use object_store::path::Path;
use object_store::{
    ClientOptions, GetOptions, GetRange, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload, PutResult,
    RetryConfig, UpdateVersion,
};
use std::future::Future;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// Bytes of one page of a listing: a thousand names of at most 1024 bytes, with what XML adds.
const PAGE_BYTES_MAX: u64 = 4 << 20;

/// What a process needs to speak with a bucket.
pub(super) struct Lane {
    store: AmazonS3,
    permits: Semaphore,
    /// Whether the server compares tags without their quotes.
    bare_tags: AtomicBool,
    pub(super) keys: Arc<Keys>,
    pub(super) address: Address,
    pub(super) server: Server,
    pub(super) options: Options,
}

impl Lane {
    pub(super) fn new(address: Address, server: Server, options: Options, keys: Keys, http: Http) -> Result<Lane> {
        let keys = Arc::new(keys);
        let store = AmazonS3Builder::new()
            .with_bucket_name(&address.bucket)
            .with_region(&server.region)
            .with_endpoint(&server.endpoint)
            .with_allow_http(true)
            .with_skip_signature(keys.source() == Source::Anonymous)
            .with_credentials(keys.clone())
            .with_conditional_put(S3ConditionalPut::ETagMatch)
            // One by one: the request for many needs a list in XML that not every server takes.
            .with_disable_bulk_delete(true)
            .with_client_options(ClientOptions::new())
            // Repeats are ours: only here it is known what an earlier attempt may have done.
            .with_retry(RetryConfig { max_retries: 0, ..RetryConfig::default() })
            .with_http_connector(http)
            .build();
        let store = store.map_err(|error| Error::invalid(format!("bucket {}: {error}", address.bucket)))?;
        let permits = Semaphore::new(options.in_flight.max(1));
        Ok(Lane { store, permits, bare_tags: AtomicBool::new(false), keys, address, server, options })
    }

    fn key(&self, name: &str) -> Result<Path> {
        let key = format!("{}{name}", self.address.prefix);
        Path::parse(&key).map_err(|error| Error::invalid(format!("{key:?} is no name of an object")).with_source(error))
    }

    fn repeat<'a>(&'a self, verb: &'static str, name: &'a str) -> Repeat<'a> {
        Repeat::new(self, verb, name)
    }

    /// One attempt, ended at the deadline.
    async fn attempt<T>(
        &self,
        expected: Expected,
        deadline: Instant,
        call: impl Future<Output = object_store::Result<T>>,
    ) -> std::result::Result<(T, Seen), Failure> {
        let attempt = Attempt::new(expected);
        let answer = tokio::time::timeout_at(deadline, ATTEMPT.scope(attempt.clone(), call)).await;
        let seen = attempt.seen();
        match answer {
            Ok(Ok(answer)) => Ok((answer, seen)),
            Ok(Err(error)) => Err(attempt::classify(&seen, &error)),
            Err(_) => Err(Failure::Again(attempt::Again {
                why: "it took too long".to_owned(),
                after: attempt::After::Backoff,
                uncertain: seen.sent,
            })),
        }
    }

    /// The permit is held until the end of the request.
    async fn permit(&self) -> Result<tokio::sync::SemaphorePermit<'_>> {
        self.permits.acquire().await.map_err(|_| Error::internal("no more requests"))
    }

    /// A whole object, or `None` where no object has this name.
    pub(super) async fn whole(&self, name: &str, bytes_max: u64) -> Result<Option<(Bytes, Tag)>> {
        let key = self.key(name)?;
        let _permit = self.permit().await?;
        self.read_whole(&key, name, bytes_max).await
    }

    async fn read_whole(&self, key: &Path, name: &str, bytes_max: u64) -> Result<Option<(Bytes, Tag)>> {
        let mut repeat = self.repeat("read", name);
        loop {
            let keys = self.keys.now();
            let call = async {
                let answer = self.store.get_opts(key, GetOptions::default()).await?;
                let tag = answer.meta.e_tag.clone();
                Ok((answer.bytes().await?, tag))
            };
            match self.attempt(Expected::AtMost(bytes_max), repeat.deadline, call).await {
                Ok(((bytes, tag), _)) => return Ok(Some((bytes, self.tag(name, tag)?))),
                Err(Failure::Absent) => return Ok(None),
                Err(failure) => repeat.after(failure, &keys).await?,
            }
        }
    }

    /// Compares a whole object with what was put.
    pub(super) async fn compared(&self, name: &str, sent: &Bytes) -> Result<Back> {
        let key = self.key(name)?;
        let _permit = self.permit().await?;
        let mut repeat = self.repeat("read", name);
        loop {
            let keys = self.keys.now();
            let call = async {
                let answer = self.store.get_opts(&key, GetOptions::default()).await?;
                let bytes = answer.meta.size;
                let (mut pieces, mut comparison) = (answer.into_stream(), Comparison::new(sent));
                while let Some(piece) = pieces.try_next().await?
                    && comparison.take(&piece)
                {}
                Ok(comparison.end(bytes))
            };
            match self.attempt(Expected::AtMost(sent.len() as u64), repeat.deadline, call).await {
                Ok((back, _)) => return Ok(back),
                Err(Failure::Absent) => return Ok(Back::Missing),
                Err(failure) => repeat.after(failure, &keys).await?,
            }
        }
    }

    /// Bytes of an object.
    pub(super) async fn range(&self, name: &str, range: Range<u64>) -> Result<Bytes> {
        let key = self.key(name)?;
        let _permit = self.permit().await?;
        let mut repeat = self.repeat("read", name);
        let length = range.end - range.start;
        loop {
            let keys = self.keys.now();
            let call = async {
                let options = GetOptions { range: Some(GetRange::Bounded(range.clone())), ..GetOptions::default() };
                self.store.get_opts(&key, options).await?.bytes().await
            };
            match self.attempt(Expected::Part(length), repeat.deadline, call).await {
                Ok((bytes, _)) if bytes.len() as u64 == length => return Ok(bytes),
                Ok((bytes, _)) => {
                    let why = format!("{} bytes came of {length}", bytes.len());
                    let odd = attempt::Again { why, after: attempt::After::Odd, uncertain: false };
                    repeat.after(Failure::Again(odd), &keys).await?;
                }
                Err(Failure::Absent) => return Err(repeat.error(Kind::Corrupt, "it is not there")),
                Err(failure) => repeat.after(failure, &keys).await?,
            }
        }
    }

    /// Puts an object that nobody else writes.
    pub(super) async fn put(&self, name: &str, bytes: Bytes) -> Result<()> {
        let key = self.key(name)?;
        let _permit = self.permit().await?;
        let mut repeat = self.repeat("write", name);
        loop {
            let keys = self.keys.now();
            let call = self.store.put_opts(&key, PutPayload::from(bytes.clone()), PutOptions::default());
            match self.attempt(Expected::AtMost(ERROR_BYTES_MAX), repeat.deadline, call).await {
                Ok(_) => return Ok(()),
                Err(failure) => repeat.after(failure, &keys).await?,
            }
        }
    }

    /// Puts an object on a condition.
    pub(super) async fn put_if(&self, name: &str, bytes: Bytes, condition: Condition<'_>) -> Result<Put> {
        let key = self.key(name)?;
        let _permit = self.permit().await?;
        let mut repeat = self.repeat("write", name);
        let mut other_form = false;
        loop {
            let keys = self.keys.now();
            let mode = match condition {
                Condition::Absent => PutMode::Create,
                Condition::Unchanged(tag) => {
                    PutMode::Update(UpdateVersion { e_tag: Some(self.form_of(tag)), version: None })
                }
            };
            let call = self.store.put_opts(&key, PutPayload::from(bytes.clone()), PutOptions::from(mode));
            match self.attempt(Expected::AtMost(ERROR_BYTES_MAX), repeat.deadline, call).await {
                Ok((PutResult { e_tag, .. }, _)) => return Ok(Put::Done(self.tag(name, e_tag)?)),
                Err(Failure::Condition | Failure::Absent) => {
                    let still_there = match condition {
                        Condition::Unchanged(tag) if !other_form => self.tag_there(&key).await.as_ref() == Some(tag),
                        _ => false,
                    };
                    if still_there {
                        other_form = true;
                        self.bare_tags.fetch_xor(true, Ordering::Relaxed);
                    } else if repeat.uncertain {
                        return self.own_success(&key, name, &bytes, &repeat).await;
                    } else {
                        return Ok(Put::Refused);
                    }
                }
                Err(failure) => repeat.after(failure, &keys).await?,
            }
        }
    }

    /// A tag as `If-Match` has it. Ceph compares it without quotes, others with them: where the tag of the object is the one
    /// that was given, and the put was refused all the same, the other form is right, now and for the next ones.
    fn form_of(&self, tag: &Tag) -> String {
        match self.bare_tags.load(Ordering::Relaxed) {
            true => tag.0.trim_matches('"').to_owned(),
            false => tag.0.clone(),
        }
    }

    /// The tag of the object that is there, as far as one attempt tells.
    async fn tag_there(&self, key: &Path) -> Option<Tag> {
        let deadline = Instant::now() + self.options.stall;
        let head = self.attempt(Expected::AtMost(ERROR_BYTES_MAX), deadline, self.store.head(key)).await;
        head.ok()?.0.e_tag.map(Tag)
    }

    /// The answer of a put that was refused after an attempt without an answer: it is success if the object has our bytes.
    async fn own_success(&self, key: &Path, name: &str, bytes: &Bytes, repeat: &Repeat<'_>) -> Result<Put> {
        let there = self.read_whole(key, name, bytes.len() as u64).await;
        if let Ok(Some((there, tag))) = &there
            && there == bytes
        {
            return Ok(Put::Done(tag.clone()));
        }
        // Ours may have been there, and somebody else's on top of it; only the caller can see that.
        let why = "an earlier attempt had no answer, and something else is there now; read it and see whether it is built \
                   on what was to be written";
        Err(repeat.error(Kind::OutcomeUnknown, why))
    }

    pub(super) async fn remove(&self, name: &str) -> Result<()> {
        let key = self.key(name)?;
        let _permit = self.permit().await?;
        let mut repeat = self.repeat("remove", name);
        loop {
            let keys = self.keys.now();
            match self.attempt(Expected::AtMost(ERROR_BYTES_MAX), repeat.deadline, self.store.delete(&key)).await {
                Ok(_) | Err(Failure::Absent) => return Ok(()),
                Err(failure) => repeat.after(failure, &keys).await?,
            }
        }
    }

    /// Both times are those of one answer, so that the clock of this machine does not matter.
    pub(super) async fn age(&self, name: &str) -> Result<Option<Duration>> {
        let key = self.key(name)?;
        let _permit = self.permit().await?;
        let mut repeat = self.repeat("look at", name);
        loop {
            let keys = self.keys.now();
            match self.attempt(Expected::AtMost(ERROR_BYTES_MAX), repeat.deadline, self.store.head(&key)).await {
                Ok((_, Seen { date: Some(now), modified: Some(written), .. })) => {
                    return Ok(Some(now.duration_since(written).unwrap_or_default()));
                }
                Ok(_) => return Err(repeat.error(Kind::Corrupt, "the answer lacks the time, or that of the object")),
                Err(Failure::Absent) => return Ok(None),
                Err(failure) => repeat.after(failure, &keys).await?,
            }
        }
    }

    /// Names below a folder. A page with a thousand names is a request; a listing that fails begins again.
    pub(super) async fn list(&self, folder: &str) -> Result<Vec<String>> {
        let below = format!("{}{folder}", self.address.prefix);
        let key = Path::parse(below.trim_end_matches('/'))
            .map_err(|error| Error::invalid(format!("{below:?} is no folder")).with_source(error))?;
        let _permit = self.permit().await?;
        let mut repeat = self.repeat("list", folder);
        loop {
            let keys = self.keys.now();
            let names =
                self.store.list(Some(&key)).map_ok(|meta| meta.location.to_string()).try_collect::<Vec<String>>();
            match self.attempt(Expected::AtMost(PAGE_BYTES_MAX), repeat.deadline, names).await {
                Ok((names, _)) => {
                    let prefix = self.address.prefix.as_str();
                    let ours = names.iter().filter_map(|name| name.strip_prefix(prefix));
                    let mut ours: Vec<String> = ours.map(str::to_owned).collect();
                    ours.sort_unstable();
                    return Ok(ours);
                }
                Err(Failure::Absent) => return Ok(Vec::new()),
                Err(failure) => repeat.after(failure, &keys).await?,
            }
        }
    }

    fn tag(&self, name: &str, tag: Option<String>) -> Result<Tag> {
        let lacking =
            || self.repeat("write", name).error(Kind::Invalid, "the server gives no ETag; conditions need it");
        tag.map(Tag).ok_or_else(lacking)
    }
}
