//! Figures 7, 8 and 10 of ALICE's paper: rates by fill level, random beside sequential reading, many streams.

use super::Measurement;
use super::scene::{Scene, archive_in};
use crate::Result;
use crate::chart::{self, Line, Panel, Rightward, Upward};
use crate::engine::Scratch;
use crate::page::Section;
use crate::report::Plot;
use crate::results::median;
use crate::source::mix;
use forebay_store::Sources;
use serde_json::json;
use std::time::Instant;

/// Steps in which the level is filled.
const STEPS: u64 = 8;
/// Containers that are read at each step.
const CLAIMS: usize = 4;

/// Writing and reading by fill level.
pub(super) fn filling(on: &mut Measurement<'_>) -> Result<()> {
    let mut table = Section::new(
        "filling",
        "Figure 7: writing and reading by fill level",
        "A warm level is filled in steps; at each, writing until the device has all, then reading the oldest containers event by event as a \
         mover does. One thread.",
        &["fill", "writing MB/s", "reading MB/s"],
    );
    let level = on.plan.move_bytes;
    let scene = Scene::new(on.plan, level, 1)?;
    let (mut writing, mut reading) = (Vec::new(), Vec::new());
    for _ in 0..STEPS {
        let written = scene.write(on.buffer, level / STEPS, 1)?;
        let read = scene.read_claimed(CLAIMS)?.rate();
        let fill = scene.fill()?;
        table.add(vec![json!(fill), json!(written / 1e6), json!(read / 1e6)]);
        writing.push((fill, written));
        reading.push((fill, read));
    }
    on.sections.push(table);
    on.plots.push(Plot {
        suffix: "-filling",
        caption: "Writing and reading by fill level",
        svg: chart::svg(&[Panel {
            title: "Bytes per second by fill level".to_owned(),
            rightward: Rightward::Evenly,
            marks: (0..=4).map(|at| (f64::from(at) / 4.0, format!("{} %", at * 25))).collect(),
            upward: Upward::FromZero,
            lines: vec![line("writing", "#0072b2", writing), line("reading", "#009e73", reading)],
        }]),
    });
    Ok(())
}

/// Random beside sequential reading of whole events.
pub(super) fn order(on: &mut Measurement<'_>) -> Result<()> {
    let mut table = Section::new(
        "order",
        "Figure 8: random beside sequential reading",
        "All events of claimed containers, of 256 KiB each, in the order in which they lie there, then the same ones shuffled. One thread.",
        &["repetition", "sequential MB/s", "random MB/s", "random by sequential"],
    );
    let scene = Scene::new(on.plan, on.plan.move_bytes, 1)?;
    scene.write(on.buffer, on.plan.move_bytes, 1)?;
    for repetition in 1..=on.plan.repetitions {
        let sequential = scene.read_claimed(usize::MAX)?;
        let mut events: Vec<_> = sequential.events.iter().enumerate().collect();
        events.sort_by_key(|(at, _)| mix((at + repetition) as u64));
        let from = Instant::now();
        let mut bytes = 0;
        for (_, event) in events {
            bytes += scene.read(event, &Sources::All)?;
        }
        let random = bytes as f64 / from.elapsed().as_secs_f64();
        let rate = sequential.rate();
        table.add(vec![json!(repetition), json!(rate / 1e6), json!(random / 1e6), json!(random / rate)]);
    }
    on.sections.push(table);
    Ok(())
}

/// Writing into many streams, each with a container of its own, and moving them.
pub(super) fn streams(on: &mut Measurement<'_>) -> Result<()> {
    let mut table = Section::new(
        "streams",
        "Figure 10: many streams",
        "Events go into some streams in turn, each of which has a container that is filled; then one mover takes all into a directory. \
         Medians of the repetitions.",
        &["streams", "writing MB/s", "moving MB/s", "objects"],
    );
    for &streams in &on.plan.streams {
        let (mut writing, mut moving, mut objects) = (Vec::new(), Vec::new(), 0);
        for _ in 0..on.plan.repetitions {
            let scratch = Scratch::new(&on.plan.dir)?;
            let archive = archive_in(&scratch)?;
            let scene = Scene::new(on.plan, on.plan.move_bytes / 2, 1)?;
            writing.push(scene.write(on.buffer, on.plan.move_bytes / 2, streams)?);
            moving.push(scene.move_all(on.plan, archive.clone())?.rate());
            objects = scene.audit(&archive)?.1;
        }
        table.add(vec![json!(streams), json!(median(&writing) / 1e6), json!(median(&moving) / 1e6), json!(objects)]);
    }
    on.sections.push(table);
    Ok(())
}

/// A line of a plot.
pub(super) fn line(label: &str, colour: &'static str, points: Vec<(f64, f64)>) -> Line {
    Line { label: label.to_owned(), colour, dashes: "", points }
}
