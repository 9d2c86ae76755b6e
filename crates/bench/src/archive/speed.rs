//! One mover by itself: into a directory beside fio, and into S3 where every request takes some milliseconds.

use super::Measurement;
use super::scene::{Scene, Trip, archive_in};
use crate::Result;
use crate::dataset::place;
use crate::engine::Scratch;
use crate::page::{Section, goal};
use crate::results::median;
use crate::warm::fio::{Job, Pattern, preallocated};
use forebay_dataset::storage::{self, Storage};
use forebay_testkit::s3::StandIn;
use serde_json::json;
use std::time::Instant;

const BLOCK_BYTES: usize = 1 << 20;
const DEPTH: usize = 8;

/// Into a directory. fio writes as many bytes, made durable as often as an object ends, and reads them twice: what a mover must
/// do at least, for the container is read, the object is written and read back.
pub(super) fn directory(on: &mut Measurement<'_>) -> Result<()> {
    let mut table = Section::new(
        "speed",
        "Into a directory",
        "One mover, from a store in the same process to a directory of the same device. *fio*: time of writing as many bytes, synced as \
         often as an object ends, and of reading them twice, directly; half of it before the mover and half after. *Core* is the mover's \
         own threads, with their reading from the store; *reading* is the same events read just before, and nothing done with them; \
         *process* has the store's threads too.",
        &[
            "repetition",
            "mover MB/s",
            "mover s",
            "fio s",
            "share",
            "core·s/GB",
            "reading core·s/GB",
            "process core·s/GB",
        ],
    );
    let (mut shares, mut cores) = (Vec::new(), Vec::new());
    for repetition in 1..=on.plan.repetitions {
        let scratch = Scratch::new(&on.plan.dir)?;
        let file = preallocated(&scratch.path().join("fio"), on.plan.move_bytes)?;
        let scene = Scene::new(on.plan, on.plan.move_bytes, 1)?;
        scene.write(on.buffer, on.plan.move_bytes, 1)?;
        let archive = archive_in(&scratch)?;
        let before = pass(on, &file)?;
        let read = scene.read_claimed(usize::MAX)?;
        let trip = scene.move_all(on.plan, archive.clone())?;
        let yardstick = (before + pass(on, &file)?) / 2.0 * trip.bytes as f64 / on.plan.move_bytes as f64;
        scene.audit(&archive)?;
        let share = yardstick / trip.seconds;
        shares.push(share);
        cores.push(trip.cores() - read.cores());
        table.add(vec![
            json!(repetition),
            json!(trip.rate() / 1e6),
            json!(trip.seconds),
            json!(yardstick),
            json!(share),
            json!(trip.cores()),
            json!(read.cores()),
            json!(trip.process_seconds / (trip.bytes as f64 / 1e9)),
        ]);
    }
    on.sections.push(table);
    let share = "into a directory: time of fio writing once and reading twice, by the mover's";
    on.goals.push(goal(share.to_owned(), Some(median(&shares)), 0.45, false));
    let core = "into a directory: core·s/GB of the mover's threads, without reading from the store";
    on.goals.push(goal(core.to_owned(), Some(median(&cores)), 0.5, true));
    Ok(())
}

/// Seconds of fio writing the file once and reading it twice.
fn pass(on: &Measurement<'_>, file: &std::path::Path) -> Result<f64> {
    let bytes = on.plan.move_bytes;
    let job = |pattern| Job::once(pattern, file, bytes, BLOCK_BYTES, DEPTH);
    let synced = (on.plan.object_bytes / BLOCK_BYTES).max(1) as u32;
    let writing = on.fio.run(&[Job { synced_every: synced, ..job(Pattern::Write) }])?[0].rate;
    let mut seconds = bytes as f64 / writing;
    for _ in 0..2 {
        seconds += bytes as f64 / on.fio.run(&[job(Pattern::Read)])?[0].rate;
    }
    Ok(seconds)
}

/// Into a stand-in for S3 with a delay, beside puts and gets of the same sizes, one after the other, by the same client.
pub(super) fn s3(on: &mut Measurement<'_>) -> Result<()> {
    let mut table = Section::new(
        "s3",
        "Into S3 with a delay",
        format!(
            "One mover into a stand-in in the same process with {} ms a request. *Bare*: each of its objects put and got again through \
             `object_store` as the mover's client has it, and nothing else: no store, no manifest, no comparison; half of them before the \
             mover and half after.",
            on.plan.delay.as_millis()
        ),
        &["repetition", "objects", "mover MB/s", "mover s", "bare s", "share", "process core·s/GB"],
    );
    let mut shares = Vec::new();
    for repetition in 1..=on.plan.repetitions {
        let stand_in = StandIn::new();
        stand_in.set_delay(on.plan.delay);
        // Its own checks of bodies would be most of what is measured.
        stand_in.trust_bodies(true);
        let options = place(stand_in.endpoint(), "A", "B", 8);
        let scene = Scene::new(on.plan, on.plan.move_bytes, 1)?;
        scene.write(on.buffer, on.plan.move_bytes, 1)?;
        let archive = storage::open("s3://bucket/archive", &options)?;
        // Its objects are as large as containers allow, which the first pass cannot know better.
        let sizes = vec![on.plan.object_bytes.min(on.plan.container_bytes as usize); objects_of(on)];
        let before = bare(storage::open("s3://bucket/before", &options)?.as_ref(), &sizes)?;
        let trip: Trip = scene.move_all(on.plan, archive.clone())?;
        let (_, objects) = scene.audit(&archive)?;
        let after = bare(storage::open("s3://bucket/after", &options)?.as_ref(), &sizes)?;
        let bytes: usize = sizes.iter().sum();
        let yardstick = (before + after) / 2.0 * trip.bytes as f64 / bytes as f64;
        shares.push(yardstick / trip.seconds);
        table.add(vec![
            json!(repetition),
            json!(objects),
            json!(trip.rate() / 1e6),
            json!(trip.seconds),
            json!(yardstick),
            json!(yardstick / trip.seconds),
            json!(trip.process_seconds / (trip.bytes as f64 / 1e9)),
        ]);
    }
    on.sections.push(table);
    let text =
        format!("into S3 with {} ms a request: time of bare puts and gets, by the mover's", on.plan.delay.as_millis());
    on.goals.push(goal(text, Some(median(&shares)), 0.9, false));
    Ok(())
}

fn objects_of(on: &Measurement<'_>) -> usize {
    let each = (on.plan.object_bytes as u64).min(on.plan.container_bytes);
    (on.plan.move_bytes.div_ceil(each) / 2).max(1) as usize
}

/// Seconds of putting objects of these sizes and getting them, one after the other.
fn bare(place: &dyn Storage, sizes: &[usize]) -> Result<f64> {
    let body = bytes::Bytes::from(vec![0x5a_u8; sizes.iter().copied().max().unwrap_or(0)]);
    let from = Instant::now();
    for (at, &size) in sizes.iter().enumerate() {
        let name = format!("object{at}");
        place.put(&[(name.clone(), body.slice(..size))])?;
        let back = place.read_back(&name, size as u64)?;
        if back.is_none_or(|back| back.len() != size) {
            return Err("a bare object did not come back".into());
        }
    }
    Ok(from.elapsed().as_secs_f64())
}
