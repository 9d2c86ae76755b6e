//! `cargo xtask bench warm`: the writer and the reader of the warm level beside `fio`, on the same directory in one run.
//!
//! ```text
//! for each repetition:  writing ─▶ sizes ─▶ reading ─▶ mixed ─▶ persisted ─▶ profiles     (each: fio ─ warm ─ fio …)
//! then:  reopening and memory of demoted events ─▶ as many that are undecided
//! all samples ─▶ medians ─▶ goals ─▶ warm.md, warm.json, warm-threads.svg, warm-operations.svg
//! ```
//!
//! *Invariants*: a share uses figures of the same repetition, fio's and the work's in turn; fio has the same
//! block size, depth and direct I/O, and files in the same state: never written, or written before; every file, mount and
//! loop device is removed at the end, or by the next run if this one was killed.

mod demoted;
pub(crate) mod fio;
mod goals;
mod level;
mod loops;
mod mixed;
mod options;
mod persisted;
mod plots;
mod profiles;
mod reading;
mod reopening;
mod series;
mod sizes;
mod undecided;
mod writing;

pub(crate) use options::Options;
pub(super) use series::SERIES;

use super::machine::{Machine, medium};
use super::report::Report;
use super::results::{Results, Unit};
use super::source::Buffer;
use crate::embedded::part;
use crate::{Result, tools};
use fio::Fio;
use options::Plan;
use std::collections::BTreeMap;

const WHAT: &str = "Keys are 16 bytes: run u32, event u64, source u32. The writer takes fragments from more memory than \
any cache holds, with the checksums that the hot level has; it copies and checks them in one pass, writes with \
operations of one size, in extents of 8 MiB (or one event that is larger), and asks for durability as often as the plan \
says; the time ends when all is durable. fio writes its own buffers and asks for nothing where a row does not say so. *Written before* and \
*recycled* mean that the file system has blocks for everything; a first write must make them. Whole events are read \
with head and table verified; payloads where a row says so. Bandwidths of the store count payload only. CPU is that of the whole process. Figures are \
medians of interleaved repetitions; shares are medians of the shares of each.";

/// What every part works with.
struct Measurement<'a> {
    plan: &'a Plan,
    fio: &'a Fio,
    buffer: &'a Buffer,
    results: &'a mut Results,
}

impl Measurement<'_> {
    fn record(&mut self, id: &str, bytes: usize, value: f64) {
        self.results.record(id, bytes, value);
    }

    /// Runs fio and some work in turn, twice, and records both rates and the work's share of fio's rate: drift and caches
    /// of the device affect both alike. `id` makes a series of the words `fio`, `warm` and `share`.
    fn beside(
        &mut self,
        id: impl Fn(&str) -> String,
        bytes: usize,
        fio: impl Fn(&Fio) -> Result<f64>,
        mut work: impl FnMut() -> Result<f64>,
    ) -> Result<f64> {
        let (mut yardstick, mut rate) = (0.0, 0.0);
        for _ in 0..2 {
            for (word, sum) in [("fio", &mut yardstick), ("warm", &mut rate)] {
                let found = if word == "fio" { fio(self.fio)? } else { work()? };
                self.record(&id(word), bytes, found);
                *sum += found / 2.0;
            }
        }
        self.record(&id("share"), bytes, rate / yardstick);
        Ok(rate)
    }
}

/// Measures everything and writes the report; `false` where a part failed. A goal that is not met is no failure.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let plan = options.plan();
    tools::fio()?;
    std::fs::create_dir_all(&plan.dir)?;
    loops::sweep(&plan.dir)?;
    let fio = Fio::find(&plan.dir)?;
    let mut beside = BTreeMap::from([("fio", fio.describe()), ("medium", medium(&plan.dir)?)]);
    let devices = loops::available(&plan.dir);
    if let Err(error) = &devices {
        beside.insert("no second device", error.to_string());
    }
    let machine = Machine::look(beside)?;
    println!("{machine}\n{plan}");
    let (mut results, mut failures) = (Results::of(SERIES), Vec::new());
    let buffer = Buffer::new(plan.source_bytes);
    for repetition in 1..=plan.repetitions {
        println!("repetition {repetition} of {}", plan.repetitions);
        let on = &mut Measurement { plan: &plan, fio: &fio, buffer: &buffer, results: &mut results };
        let mut each = |name: &str, measure: &mut dyn FnMut(&mut Measurement<'_>) -> Result<()>| {
            if options.wants(name) {
                part(name, &mut failures, || measure(on));
            }
        };
        each("writing", &mut |on| writing::measure(on, repetition));
        each("sizes", &mut sizes::fragments);
        each("sizes", &mut sizes::operations);
        each("reading", &mut reading::measure);
        each("mixed", &mut mixed::one);
        if devices.is_ok() {
            each("mixed", &mut mixed::two);
        }
        each("persisted", &mut persisted::measure);
        each("profiles", &mut profiles::measure);
    }

    if options.wants("reopening") {
        part("reopening", &mut failures, || reopening::measure(&plan, &mut results));
    }
    if options.wants("undecided") {
        part("undecided", &mut failures, || undecided::measure(&plan, &mut results));
    }
    let goals = goals::judge(&results, plan.reopen_events, devices.is_ok());
    let report = Report {
        name: "warm",
        title: "the warm level",
        what: WHAT,
        machine: &machine,
        plan: plan.to_string(),
        sizes: &plan.sizes,
        smoke: plan.smoke,
        results: &results,
        goals: &goals,
        failures: &failures,
        tables: [("Operations per second", Unit::PerSecond), ("Bytes per second by fragment", Unit::BytesPerSecond)],
        plots: plots::all(&results, &plan),
    };
    report.publish(&options.out)?;
    Ok(failures.is_empty())
}
