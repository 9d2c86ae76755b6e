//! The data challenge: intake at a steady rate, a mover that empties the level, and an archive that goes away for a while.
//!
//! ```text
//! balance ─▶ outage ─▶ catching up ─▶ balance ─▶ run ends, the rest is moved ─▶ audit, verify
//! ```
//!
//! *Invariants*: nothing is thrown away: at the end everything that was put is in the archive, and every object verifies.

use super::Measurement;
use super::figures::line;
use super::scene::{EVENT_BYTES, FRAGMENT_BYTES, Scene, archive_in};
use crate::chart::{self, Panel, Rightward, Upward};
use crate::dataset::place;
use crate::engine::Scratch;
use crate::page::{Section, goal};
use crate::report::Plot;
use crate::source::Warmth;
use crate::{Result, processor};
use bytes::Bytes;
use forebay_core::Error;
use forebay_dataset::storage::{self, Back, Condition, Part, Put, Storage, Tag, Traffic};
use forebay_testkit::ceph::{ACCESS_KEY, Ceph, INDEXED, SECRET_KEY};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Share of what a mover reached alone that is taken in, so that it can catch up.
const INTAKE: f64 = 0.4;
/// Most bytes that are moved into Ceph, whose OSD is in memory.
const CEPH_BYTES: u64 = 4 << 30;
const SAMPLED: Duration = Duration::from_millis(100);

/// Into a directory, which an outage makes unavailable.
pub(super) fn into_directory(on: &mut Measurement<'_>) -> Result<()> {
    let scratch = Scratch::new(&on.plan.dir)?;
    let space = rustix::fs::statvfs(scratch.path())?;
    let room = space.f_bavail * space.f_frsize / 4;
    let switch = Arc::new(Switch { place: archive_in(&scratch)?, away: AtomicBool::new(false) });
    let names = ["challenge-directory", "Fill level with an outage: into a directory", "-directory"];
    measure(on, names, switch.clone(), room, &mut |is_away| {
        switch.away.store(is_away, Ordering::Relaxed);
        Ok(())
    })
}

/// Into a real Ceph, whose gateway is killed and started again.
pub(super) fn into_ceph(on: &mut Measurement<'_>) -> Result<()> {
    let mut ceph = Ceph::start(&[("bucket", INDEXED)])?;
    let archive = storage::open("s3://bucket/archive", &place(ceph.endpoint(), ACCESS_KEY, SECRET_KEY, 8))?;
    let names = ["challenge-ceph", "Fill level with an outage: into Ceph", "-ceph"];
    measure(on, names, archive, CEPH_BYTES, &mut |is_away| match is_away {
        true => Ok(ceph.stop_gateway()?),
        false => Ok(ceph.start_gateway()?),
    })
}

/// What was seen at one moment.
#[derive(Clone, Copy)]
struct Sample {
    seconds: f64,
    fill: f64,
    put: u64,
    moved: u64,
}

/// From a moment on, with the processor time of each process until then.
struct Phase {
    name: &'static str,
    samples: Vec<Sample>,
    spent: BTreeMap<String, f64>,
}

