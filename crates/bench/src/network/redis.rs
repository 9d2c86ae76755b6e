//! Redis without persistence beside it: over the same transports, driven by its own benchmark.

use super::moving::{SIZES, client, end_run};
use super::{Measurement, pin};
use crate::{Result, child};
use forebay_core::{Completeness, RunConfig};
use std::process::Command;
use std::time::Duration;

/// Clients of `redis-benchmark` at once: one, and its default.
const CLIENTS: [u32; 2] = [1, 50];

/// One run of `redis-benchmark` against an address; requests a second.
fn benchmark(address: &str, clients: u32, arguments: &[&str], requests: u64) -> Result<f64> {
    let mut command = Command::new("taskset");
    command.args(["-c", &pin::LOAD.to_string(), "redis-benchmark"]);
    match address.strip_prefix("unix:") {
        Some(path) => command.args(["-s", path]),
        None => command.args(["-h", "127.0.0.1", "-p", address.rsplit(':').next().unwrap_or_default()]),
    };
    command.args(["-c", &clients.to_string(), "-P", "32", "--csv", "-n", &requests.to_string()]).args(arguments);
    let csv = child::output(&mut command)?;
    let rate = csv.lines().last().and_then(|line| line.split("\",\"").nth(1)?.trim_matches('"').parse().ok());
    rate.ok_or_else(|| format!("redis-benchmark says no rate: {csv}").into())
}

/// What Redis does, and what both do with the same command of the same benchmark.
pub(super) fn measure(on: &mut Measurement<'_>) -> Result<()> {
    for transport in ["unix", "tcp"] {
        let redis = on.redis.address(transport);
        for bytes in SIZES {
            let requests = if bytes < 1024 { on.plan.redis_requests } else { on.plan.redis_requests / 8 };
            let size = bytes.to_string();
            for test in ["set", "get"] {
                let rate = benchmark(&redis, 1, &["-t", test, "-d", &size, "-r", "100000"], requests)?;
                on.results.record(&format!("{transport}.redis.{test}"), bytes, rate);
            }
            for clients in CLIENTS {
                custom(on, transport, bytes, clients, requests)?;
            }
        }
    }
    Ok(())
}

/// The same command of the same benchmark for both, with this many clients.
fn custom(on: &mut Measurement<'_>, transport: &str, bytes: usize, clients: u32, requests: u64) -> Result<()> {
    // Every command another event, which is complete with it: one for each request, drawn at random. A run of
    // its own each time: what was removed of an earlier one stays closed.
    let run = on.next_run();
    let client = client(on.forebay, transport)?;
    client.run_open(run, &RunConfig::new(Completeness::Count(1), Duration::from_secs(3600)))?;
    let (key, value) = (format!("{run}/__rand_int__/1"), "x".repeat(bytes));
    let command = ["-r", "1000000000", "SET", &key, &value];
    let redis = on.redis.address(transport);
    let theirs = benchmark(&redis, clients, &command, requests)?;
    flush(&redis)?;
    let ours = benchmark(on.forebay.address("resp", transport)?, clients, &command, requests)?;
    let suffix = if clients == 1 { String::new() } else { format!(".{clients}") };
    on.results.record(&format!("{transport}.redis.custom{suffix}"), bytes, theirs);
    on.results.record(&format!("{transport}.resp.custom{suffix}"), bytes, ours);
    let ledger = client.ledger(run)?;
    println!(
        "  {transport} {bytes} B, {clients} clients: {} duplicates among {}",
        ledger.duplicate.fragments, ledger.offered.fragments
    );
    // Closed as well: until then each of its events, drawn at random, is remembered by itself.
    end_run(&client, run)
}

fn flush(address: &str) -> Result<()> {
    use std::io::{Read, Write};
    let mut stream = super::wire::connect(address)?;
    stream.write_all(b"FLUSHALL\r\n")?;
    let mut answer = [0; 5];
    Ok(stream.read_exact(&mut answer)?)
}
