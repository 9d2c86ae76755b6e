//! `cargo xtask bench archive`: movers beside the limits of the medium, the figures of ALICE's paper, and a data challenge.
//!
//! ```text
//! write, settle ─▶ fio, mover, fio ─▶ share of the medium      ─▶ mover, bare puts and gets ─▶ share of S3
//! Figures 7, 8, 10: rates by fill level, random beside sequential, many streams;  readout beside a mover, in pairs
//! intake at a rate ─▶ warm level ─▶ mover ─▶ archive, away for a while: fill level over time
//! --challenge: the last line for longer, into a directory and into a real Ceph
//! ```
//!
//! *Invariants*: a share uses figures of the same repetition, in turns; after every measurement that moves, archive and ledger
//! are set against each other, and what differs is a failure of the benchmark.

mod beside;
mod challenge;
mod figures;
mod options;
mod scene;
mod speed;

pub(crate) use options::Options;

use super::goals::Goal;
use super::machine::{Machine, medium};
use crate::embedded::part;
use crate::page::{Page, Section};
use crate::report::Plot;
use crate::source::Buffer;
use crate::warm::fio::Fio;
use crate::{Result, tools};
use options::Plan;
use std::collections::BTreeMap;

/// Source of payloads: more than the processor's caches hold, and noise.
const SOURCE_BYTES: usize = 256 << 20;

/// What every part works with, and what the parts found until now.
struct Measurement<'a> {
    plan: &'a Plan,
    fio: &'a Fio,
    buffer: &'a Buffer,
    sections: Vec<Section>,
    goals: Vec<Goal>,
    plots: Vec<Plot>,
}

/// Measures everything and writes the report; `false` where a part failed. A goal that is not met is no failure.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let plan = options.plan();
    tools::fio()?;
    std::fs::create_dir_all(&plan.dir)?;
    let fio = Fio::find(&plan.dir)?;
    let machine = Machine::look(BTreeMap::from([("fio", fio.describe()), ("medium", medium(&plan.dir)?)]))?;
    println!("{machine}\n{plan}");
    let buffer = Buffer::new(if plan.smoke { SOURCE_BYTES / 16 } else { SOURCE_BYTES });
    let mut on = Measurement {
        plan: &plan,
        fio: &fio,
        buffer: &buffer,
        sections: Vec::new(),
        goals: Vec::new(),
        plots: Vec::new(),
    };
    let mut failures = Vec::new();
    let mut each = |name: &str, measure: fn(&mut Measurement<'_>) -> Result<()>| {
        if options.wants(name) {
            println!("{name}");
            part(name, &mut failures, || measure(&mut on));
        }
    };
    if plan.challenge {
        if plan.to_dir {
            each("directory", challenge::into_directory);
        }
        if plan.to_ceph {
            each("ceph", challenge::into_ceph);
        }
    } else {
        each("speed", speed::directory);
        each("s3", speed::s3);
        each("filling", figures::filling);
        each("order", figures::order);
        each("streams", figures::streams);
        each("beside", beside::measure);
        each("outage", challenge::into_directory);
    }
    let page = Page {
        name: if plan.challenge { "archive-challenge" } else { "archive" },
        title: "movers into an archive",
        machine: &machine,
        plan: plan.to_string(),
        quick: plan.smoke,
        sections: &on.sections,
        goals: &on.goals,
        failures: &failures,
        plots: &on.plots,
    };
    page.publish(&options.out)?;
    Ok(failures.is_empty())
}