fn measure(
    on: &mut Measurement<'_>,
    [id, title, suffix]: [&'static str; 3],
    archive: Arc<dyn Storage>,
    room: u64,
    outage: &mut dyn FnMut(bool) -> Result<()>,
) -> Result<()> {
    let plan = on.plan;
    let alone = {
        let scene = Scene::new(plan, plan.move_bytes / 2, 1)?;
        scene.write(on.buffer, plan.move_bytes / 2, 1)?;
        scene.move_all(plan, archive.clone())?.rate()
    };
    // Catching up may take as long again as the outage.
    let seconds = (plan.followed + plan.outage * 2).as_secs_f64();
    let intake = plan.intake.unwrap_or(alone * INTAKE).min(room as f64 / seconds);
    let level = (intake * plan.outage.as_secs_f64() * 3.0) as u64 + 16 * plan.container_bytes;
    let scene = Scene::new(plan, level, 1)?;
    println!("{title}: a mover alone {:.1} MB/s, intake {:.1} MB/s", alone / 1e6, intake / 1e6);

    let stop = Arc::new(AtomicBool::new(false));
    let mover = scene.mover(plan, archive.clone(), false, &stop)?;
    let watch = Watch { scene: &scene, moved: &|| mover.moved().contents.payload_bytes, from: Instant::now() };
    let phases = std::thread::scope(|scope| -> Result<Vec<Phase>> {
        let readout = scope.spawn(|| read_out(&scene, on, intake, &stop).map_err(|error| error.to_string()));
        let moving = scope.spawn(|| mover.run(false, &mut |_, _| {}));
        let phases = watch.follow(plan.followed, plan.outage, outage);
        stop.store(true, Ordering::Relaxed);
        readout.join().map_err(|_| "readout panicked")??;
        moving.join().map_err(|_| "the mover panicked")??;
        phases
    })?;
    scene.settle()?;
    scene.stop_run()?;
    scene.move_all(plan, archive.clone())?;
    let (fragments, objects) = scene.audit(&archive)?;
    let catching =
        phases.iter().find(|phase| phase.name == CATCHING).map_or(f64::NAN, |phase| phase.rate(|at| at.moved));
    let mut table = Section::new(
        id,
        title,
        format!(
            "Intake {:.1} MB/s; a mover alone reached {:.1} MB/s just before. One mover, containers of {} MiB. *Catching up* ends when no \
             more is behind than before the outage; it begins with the pause that the mover has grown to. After the end: {fragments} fragments in {objects} \
             objects, all verified, nothing missing; {} claims were given back. Cores are averages over a phase.",
            intake / 1e6,
            alone / 1e6,
            plan.container_bytes >> 20,
            mover.moved().given_back
        ),
        &[
            "phase",
            "s",
            "intake MB/s",
            "moved MB/s",
            "fill first",
            "fill last",
            "cores here",
            "gateway",
            "OSD",
            "other daemons",
        ],
    );
    for phase in &phases {
        table.add(phase.row());
    }
    on.sections.push(table);
    on.goals.push(goal(format!("{title}: catching up, by intake"), Some(catching / intake), 2.0, false));
    on.plots.push(Plot { suffix, caption: title, svg: picture(&phases) });
    Ok(())
}

/// Puts and accepts events at this rate until it is stopped.
fn read_out(scene: &Scene, on: &Measurement<'_>, intake: f64, stop: &AtomicBool) -> Result<()> {
    let mut blocks = on.buffer.blocks(FRAGMENT_BYTES, Warmth::Cold, 0, 1);
    let from = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        let due = Duration::from_secs_f64(scene.put_bytes() as f64 / intake);
        std::thread::sleep(due.saturating_sub(from.elapsed()).min(SAMPLED));
        if from.elapsed() >= due {
            scene.accept(&mut blocks, "physics")?;
        }
    }
    Ok(())
}

const CATCHING: &str = "catching up";

/// Follows a scene.
struct Watch<'a> {
    scene: &'a Scene,
    moved: &'a dyn Fn() -> u64,
    from: Instant,
}

impl Watch<'_> {
    fn follow(
        &self,
        followed: Duration,
        outage: Duration,
        set: &mut dyn FnMut(bool) -> Result<()>,
    ) -> Result<Vec<Phase>> {
        let mut phases = vec![self.phase("balance", followed / 2, |_| false)?];
        let behind = |at: &Sample| at.put.saturating_sub(at.moved);
        // The start belongs to no balance: nothing is full yet.
        let half = phases[0].samples.len() / 2;
        let usual = phases[0].samples.iter().skip(half).map(behind).max().unwrap_or(0).max(EVENT_BYTES);
        set(true)?;
        phases.push(self.phase("outage", outage, |_| false)?);
        set(false)?;
        // Where the archive is too slow for the intake, it never ends by itself.
        phases.push(self.phase(CATCHING, followed.max(outage) * 4, |at| behind(at) <= usual)?);
        phases.push(self.phase("balance again", followed / 2, |_| false)?);
        Ok(phases)
    }

    fn phase(&self, name: &'static str, most: Duration, ended: impl Fn(&Sample) -> bool) -> Result<Phase> {
        let from = Instant::now();
        let before = processor::by_process()?;
        let mut samples = vec![self.sample()?];
        while from.elapsed() < most && !samples.last().is_some_and(&ended) {
            std::thread::sleep(SAMPLED.min(most));
            samples.push(self.sample()?);
        }
        let spent = processor::by_process()?.into_iter().map(|(name, after)| {
            let since = after - before.get(&name).copied().unwrap_or(0.0);
            (name, since.max(0.0))
        });
        Ok(Phase { name, samples, spent: spent.collect() })
    }

    fn sample(&self) -> Result<Sample> {
        let (put, moved) = (self.scene.put_bytes(), (self.moved)());
        Ok(Sample { seconds: self.from.elapsed().as_secs_f64(), fill: self.scene.fill()?, put, moved })
    }
}

impl Phase {
    fn seconds(&self) -> f64 {
        self.samples.last().zip(self.samples.first()).map_or(0.0, |(last, first)| last.seconds - first.seconds)
    }

