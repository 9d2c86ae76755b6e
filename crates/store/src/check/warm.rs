//! Looking at the warm level: whose the devices are, headers, directories, logs; which of what they hold counts.
//!
//! *Not here*: how a container's bytes are compared (`warm/verify.rs`).

use super::CheckReport;
use crate::config::Config;
use crate::engine::Engine;
use crate::levels;
use crate::open::HOLDS;
use crate::placement::{Level, There, at};
use crate::recover;
use forebay_core::{KeySchema, Keyspace, Kind, Result};
use forebay_media::bytes::Superblock;
use forebay_media::hot::Hot;
use forebay_media::region_file;
use forebay_media::warm::{ImagePlace, Warm};

/// The warm level of a store whose hot one is there: both are read as the next opening would read them.
///
/// # Errors
/// `Unavailable` where a device fails. What is wrong is in the report.
pub(super) fn check_with_hot(
    hot: Hot,
    keyspace: &Keyspace,
    text: &str,
    config: &Config,
    deep: bool,
    report: &mut CheckReport,
) -> Result<()> {
    let widths = (keyspace.schema.key_bytes(), keyspace.schema.primary_bytes());
    // A region that the hot part has found wrong is looked at without its index.
    let life = match region_file::next_life(&HOLDS, &hot.region, text, widths, true) {
        Ok(life) => life,
        Err(_) => return check_alone(keyspace, config, deep, report),
    };
    let Some((level, there)) = open(Some(&life.superblock), keyspace, config, report)? else { return Ok(()) };
    let (warm, schema) = (level.warm.clone(), &keyspace.schema);
    let mut engine = Engine::new(hot, keyspace.clone(), config.clone(), life.superblock, None);
    engine.adopt_level(Some(level));
    let mut there = There { figures_kept: life.was_clean, ..there };
    let recovered = recover::recover(&engine, life.power_lost, Some(&mut there));
    if let Some(level) = &engine.placement.level {
        report.unfinished.append(&mut level.notes.lock());
    }
    // What is wrong with segments has been said already, in more words.
    let of_warm = |loss: &String| !loss.starts_with("segment ");
    report.problems.extend(engine.life.losses.lock().drain(..).filter(of_warm));
    match recovered {
        Ok(_) => {
            look_at_ledgers(&engine, report);
            check_containers(&warm, schema, deep, report, &|primary, rest, place, index| {
                engine.stands_at(primary, rest, place, index)
            })
        }
        Err(error) => {
            report.problems.push(format!("it cannot be opened: {}", error.message()));
            check_containers(&warm, schema, deep, report, &|_, _, _, _| true)
        }
    }
}

/// The warm level by itself: nobody knows which of it counts, so all of it is taken to.
///
/// # Errors
/// `Unavailable` where a device fails. What is wrong is in the report.
pub(super) fn check_alone(keyspace: &Keyspace, config: &Config, deep: bool, report: &mut CheckReport) -> Result<()> {
    let Some((level, mut there)) = open(None, keyspace, config, report)? else { return Ok(()) };
    report.problems.append(&mut there.losses);
    let known = there.found.losses.len();
    level.warm.images(&mut there.found, &mut |_, _| Ok(()))?;
    report.problems.extend(there.found.losses.drain(known..));
    report.unfinished.append(&mut there.found.unfinished);
    check_containers(&level.warm, &keyspace.schema, deep, report, &|_, _, _, _| true)
}

fn open(
    region: Option<&Superblock>,
    keyspace: &Keyspace,
    config: &Config,
    report: &mut CheckReport,
) -> Result<Option<(Level, There)>> {
    match levels::open(None, region, keyspace, config) {
        Ok(Some((level, there, _))) => {
            report.devices = level.devices;
            for slots in &there.decisions {
                slots.each(&mut |_| {
                    report.decisions += 1;
                    Ok(())
                })?;
            }
            Ok(Some((level, there)))
        }
        Ok(None) => Ok(None),
        Err(error) if error.kind() == Kind::Unavailable => Err(error),
        Err(error) => {
            report.problems.push(format!("the warm level cannot be opened: {}", error.message()));
            Ok(None)
        }
    }
}

fn look_at_ledgers(engine: &Engine, report: &mut CheckReport) {
    let runs: Vec<u64> = engine.runs.known.lock().iter().map(|known| known.run).collect();
    let shards = engine.shards.lock_all();
    for run in runs {
        let mut sum = forebay_core::Ledger::default();
        for shard in &shards {
            if let Some(index) = shard.events.run_index(run) {
                sum.add(&shard.events.runs[index as usize].ledger);
            }
        }
        report.problems.extend(sum.imbalance().map(|what| format!("the ledger of run {run} does not balance: {what}")));
    }
}

impl Engine {
    /// Whether the index says of a fragment that it is in this image, alone or beside its record on the hot level.
    fn stands_at(&self, primary: &[u8], rest: &[u8], place: ImagePlace, index: u32) -> bool {
        let shard = self.shards.cells[self.shards.shard_of(primary)].lock();
        let word =
            shard.events.find(primary).and_then(|event| shard.events.slot(event, rest).ok()).map(|(_, word)| word);
        word.is_some_and(|word| {
            let here = if word.is_warm() { word.location() == at(place, index) } else { word.is_persisted() };
            word.is_present() && here
        })
    }
}

/// Whether a fragment counts: primary key, remaining sub-keys, image, number in its table.
type Counts<'c> = dyn Fn(&[u8], &[u8], ImagePlace, u32) -> bool + 'c;

fn check_containers(
    warm: &Warm,
    schema: &KeySchema,
    deep: bool,
    report: &mut CheckReport,
    counts: &Counts<'_>,
) -> Result<()> {
    let containers = warm.containers();
    report.containers = containers.len() as u32;
    for container in containers {
        let number = container.header.container;
        if !warm.holds(number) {
            continue;
        }
        let mut problems = Vec::new();
        let read = warm.verify(number, deep, &mut |place, image, index, entry, found| {
            let live = counts(image.primary, entry.rest, place, index);
            report.entries += 1;
            report.warm_entries += 1;
            (report.live, report.dead) = (report.live + u64::from(live), report.dead + u64::from(!live));
            report.warm_live += u64::from(live);
            if live && let Some(found) = found {
                let key = [image.primary, entry.rest].concat();
                problems.push(format!("{found}, fragment {}", schema.text(&key)));
            }
        });
        match read {
            Ok(seen) => {
                report.images += seen.images;
                problems.extend(seen.problems);
            }
            Err(error) => problems.push(error.message().to_owned()),
        }
        report.problems.append(&mut problems);
    }
    Ok(())
}
