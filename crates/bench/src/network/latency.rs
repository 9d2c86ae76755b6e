//! Round trips, one at a time: a put of 64 B here, a SET of the same there, by the same sort of blocking socket.

use super::moving::{client, end_run, key};
use super::{Measurement, pin, wire};
use crate::Result;
use forebay_core::PutOptions;
use hdrhistogram::Histogram;
use std::io::{Read, Write};
use std::time::Instant;

/// Bytes of a put.
pub(super) const BYTES: usize = 64;
/// Figures of many round trips.
pub(super) const QUANTILES: [(&str, f64); 2] = [("p50", 0.5), ("p99", 0.99)];

/// Both, over each transport, on one processor and on two.
pub(super) fn measure(on: &mut Measurement<'_>) -> Result<()> {
    for (cores, processor) in [("one", pin::SERVER), ("two", pin::LOAD)] {
        for transport in ["unix", "tcp"] {
            pin::this_thread(processor)?;
            let ours = forebay(on, transport);
            let theirs = redis(on, transport);
            pin::this_thread(pin::LOAD)?;
            for (name, histogram) in [("latency", ours?), ("redis.latency", theirs?)] {
                for (word, quantile) in QUANTILES {
                    let micros = histogram.value_at_quantile(quantile) as f64 / 1000.0;
                    on.results.record(&format!("{transport}.{name}.{cores}.{word}"), BYTES, micros);
                }
            }
        }
    }
    Ok(())
}

fn histogram() -> Result<Histogram<u64>> {
    Ok(Histogram::new_with_bounds(1, 10_000_000_000, 3)?)
}

/// Puts to a server of Forebay, one after the other.
pub(super) fn forebay(on: &mut Measurement<'_>, transport: &str) -> Result<Histogram<u64>> {
    let client = client(on.forebay, transport)?;
    let (run, value) = (on.next_run(), [7; BYTES]);
    let mut times = histogram()?;
    for number in 0..on.plan.round_trips as u64 + 100 {
        let key = key(&client, run, number)?;
        let from = Instant::now();
        let outcome = client.put(&key, &value, &PutOptions::default())?;
        // The first ones warm up.
        if number >= 100 {
            times.record(from.elapsed().as_nanos() as u64)?;
        }
        debug_assert_eq!(outcome, forebay_core::PutOutcome::Stored);
    }
    end_run(&client, run)?;
    Ok(times)
}

fn redis(on: &Measurement<'_>, transport: &str) -> Result<Histogram<u64>> {
    let mut stream = wire::connect(&on.redis.address(transport))?;
    let mut times = histogram()?;
    let mut answer = [0; 5];
    for number in 0..on.plan.round_trips + 100 {
        let key = format!("{number:016}");
        let mut request = format!("*3\r\n$3\r\nSET\r\n$16\r\n{key}\r\n${BYTES}\r\n").into_bytes();
        request.extend_from_slice(&[7; BYTES]);
        request.extend_from_slice(b"\r\n");
        let from = Instant::now();
        stream.write_all(&request)?;
        stream.read_exact(&mut answer)?;
        if number >= 100 {
            times.record(from.elapsed().as_nanos() as u64)?;
        }
        if &answer != b"+OK\r\n" {
            return Err("Redis answered something else than OK".into());
        }
    }
    Ok(times)
}
