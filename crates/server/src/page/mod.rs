//! One look at everything that is counted, as a page of metrics, and the state in words beside it.
//!
//! *Invariant*: a look may take milliseconds, with locks of the stores in turn: it runs on a thread that may wait, one
//! at a time (`http.rs`).

mod process;
mod rings;
mod stores;
mod text;
mod warm;

pub(crate) use text::CONTENT_TYPE;

use crate::keyspaces::Keyspaces;
use crate::metrics::{ENDED, Metrics, REFUSED};
use crate::shared::{Phase, Shared};
use forebay_core::{Call, Error, InhibitClass, Kind, Result, ServedStore};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use stores::Rising;
use text::Page;

/// Notes of a warm level that the state shows, the last ones.
const NOTES_SHOWN: usize = 20;

/// Who looks at a server, and what is remembered from one look to the next.
pub(crate) struct Scraper<S> {
    keyspaces: Arc<Keyspaces<S>>,
    rising: Mutex<Rising>,
}

impl<S: ServedStore> Scraper<S> {
    /// The first look, from which totals of runs are counted. What happened before is not this server's.
    ///
    /// # Errors
    /// Those of the stores.
    pub(crate) fn new(keyspaces: Arc<Keyspaces<S>>) -> Result<Scraper<S>> {
        let mut rising = Rising::default();
        for (name, store) in keyspaces.stores() {
            stores::totals(&mut Page::default(), &mut rising, name, &store.runs()?);
        }
        Ok(Scraper { keyspaces, rising: Mutex::new(rising) })
    }

    /// Everything that is counted, as text.
    ///
    /// # Errors
    /// `Internal` where it cannot be written as text; those of the stores.
    pub(crate) fn page(&self, shared: &Shared) -> Result<String> {
        let mut page = Page::default();
        server(&mut page, shared, is_ready(shared) && self.ready().is_ok());
        calls(&mut page, &shared.metrics);
        connections(&mut page, shared);
        process::add(&mut page);
        for (name, store) in self.keyspaces.stores() {
            stores::add(&mut page, &mut self.rising.lock(), name, store)?;
        }
        for (name, ring) in self.keyspaces.rings() {
            rings::add(&mut page, name, ring);
        }
        page.text()
    }

    /// What no number says: why the trigger is held and what ends it, who must look at the debug stream, what went wrong on
    /// devices.
    ///
    /// # Errors
    /// Those of the stores.
    pub(crate) fn state(&self, shared: &Shared) -> Result<Value> {
        let keyspace = |(name, store): (&String, &S)| {
            let stats = store.stats()?;
            let notes = stats.warm.map(|warm| warm.notes).unwrap_or_default();
            let last = &notes[notes.len().saturating_sub(NOTES_SHOWN)..];
            let value = json!({
                "inhibit": stats.inhibit,
                "debug_alarm": stats.debug.alarm,
                "holders": stats.holders,
                "warm_notes": last,
            });
            Ok((name.clone(), value))
        };
        Ok(json!({
            "version": env!("CARGO_PKG_VERSION"),
            "ready": is_ready(shared) && self.ready().is_ok(),
            "keyspaces": self.keyspaces.stores().map(keyspace).collect::<Result<serde_json::Map<_, _>>>()?,
        }))
    }
}

impl<S: ServedStore> Scraper<S> {
    /// One word where all stores can be put to.
    ///
    /// # Errors
    /// What of a store is gone; those of the stores.
    pub(crate) fn ready(&self) -> Result<String> {
        for (name, store) in self.keyspaces.stores() {
            if let Some(gone) = store.stats()?.inhibit.filter(|inhibit| inhibit.class == InhibitClass::StoreGone) {
                return Err(Error::unavailable(format!("{name}: {}", gone.cause)));
            }
        }
        Ok("ready\n".to_owned())
    }
}

/// Whether the server takes requests.
pub(crate) fn is_ready(shared: &Shared) -> bool {
    shared.phase() == Phase::Ready
}

fn server(page: &mut Page, shared: &Shared, is_ready: bool) {
    let help = "Always 1; the version is its label.";
    page.gauge("forebay_build_info", help, &[("version", env!("CARGO_PKG_VERSION"))], 1.0);
    let help = "1 while the server takes requests, 0 while it stops, or while a store's files are gone.";
    page.gauge("forebay_ready", help, &[], f64::from(u8::from(is_ready)));
    if let Some(certificates) = shared.certificates() {
        let help = "When the server's certificate, or one between it and its CA, expires, in seconds since 1970.";
        page.gauge("forebay_certificate_expires_timestamp_seconds", help, &[], certificates.expires() as f64);
    }
    let help = "Times that tokens and certificates were read again while the server ran.";
    for (result, count) in ["done", "refused"].into_iter().zip(&shared.metrics.reloads) {
        page.counter("forebay_reloads_total", help, &[("result", result)], count.load(Ordering::Relaxed) as f64);
    }
    if let Some(audit) = &shared.audit {
        let help = "Lines of the audit log that could not be written: their calls were refused.";
        page.counter("forebay_audit_failed_total", help, &[], audit.failed.load(Ordering::Relaxed) as f64);
    }
}

fn calls(page: &mut Page, metrics: &Metrics) {
    for call in Call::all() {
        let sums = metrics.sums(call);
        let name = ("call", call.name());
        let help = "Time from a request that is whole, of a put from its first bytes, to its answer, waits included; of what is streamed to its first part.";
        page.histogram("forebay_request_duration_seconds", help, &[name], &sums.took);
        let help = "Fragments, events or other things that requests asked for.";
        page.counter("forebay_request_items_total", help, &[name], sums.things as f64);
        for kind in Kind::all() {
            let help = "Requests that failed as a whole, and single things of requests that failed.";
            let labels = [name, ("kind", kind.name())];
            page.counter("forebay_errors_total", help, &labels, sums.errors[kind as usize] as f64);
        }
    }
    let (received, sent) = metrics.sum_bytes();
    page.counter(
        "forebay_received_bytes_total",
        "Bytes of requests, and of values in Redis's protocol.",
        &[],
        received as f64,
    );
    page.counter("forebay_sent_bytes_total", "Bytes of answers.", &[], sent as f64);
}

fn connections(page: &mut Page, shared: &Shared) {
    for (listener, counts) in shared.metrics.listeners.each() {
        let name = ("listener", listener);
        page.gauge("forebay_connections", "Connections now.", &[name], counts.open() as f64);
        let taken = counts.taken.load(Ordering::Relaxed) as f64;
        page.counter("forebay_connections_taken_total", "Connections that were taken.", &[name], taken);
        for (reason, count) in ENDED.iter().zip(&counts.ended) {
            let labels = [name, ("reason", reason)];
            let count = count.load(Ordering::Relaxed) as f64;
            page.counter("forebay_connections_ended_total", "Connections that ended.", &labels, count);
        }
        for (reason, count) in REFUSED.iter().zip(&counts.refused) {
            let labels = [name, ("reason", reason)];
            let count = count.load(Ordering::Relaxed) as f64;
            page.counter("forebay_refused_total", "Connections and logins that were refused.", &labels, count);
        }
    }
    let help = "Connections that native and resp listeners take at once.";
    page.gauge("forebay_connections_limit", help, &[], shared.limits.connections_max as f64);
}
