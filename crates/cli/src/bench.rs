//! `forebay bench`: a quick look at what puts and gets cost on one directory.
//!
//! *Not here*: the measurements that the project publishes, with their limits and comparisons: `cargo xtask bench`.

use crate::output::{self, Answer, Output};
use crate::{signal, units};
use forebay_core::{Bounds, Error, Key, Keyspace, Kind, Result};
use forebay_store::{Config, PutOptions, Store};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const HELP: &str = "\
A quick look at what one thread gets on this machine and directory: rounds of puts, gets that verify every byte, and \
removals, for some seconds, in a store of its own that is gone afterwards. The directory matters: memory (/dev/shm, the \
default where there is one) or a disk's page cache.

It says what it is: one thread, one size, values from the processor's cache, medians over the rounds, on whatever else \
the machine is doing. The measurement to quote, beside copy limits and Redis, is `cargo xtask bench embedded`.

Example: 10 KiB fragments for three seconds; 1 KiB on a disk:
  forebay bench
  forebay bench /data --fragment-bytes 1K --seconds 5";

const LABEL: &str = "one thread, values from cache, every byte verified on get, medians of rounds: a quick look, not the \
published benchmark (cargo xtask bench embedded)";

/// Fragments of one event: near what a small readout has; the key costs no more for it.
const SOURCES: u64 = 16;
/// Share of the region that one round fills: below inhibit, far from waiting for space.
const ROUND_SHARE: f64 = 0.5;

/// Measure puts and gets on a directory, quickly.
#[derive(clap::Args)]
#[command(long_about = HELP)]
pub(crate) struct Bench {
    /// Directory that shall hold the bench's own store; /dev/shm or the temporary directory when not given.
    #[arg(value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Size of a fragment, such as 1K or 10KiB.
    #[arg(long, value_name = "SIZE", default_value = "10KiB", value_parser = units::parse_len)]
    fragment_bytes: usize,
    /// How long to measure.
    #[arg(long, value_name = "SECONDS", default_value_t = 3.0)]
    seconds: f64,
    /// Size of the hot level.
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = units::parse_bytes)]
    hot_bytes: u64,
}

/// Operations per second of each round.
#[derive(Default)]
struct Rounds {
    put: Vec<f64>,
    get: Vec<f64>,
    remove: Vec<f64>,
}

impl Bench {
    pub(crate) fn run(&self, out: &mut Output) -> Result<Answer> {
        let time = Duration::try_from_secs_f64(self.seconds)
            .map_err(|_| Error::invalid(format!("--seconds {}: expected a time of at least 0", self.seconds)))?;
        let place = Place::new(self.dir.as_deref())?;
        let stop = signal::stop_flag()?;
        let config = Config { hot_bytes: self.hot_bytes, put_deadline: Duration::from_secs(5), ..Config::default() };
        let mut keyspace = Keyspace::events("bench", SOURCES as u32);
        keyspace.run.complete_within = Duration::from_secs(3600);
        let store = Store::create(&place.dir, &keyspace, config)?;
        let rounds = self.measure(&store, time, &stop)?;
        store.close()?;
        self.show(&place, &rounds, out)?;
        Ok(if stop.load(Ordering::Relaxed) { Answer::Interrupted } else { Answer::Yes })
    }

    fn measure(&self, store: &Store, time: Duration, stop: &AtomicBool) -> Result<Rounds> {
        let stats = store.stats();
        let region = stats.segment_bytes as f64 * f64::from(stats.segments);
        // A fragment takes its payload in whole cache lines and an entry of 48 bytes.
        let fragments = region * ROUND_SHARE / (self.fragment_bytes.next_multiple_of(64) + 48) as f64;
        let events = (fragments as u64 / SOURCES).max(1);
        let value: Vec<u8> = (0..self.fragment_bytes).map(|at| (at * 31 + at / 251) as u8).collect();
        let (mut rounds, start) = (Rounds::default(), Instant::now());
        let mut first = 0;
        while rounds.put.is_empty() || (start.elapsed() < time && !stop.load(Ordering::Relaxed)) {
            let keys = keys(store, first..first + events)?;
            rounds.put.push(rate(keys.len(), || put_all(store, &keys, &value))?);
            rounds.get.push(rate(keys.len(), || get_all(store, &keys))?);
            let bounds = Bounds::new(store.schema(), &[(1, 1), (first, first + events - 1), (0, SOURCES - 1)])?;
            rounds.remove.push(rate(keys.len(), || store.remove_range(&bounds).map(drop))?);
            first += events;
        }
        Ok(rounds)
    }

