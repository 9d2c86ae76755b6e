//! Reading and writing where every request takes some milliseconds, as a fraction of what the same concurrency allows.
//!
//! *What is allowed*: as many requests as were made, this many at once, each with the stand-in's delay and nothing else. The requests
//! themselves, without coding, are measured in the same run: what this machine makes of them.

use super::times::median;
use super::{Found, Plan};
use crate::Result;
use crate::page::{Section, goal};
use forebay_dataset::storage::{self, Options, Part};
use forebay_dataset::{Array, Dataset, EventLoop, Product, ReadOptions, Scalar, Type, WriteOptions, Writer};
use forebay_testkit::s3::StandIn;
use serde_json::json;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Requests at once.
const IN_FLIGHT: usize = 8;
/// Events of a batch; a stripe of a column has 32 KiB, so that requests take far longer than their bytes.
pub(super) const BATCH_EVENTS: u32 = 8192;
pub(super) const COLUMNS: usize = 32;

pub(super) fn measure(plan: &Plan, found: &mut Found) -> Result<()> {
    let stand_in = StandIn::new();
    let delay = Duration::from_millis(plan.delay_ms);
    stand_in.set_delay(delay);
    let options = place(stand_in.endpoint(), "A", "B", IN_FLIGHT);
    let columns = batch();
    let mut took: BTreeMap<&str, Vec<(f64, usize)>> = BTreeMap::new();
    for repetition in 0..plan.repetitions {
        println!("latency, repetition {}", repetition + 1);
        let url = format!("s3://bucket/run{repetition}");
        let mut timed = |what: &'static str, run: &mut dyn FnMut() -> Result<()>| -> Result<()> {
            let _ = stand_in.take_log();
            let began = Instant::now();
            run()?;
            let seconds = began.elapsed().as_secs_f64();
            let requests = stand_in.take_log().len();
            took.entry(what).or_default().push((seconds, requests));
            Ok(())
        };
        timed("write", &mut || write(&url, &options, &columns, plan.batches, 32 << 10))?;
        timed("read, event loop", &mut || read(&url, &options, 2))?;
        let prefix = format!("bucket/run{repetition}/");
        let names = stand_in.names();
        let names: Vec<&str> = names.iter().filter_map(|name| name.strip_prefix(&prefix)).collect();
        let bodies: Vec<(String, bytes::Bytes)> = names
            .iter()
            .filter_map(|name| Some(((*name).to_owned(), stand_in.object(&format!("{prefix}{name}"))?)))
            .collect();
        let parts: Vec<Part> =
            bodies.iter().map(|(name, bytes)| Part { name: name.clone(), range: 0..bytes.len() as u64 }).collect();
        timed("bare gets", &mut || Ok(storage::open(&url, &options)?.parts(&parts).map(drop)?))?;
        timed("bare puts", &mut || Ok(storage::open(&format!("{url}-bare"), &options)?.put(&bodies)?))?;
    }
    let mut table = Section::new(
        "latency",
        "A request takes milliseconds",
        format!(
            "S3 stand-in in this process with {} ms a request, {IN_FLIGHT} requests at once; {} batches of {BATCH_EVENTS} events, {COLUMNS} \
             columns of noise, stripes of 32 KiB. *Allowed*: the requests of each row, {IN_FLIGHT} at once, with the delay and nothing else. \
             *Bare*: the same objects through the storage alone.",
            plan.delay_ms, plan.batches
        ),
        &["", "requests", "ms", "allowed ms", "fraction", "of bare requests"],
    );
    // Of the fastest of the bare rows, a request.
    let each = |what: &str| {
        let mut samples: Vec<f64> = took[what].iter().map(|(seconds, requests)| seconds / *requests as f64).collect();
        samples.sort_by(f64::total_cmp);
        median(&samples).unwrap_or(f64::NAN)
    };
    for (what, bare, is_goal) in [
        ("write", "bare puts", true),
        ("read, event loop", "bare gets", true),
        ("bare puts", "bare puts", false),
        ("bare gets", "bare gets", false),
    ] {
        let requests = took[what].iter().map(|(_, requests)| *requests).max().unwrap_or(0);
        let seconds = each(what) * requests as f64;
        let allowed = requests as f64 / IN_FLIGHT as f64 * delay.as_secs_f64();
        let fraction = allowed / seconds;
        table.add(vec![
            json!(what),
            json!(requests),
            json!(seconds * 1e3),
            json!(allowed * 1e3),
            json!(fraction),
            json!(each(bare) / each(what)),
        ]);
        if is_goal && !plan.quick {
            found.goals.push(goal(
                format!("{what}, {} ms a request: fraction of what is allowed", plan.delay_ms),
                Some(fraction),
                0.9,
                false,
            ));
        }
    }
    found.sections.push(table);
    Ok(())
}

/// How a place on this machine is used.
pub(crate) fn place(endpoint: String, key: &str, secret: &str, in_flight: usize) -> Options {
    let variables = [
        ("AWS_ACCESS_KEY_ID", key.to_owned()),
        ("AWS_SECRET_ACCESS_KEY", secret.to_owned()),
        ("AWS_ENDPOINT_URL", endpoint),
    ];
    let variables = variables.map(|(name, value)| (name.to_owned(), value));
    Options { environment: Some(variables.into()), in_flight, ..Options::default() }
}

/// A batch of noise, which no encoding makes smaller.
pub(super) fn batch() -> Vec<(Product, Array)> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        // xorshift64*: all bits but the sign and the exponent are noise.
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    };
    let column = |at: usize| {
        let values: Vec<u32> = (0..BATCH_EVENTS).map(|_| (next() >> 32) as u32).collect();
        (Product::new(format!("noise{at}"), Type::Value(Scalar::U32)), Array::values(Scalar::U32, values))
    };
    (0..COLUMNS).map(column).collect()
}

/// Writes this many batches.
pub(super) fn write(
    url: &str,
    options: &Options,
    columns: &[(Product, Array)],
    batches: u64,
    target_bytes: u32,
) -> Result<()> {
    let options = WriteOptions {
        batch_events: Some(BATCH_EVENTS),
        target_bytes,
        storage: options.clone(),
        ..WriteOptions::default()
    };
    let mut writer = Writer::create(url, options)?;
    for _ in 0..batches {
        writer.push("Events", columns)?;
    }
    writer.commit("noise")?;
    Ok(())
}

/// Reads all columns of all events on some threads, with enough batches ahead for all requests that may be in flight.
pub(super) fn read(url: &str, options: &Options, threads: usize) -> Result<()> {
    let dataset = Dataset::open(url, ReadOptions { threads: Some(threads), storage: options.clone() })?;
    let products = dataset.products("Events")?;
    let names: Vec<&str> = products.iter().map(|product| product.name.as_str()).collect();
    let ended = EventLoop::new(&dataset, "Events", &names)?.threads(threads).in_flight(threads + 4).run(|_| Ok(()))?;
    match ended.events == dataset.events("Events")? {
        true => Ok(()),
        false => Err("the loop ended early".into()),
    }
}
