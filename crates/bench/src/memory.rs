//! Memory beyond the region, per fragment: as the store counts it, and as the kernel sees the process grow.
//!
//! Each case runs in its own process with an unused heap, so the kernel's figure includes the slack of the allocator. The
//! region is shared memory and not part of the counted private pages.

use super::engine::{Bench, Numbering, SOURCES, Span};
use super::options::Plan;
use super::results::Results;
use super::source::{Buffer, Warmth};
use crate::{Result, child};
use clap::{Args, ValueEnum};
use forebay_core::KeySchema;
use forebay_media::bytes::EntryLayout;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::process::Command;

/// Payload of the fragments: small, so that many fit.
const BYTES: usize = 64;
/// Size at which the payload's share of the region is measured.
pub(super) const SHARE_BYTES: usize = 1024;

/// The measurement of one process.
#[derive(Args)]
pub(crate) struct ProbeOptions {
    #[arg(long)]
    case: Case,
    #[arg(long)]
    random: bool,
    #[arg(long)]
    fragments: u64,
    #[arg(long)]
    dir: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Case {
    /// Events of 16 fragments.
    Events16,
    /// Events of one fragment.
    Single,
    /// Events that were put and removed.
    Decided,
}

impl Case {
    fn name(self) -> &'static str {
        match self {
            Case::Events16 => "events16",
            Case::Single => "single",
            Case::Decided => "decided",
        }
    }
}

/// The result of one process.
#[derive(Serialize, Deserialize)]
struct Found {
    /// Bytes per fragment or decided event, by the store's own count.
    counted: f64,
    /// Private memory that the process grew by, per fragment.
    grown: f64,
    /// Bytes that do not grow with the data.
    fixed: u64,
}

/// Measures all cases.
pub(super) fn measure(plan: &Plan, results: &mut Results) -> Result<()> {
    for case in [Case::Events16, Case::Single, Case::Decided] {
        for (random, word) in [(false, "dense"), (true, "random")] {
            let mut command = Command::new(std::env::current_exe()?);
            let fragments = plan.probe_fragments / if case == Case::Decided { 4 } else { 1 };
            command.args(["memory-probe", "--case", case.name(), "--fragments", &fragments.to_string()]);
            command.arg("--dir").arg(&plan.dir).args(random.then_some("--random"));
            let found: Found = serde_json::from_str(&child::output(&mut command)?)?;
            results.record(&format!("memory.{}.{word}", case.name()), BYTES, found.counted);
            if case != Case::Decided {
                results.record(&format!("rss.{}.{word}", case.name()), BYTES, found.grown);
                results.record("memory.fixed", BYTES, found.fixed as f64);
            }
        }
    }
    occupied(plan, results)
}

/// All decided events of a long run.
pub(super) fn decided(plan: &Plan, results: &mut Results) -> Result<()> {
    let bytes = forebay_store::measure::decided_bytes(&KeySchema::run_event_source(), plan.decided_events)?;
    results.record("memory.decided.all", BYTES, bytes as f64);
    Ok(())
}

/// How much of the occupied region is payload.
fn occupied(plan: &Plan, results: &mut Results) -> Result<()> {
    let layout = EntryLayout::new(&KeySchema::run_event_source());
    results.record("entry.bytes", SHARE_BYTES, layout.entry_bytes() as f64);
    let mut bench = Bench::create(&plan.dir, 256 << 20, SOURCES)?;
    let run = bench.new_run(SOURCES)?;
    let events = (160 << 20) / (SHARE_BYTES as u64 + 48) / SOURCES;
    let buffer = Buffer::new(1 << 20);
    let span = Span::dense(run, 0..events);
    span.put(&bench.store, &mut buffer.blocks(SHARE_BYTES, Warmth::Cached, 0, 1))?;
    let data = bench.store.segments().into_iter().filter(|segment| matches!(&*segment.state, "open" | "sealed"));
    let used: u64 = data.map(|segment| segment.used_bytes).sum();
    results.record("payload.share", SHARE_BYTES, (span.fragments() * SHARE_BYTES as u64) as f64 / used as f64);
    Ok(())
}

/// The work of one process; prints what it found.
pub(crate) fn probe(options: &ProbeOptions) -> Result<()> {
    let buffer = Buffer::new(1 << 20);
    let mut blocks = buffer.blocks(BYTES, Warmth::Cached, 0, 1);
    let per_event = if options.case == Case::Events16 { SOURCES } else { 1 };
    // Room to spare: the store keeps a decision slot free for every event, which for events this small is a lot.
    let region = (options.fragments * (BYTES as u64 + 48) * 3).max(128 << 20);
    let mut bench = Bench::create(&options.dir, region, per_event)?;
    let run = bench.new_run(per_event)?;
    let span = Span {
        run,
        events: 0..options.fragments / per_event,
        sources: 0..per_event,
        numbering: if options.random { Numbering::Random } else { Numbering::Dense },
    };
    let before = private_bytes()?;
    if options.case == Case::Decided {
        span.put_and_remove_events(&bench.store, &mut blocks)?;
    } else {
        span.put(&bench.store, &mut blocks)?;
    }
    let grown = private_bytes()?.saturating_sub(before);
    let stats = bench.store.stats();
    let memory = stats.memory;
    let found = if options.case == Case::Decided {
        if stats.decided_events < span.fragments() {
            return Err(
                format!("{} events are remembered as decided, not {}", stats.decided_events, span.fragments()).into()
            );
        }
        Found { counted: memory.decided as f64 / stats.decided_events as f64, grown: 0.0, fixed: memory.fixed }
    } else {
        let counted = memory.nodes + memory.leaves + memory.tables + memory.leases;
        let each = |bytes: u64| bytes as f64 / span.fragments() as f64;
        Found { counted: each(counted), grown: each(grown), fixed: memory.fixed }
    };
    println!("{}", serde_json::to_string(&found)?);
    Ok(())
}

/// Private (not shared, not file) memory of this process that is resident.
fn private_bytes() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line =
        status.lines().find_map(|line| line.strip_prefix("RssAnon:")).ok_or("no RssAnon in /proc/self/status")?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kib << 10)
}

#[cfg(test)]
mod tests {
    use super::private_bytes;

    #[test]
    fn private_memory_is_seen_to_grow() {
        let before = private_bytes().unwrap();
        let more = std::hint::black_box(vec![1_u8; 64 << 20]);
        assert!(private_bytes().unwrap() >= before + (32 << 20), "{}", more.len());
    }
}