    fn show(&self, place: &Place, rounds: &Rounds, out: &mut Output) -> Result<()> {
        let rows = [("put", &rounds.put), ("get", &rounds.get), ("remove", &rounds.remove)];
        let figures = |rates: &[f64]| (median(rates), self.fragment_bytes as f64 * median(rates));
        out.line(format!(
            "{} fragments, {} in {}",
            units::bytes(self.fragment_bytes as u64),
            units::plural(rounds.put.len() as u64, "round"),
            place.parent.display()
        ))?;
        for (name, rates) in rows {
            let (rate, bytes) = figures(rates);
            let volume = if name == "remove" { String::new() } else { format!("  {:>5.2} GB/s", bytes / 1e9) };
            out.line(format!("  {name:<7} {:>8}/s{volume}", units::count(rate)))?;
        }
        out.line(format!("({LABEL})"))?;
        let json_row = |rates: &[f64]| json!({ "per_second": median(rates), "rounds": rates });
        out.json(&json!({
            "dir": place.parent,
            "fragment_bytes": self.fragment_bytes,
            "put": json_row(&rounds.put),
            "get": json_row(&rounds.get),
            "remove": json_row(&rounds.remove),
            "label": LABEL,
        }))
    }
}

fn keys(store: &Store, events: std::ops::Range<u64>) -> Result<Vec<Key>> {
    events.flat_map(|event| (0..SOURCES).map(move |source| store.schema().key(&[1, event, source]))).collect()
}

fn put_all(store: &Store, keys: &[Key], value: &[u8]) -> Result<()> {
    for key in keys {
        // New keys, so `Stored`; anything else shows when the gets miss it.
        let _ = store.put(key, value, &PutOptions::default())?;
    }
    Ok(())
}

fn get_all(store: &Store, keys: &[Key]) -> Result<()> {
    for key in keys {
        match store.get(key)? {
            Some(fragment) => fragment.verify()?,
            None => {
                return Err(Error::new(
                    Kind::Internal,
                    format!("bench: {} was put and is not there", store.schema().text(key.as_bytes())),
                ));
            }
        }
    }
    Ok(())
}

/// Operations per second of one phase.
fn rate(operations: usize, phase: impl FnOnce() -> Result<()>) -> Result<f64> {
    let start = Instant::now();
    phase()?;
    Ok(operations as f64 / start.elapsed().as_secs_f64().max(1e-9))
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

/// A fresh directory for the bench's store, removed at the end.
struct Place {
    parent: PathBuf,
    dir: PathBuf,
}

impl Place {
    fn new(parent: Option<&Path>) -> Result<Place> {
        let shared_memory = Path::new("/dev/shm");
        let parent = match parent {
            Some(parent) => parent.to_owned(),
            None if shared_memory.is_dir() => shared_memory.to_owned(),
            None => std::env::temp_dir(),
        };
        let dir = parent.join(format!("forebay-bench-{}", std::process::id()));
        std::fs::create_dir_all(&parent).and_then(|()| std::fs::create_dir(&dir)).map_err(|error| {
            Error::invalid(format!("cannot make {} for the bench", dir.display())).with_source(error)
        })?;
        Ok(Place { parent, dir })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.dir) {
            output::note(format!("forebay: cannot remove {}: {error}", self.dir.display()));
        }
    }
}
