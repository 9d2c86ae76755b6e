//! `cargo xtask bench network`: a server and a client, beside Redis and beside a bare copy of the same frames, in one run.
//!
//! ```text
//! processor 0: server of Forebay | Redis | bare peer, one at a time        processor 1: the load
//! for each repetition:  moving ─▶ tls ─▶ redis ─▶ runtimes ─▶ latency ─▶ selection ─▶ cluster ─▶ connections
//! all samples ─▶ medians ─▶ goals ─▶ network.md, network.json
//! ```
//!
//! *Invariants*: a share uses figures of the same repetition; servers have one thread for their connections; every
//! process is ended at the end, by its id.

mod cluster;
mod connections;
mod goals;
mod latency;
mod moving;
mod nodes;
mod options;
mod peer;
mod pin;
mod redis;
mod runtimes;
mod selection;
mod series;
mod tls;
mod wire;

pub(crate) use options::Options;
pub(crate) use peer::{PeerOptions, serve};
pub(super) use series::SERIES;

use super::machine::Machine;
use super::redis::Server;
use super::report::Report;
use super::results::{Results, Unit};
use crate::embedded::part;
use crate::{Result, child, tools};
use options::Plan;
use peer::Peer;
use std::collections::BTreeMap;
use std::process::Command;

const WHAT: &str = "Server and load are processes of their own, each on a processor of its own, unless a row says one core. \
The server has one thread for connections. Puts go in calls of 4096 fragments, frames of at most 512 of them and 512 KiB, with a CRC-32C each; \
gets in calls of 4096 keys, of 128 at 10 KiB. The *limit* moves frames of the same length through the same sort of socket, into or out \
of memory that stays in the cache, and does nothing else; for reading once more out of 512 MiB that no cache holds, as the store's are. \
Over TCP it has the congestion control of the system, and once more that of Forebay within a machine, which does not pace. The *limit* of TLS is the same without it, over TCP, one after the other in turns. Redis runs without persistence, driven by its own benchmark with \
one client; round trips of both are made by the same sort of blocking socket in this program. Nodes of a cluster are in one process, on \
the processor of servers: their shares say what a cluster costs, beside one server, each first in turn after a pass through all memory. Figures are medians of \
interleaved repetitions; shares are medians of the shares of each.";

/// What every part works with.
struct Measurement<'a> {
    plan: &'a Plan,
    forebay: &'a Peer,
    /// Nodes of a cluster.
    cluster: &'a Peer,
    bare: &'a Peer,
    redis: &'a Server,
    results: &'a mut Results,
    run: u64,
    /// Measurements of two things side by side, each first in turn.
    turns: u64,
}

impl Measurement<'_> {
    /// A run that was not used.
    fn next_run(&mut self) -> u64 {
        self.run += 1;
        self.run
    }

    /// Records a rate, its limit, and the share of one in the other.
    fn share(&mut self, id: &str, bytes: usize, rate: f64, limit: f64) {
        self.results.record(id, bytes, rate);
        self.results.record(&format!("{id}.limit"), bytes, limit);
        self.results.record(&format!("{id}.share"), bytes, rate / limit);
    }
}

/// Measures everything and writes the report; `false` where a part failed. A goal that is not met is no failure.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let plan = options.plan();
    tools::redis()?;
    let redis = child::output(Command::new("redis-server").arg("--version")).unwrap_or_else(|_| "none".to_owned());
    let mut machine = Machine::look(BTreeMap::from([("Redis", redis)]))?;
    let (mut results, mut failures) = (Results::of(SERIES), Vec::new());
    pin::this_thread(pin::LOAD)?;
    let forebay = Peer::start("forebay", &plan.dir, plan.hot_bytes)?;
    machine.beside.insert("TLS", tls::suite(&forebay)?);
    println!("{machine}\n{plan}");
    let cluster = Peer::start("cluster", &plan.dir, plan.hot_bytes)?;
    let bare = Peer::start("bare", &plan.dir, 0)?;
    let redis = Server::start(&plan.dir, true)?;
    pin::process(redis.id(), pin::SERVER)?;
    let results_of = &mut results;
    let mut on = Measurement {
        plan: &plan,
        forebay: &forebay,
        cluster: &cluster,
        bare: &bare,
        redis: &redis,
        results: results_of,
        run: 1000,
        turns: 0,
    };
    if options.wants("cluster") {
        part("cluster", &mut failures, || cluster::warm(&mut on));
    }
    for repetition in 1..=plan.repetitions {
        println!("repetition {repetition} of {}", plan.repetitions);
        let mut each = |name: &str, measure: fn(&mut Measurement<'_>) -> Result<()>| {
            if options.wants(name) {
                part(name, &mut failures, || measure(&mut on));
            }
        };
        each("moving", moving::measure);
        each("tls", tls::measure);
        each("redis", redis::measure);
        each("runtimes", runtimes::measure);
        each("latency", latency::measure);
        each("selection", selection::measure);
        each("cluster", cluster::measure);
        each("connections", connections::measure);
    }
    let goals = goals::judge(&results);
    let report = Report {
        name: "network",
        title: "server and client",
        what: WHAT,
        machine: &machine,
        plan: plan.to_string(),
        sizes: &moving::SIZES,
        smoke: plan.smoke,
        results: &results,
        goals: &goals,
        failures: &failures,
        tables: [("Operations per second", Unit::PerSecond), ("Microseconds", Unit::Micros)],
        plots: Vec::new(),
    };
    report.publish(&options.out)?;
    Ok(failures.is_empty())
}
