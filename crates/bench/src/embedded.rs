//! `cargo xtask bench embedded`: the store, Redis and the limits of the memory, measured side by side in one run.
//!
//! ```text
//! for each repetition, for each size:  limits ─▶ store ─▶ concurrent ─▶ Redis     (interleaved: drift hits all alike)
//! for each repetition:  selection ─▶ grants ─▶ stages ─▶ samplers ─▶ ring
//! then:  memory per fragment and per decided event, recovery, fill and refill, events held under lease
//! all samples ─▶ medians ─▶ goals ─▶ embedded.md, embedded.json, embedded.svg
//! ```
//!
//! *Invariants*: nothing is judged against a figure of another run or machine, except for the goals themselves; a store
//! that ran full is never timed; a part that fails is named in the report and its goals are not met.

use crate::options::{Options, Plan};
use crate::results::{Results, Unit};
use crate::source::Buffer;
use crate::{
    Result, child, concurrent, copy_limit, goals, grants, held, machine, memory, plot, puts, recovery, redis, refill,
    report, ring, samplers, selection, stages, tools,
};
use std::collections::BTreeMap;
use std::process::Command;

const WHAT: &str = "Keys are 16 bytes: run u32, event u64, source u32. Unless a row says otherwise, events are densely \
numbered and have 16 fragments, complete by count; values carry a CRC-32C made in the put; making the key is part of \
each call. *Cached* puts take their bytes from 8 blocks that stay in the cache, *cold* ones walk through more memory \
than any cache holds. Stores are created, prefaulted and emptied outside of the measurement, are filled to at most \
70 %, and write into recycled segments. Copies go into the same kind of mapping, block by block; non-temporal ones are \
fenced per block. Redis runs without persistence on a Unix socket, one client of `redis-benchmark`, random keys of \
a keyspace as big as 512 MiB of values allow (at most 500 000) where no row says otherwise; goals compare with these. Figures \
are medians of interleaved repetitions.";

/// Measures everything and writes the report; `false` where a part failed. A goal that is not met is no failure.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let plan = options.plan();
    if !plan.without_redis {
        tools::redis()?;
    }
    let redis = child::output(Command::new("redis-server").arg("--version")).unwrap_or_else(|_| "none".to_owned());
    let machine = machine::Machine::look(BTreeMap::from([("Redis", redis)]))?;
    println!("{machine}\n{plan}");
    let mut results = Results::default();
    let mut failures = Vec::new();
    repeated(&plan, &mut results, &mut failures)?;
    part("memory", &mut failures, || memory::measure(&plan, &mut results));
    part("decided", &mut failures, || memory::decided(&plan, &mut results));
    part("recovery", &mut failures, || recovery::measure(&plan, &mut results));
    part("refill", &mut failures, || refill::measure(&plan, &mut results));
    part("held", &mut failures, || held::measure(&plan, &mut results));

    let goals = goals::judge(&results);
    let svg = plot::svg(&results, &plan.sizes);
    let report = report::Report {
        name: "embedded",
        title: "the embedded store",
        what: WHAT,
        machine: &machine,
        plan: plan.to_string(),
        sizes: &plan.sizes,
        smoke: plan.smoke,
        results: &results,
        goals: &goals,
        failures: &failures,
        tables: [("Operations per second", Unit::PerSecond), ("Limits, bytes per second", Unit::BytesPerSecond)],
        plots: vec![report::Plot { suffix: "", caption: "Rates by fragment size", svg }],
    };
    report.publish(&options.out)?;
    Ok(failures.is_empty())
}

/// The parts that are repeated, interleaved.
fn repeated(plan: &Plan, results: &mut Results, failures: &mut Vec<String>) -> Result<()> {
    let buffer = Buffer::new(plan.source_bytes);
    let server = match plan.without_redis {
        true => None,
        false => Some(redis::Server::start(&plan.dir, false)?),
    };
    for repetition in 1..=plan.repetitions {
        for (at, &bytes) in plan.sizes.iter().enumerate() {
            println!("repetition {repetition} of {}: {bytes} B", plan.repetitions);
            part("copy limit", failures, || copy_limit::measure(plan, &buffer, bytes, results));
            part("store", failures, || puts::measure(plan, &buffer, bytes, results));
            part("concurrent", failures, || concurrent::measure(plan, &buffer, bytes, results));
            if let Some(server) = &server {
                part("redis", failures, || server.measure(plan, at, bytes, results));
            }
        }
        part("selection", failures, || selection::measure(plan, &buffer, results));
        part("grants", failures, || grants::measure(plan, &buffer, results));
        part("stages", failures, || stages::measure(plan, &buffer, results));
        part("samplers", failures, || samplers::measure(plan, &buffer, results));
        part("ring", failures, || ring::measure(plan, &buffer, results));
    }
    Ok(())
}

pub(crate) fn part(name: &str, failures: &mut Vec<String>, measure: impl FnOnce() -> Result<()>) {
    if let Err(error) = measure() {
        eprintln!("{name}: {error}");
        let failure = format!("{name}: {error}");
        if !failures.contains(&failure) {
            failures.push(failure);
        }
    }
}
