//! Readout's rate with a mover beside it and without, in pairs.

use super::Measurement;
use super::scene::{Scene, archive_in};
use crate::Result;
use crate::engine::Scratch;
use crate::page::{Section, goal};
use crate::results::median;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Readout writes into a level of two devices until the device has all, alone and while a mover empties what was written before.
/// The two take turns in going first: what the machine does meanwhile hits both alike.
pub(super) fn measure(on: &mut Measurement<'_>) -> Result<()> {
    let plan = on.plan;
    // The mover finds one part of it at its start; readout writes four in each of the two turns.
    let (found, bytes) = (plan.move_bytes, plan.move_bytes * 4);
    let mut table = Section::new(
        "beside",
        "Readout beside a mover",
        "One thread puts and accepts events as fast as it can, until the warm level's devices have them: alone, and while a mover in the same \
         process empties what was written before. Two devices, which are directories of one disk here, as is the \
         archive. *Mover*: what it named meanwhile; the first object is waited for.",
        &["pair", "alone MB/s", "beside MB/s", "beside by alone", "mover MB"],
    );
    let scratch = Scratch::new(&plan.dir)?;
    let archive = archive_in(&scratch)?;
    let scene = Scene::new(plan, found + bytes * 2, 2)?;
    let mut ratios = Vec::new();
    for pair in 0..plan.pairs {
        scene.write(on.buffer, found, 1)?;
        let (mut alone, mut beside, mut moved) = (0.0, 0.0, 0);
        for turn in 0..2 {
            if (turn + pair) % 2 == 0 {
                alone = scene.write(on.buffer, bytes, 1)?;
                continue;
            }
            let stop = Arc::new(AtomicBool::new(false));
            let mover = scene.mover(plan, archive.clone(), false, &stop)?;
            beside = std::thread::scope(|scope| -> Result<f64> {
                let moving = scope.spawn(|| mover.run(false, &mut |_, _| {}));
                let rate = scene.until("the mover's first object", || Ok(mover.moved().objects > 0)).and_then(|()| {
                    let before = mover.moved().object_bytes;
                    let rate = scene.write(on.buffer, bytes, 1);
                    moved = mover.moved().object_bytes - before;
                    rate
                });
                stop.store(true, Ordering::Relaxed);
                moving.join().map_err(|_| "the mover panicked")??;
                rate
            })?;
        }
        ratios.push(beside / alone);
        table.add(vec![
            json!(pair + 1),
            json!(alone / 1e6),
            json!(beside / 1e6),
            json!(beside / alone),
            json!(moved as f64 / 1e6),
        ]);
        scene.discard()?;
    }
    let middle = median(&ratios);
    let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let most = ratios.iter().copied().fold(0.0, f64::max);
    table.add(vec![
        json!(format!("median ({least:.2} to {most:.2})")),
        json!(null),
        json!(null),
        json!(middle),
        json!(null),
    ]);
    on.sections.push(table);
    // A limit of 10 % is not judged by pairs that differ by more.
    let spread = most - least;
    let text = format!("readout beside a mover, by readout alone; pairs differ by {spread:.2}, judged up to 0.10");
    on.goals.push(goal(text, (spread <= 0.1).then_some(middle), 0.9, false));
    Ok(())
}