    fn rate(&self, of: impl Fn(&Sample) -> u64) -> f64 {
        let bytes = self.samples.last().zip(self.samples.first()).map_or(0, |(last, first)| of(last) - of(first));
        bytes as f64 / self.seconds()
    }

    fn row(&self) -> Vec<serde_json::Value> {
        let fill = |sample: Option<&Sample>| json!(sample.map(|sample| sample.fill));
        let cores = |is: &dyn Fn(&str) -> bool| {
            let spent: Vec<f64> = self.spent.iter().filter(|(name, _)| is(name)).map(|(_, seconds)| *seconds).collect();
            json!((!spent.is_empty()).then(|| spent.iter().sum::<f64>() / self.seconds()))
        };
        vec![
            json!(self.name),
            json!(self.seconds()),
            json!(self.rate(|at| at.put) / 1e6),
            json!(self.rate(|at| at.moved) / 1e6),
            fill(self.samples.first()),
            fill(self.samples.last()),
            cores(&|name| name == processor::OWN),
            cores(&|name| name == "radosgw"),
            cores(&|name| name == "ceph-osd"),
            cores(&|name| name.starts_with("ceph-m")),
        ]
    }
}

/// Fill level, and bytes put and moved, by time.
fn picture(phases: &[Phase]) -> String {
    let samples: Vec<Sample> = phases.iter().flat_map(|phase| phase.samples.iter().copied()).collect();
    let thinned: Vec<Sample> = samples.iter().step_by((samples.len() / 200).max(1)).copied().collect();
    let marks: Vec<(f64, String)> = std::iter::once((0.0, "0 s".to_owned()))
        .chain(
            phases.iter().filter_map(|phase| phase.samples.last()).map(|at| (at.seconds, format!("{:.0}", at.seconds))),
        )
        .collect();
    let points = |of: &dyn Fn(&Sample) -> f64| thinned.iter().map(|at| (at.seconds, of(at))).collect::<Vec<_>>();
    let panel = |title: &str, lines| Panel {
        title: title.to_owned(),
        rightward: Rightward::Evenly,
        marks: marks.clone(),
        upward: Upward::FromZero,
        lines,
    };
    chart::svg(&[
        panel(
            "Fill level; marks: outage, its end, caught up, end",
            vec![line("fill", "#0072b2", points(&|at| at.fill))],
        ),
        panel(
            "Bytes put and archived",
            vec![
                line("put", "#000000", points(&|at| at.put as f64)),
                line("archived", "#009e73", points(&|at| at.moved as f64)),
            ],
        ),
    ])
}

/// A place that can be away: every call fails then, as one that does not answer in time.
#[derive(Debug)]
struct Switch {
    place: Arc<dyn Storage>,
    away: AtomicBool,
}

impl Switch {
    fn there(&self) -> forebay_core::Result<&dyn Storage> {
        match self.away.load(Ordering::Relaxed) {
            true => Err(Error::unavailable(format!("{} is away", self.place.url()))),
            false => Ok(self.place.as_ref()),
        }
    }
}

impl Storage for Switch {
    fn url(&self) -> &str {
        self.place.url()
    }

    fn get(&self, name: &str, bytes_max: u64) -> forebay_core::Result<Option<(Bytes, Tag)>> {
        self.there()?.get(name, bytes_max)
    }

    fn parts(&self, parts: &[Part]) -> forebay_core::Result<Vec<Bytes>> {
        self.there()?.parts(parts)
    }

    fn put(&self, objects: &[(String, Bytes)]) -> forebay_core::Result<()> {
        self.there()?.put(objects)
    }

    fn put_if(&self, name: &str, bytes: &Bytes, condition: Condition<'_>) -> forebay_core::Result<Put> {
        self.there()?.put_if(name, bytes, condition)
    }

    fn remove(&self, names: &[String]) -> forebay_core::Result<()> {
        self.there()?.remove(names)
    }

    fn age(&self, name: &str) -> forebay_core::Result<Option<Duration>> {
        self.there()?.age(name)
    }

    fn read_back(&self, name: &str, bytes_max: u64) -> forebay_core::Result<Option<Bytes>> {
        self.there()?.read_back(name, bytes_max)
    }

    fn compare_back(&self, name: &str, sent: &Bytes) -> forebay_core::Result<Back> {
        self.there()?.compare_back(name, sent)
    }

    fn list(&self, folder: &str) -> forebay_core::Result<Vec<String>> {
        self.there()?.list(folder)
    }

    fn traffic(&self) -> Traffic {
        self.place.traffic()
    }
}
