//! Playing a recording: frames of chosen links and ticks in order, checked, and written out where that is wanted.

use super::check::FrameChecker;
use crate::scenario::Summary;
use forebay_core::{Error, Result};
use forebay_recorder::{Continuity, GapManifest, ManifestGap, Playback, Recording};
use serde::Serialize;
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Errors that are kept word for word.
const ERRORS_MAX: usize = 20;

/// Which ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlayWindow {
    /// From one tick up to another, which is not in it.
    Ticks(u64, u64),
    /// The last so long, of each link by its own clock.
    Last(Duration),
}

/// Choices of a player.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlayChoices {
    /// All directories of the recording.
    pub dirs: Vec<PathBuf>,
    /// Links by number; `None` takes all.
    pub links: Option<Vec<u32>>,
    /// Which ticks.
    pub window: PlayWindow,
    /// Compare containers with the manifest, and frames with what they say of themselves.
    pub verify: bool,
    /// Serve what is left where devices or data are missing.
    pub accept_loss: bool,
}

/// What came of one link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PlayLink {
    /// Its number.
    pub link: u32,
    /// Its name.
    pub name: String,
    /// First tick of the window.
    pub begin: u64,
    /// Tick after the last one.
    pub end: u64,
    /// Frames that overlap it.
    pub frames: u64,
    /// Their payload bytes.
    pub bytes: u64,
    /// Frames that could not be read or are not what they should be.
    pub errors: u64,
    /// Gaps of the manifest that overlap it.
    pub gaps: Vec<ManifestGap>,
}

/// What a player found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PlaySummary {
    /// Links in the order in which they were played.
    pub links: Vec<PlayLink>,
    /// Frames of all of them.
    pub frames: u64,
    /// Their payload bytes.
    pub bytes: u64,
    /// Time for reading and checking, in nanoseconds.
    pub elapsed_ns: u64,
    /// The manifest was made from the containers: the process that recorded wrote none.
    pub rebuilt: bool,
    /// Frames that could not be read or are not what they should be.
    pub errors_total: u64,
    /// The first of them, in words.
    pub errors: Vec<String>,
    /// Where containers and manifest differ; `None` where that was not asked for.
    pub differences_total: Option<u64>,
    /// The first of them, in words.
    pub differences: Vec<String>,
    /// What was durable and is gone; empty unless the loss was accepted.
    pub losses: Vec<String>,
    /// It was stopped before its end.
    pub stopped: bool,
}

impl Summary for PlaySummary {
    fn claim(&self) -> &'static str {
        match self.differences_total {
            Some(_) => "verified: every frame is right, and what is missing is what the manifest says",
            None => "readable: every checksum matches",
        }
    }

    fn problems(&self) -> Vec<String> {
        let differences = self.differences_total.unwrap_or(0);
        let totals = (self.errors_total + differences > 0)
            .then(|| format!("wrong frames: {}, differences from the manifest: {differences}", self.errors_total));
        let losses = self.losses.iter().map(|loss| format!("lost: {loss}"));
        totals.into_iter().chain(losses).collect()
    }

    fn is_judged_when_stopped(&self) -> bool {
        false
    }
}

/// Plays a recording. Payloads go to `output`, link after link. The manifest is shown to `opened` before the first frame.
///
/// # Errors
/// `Invalid` for links that are not there; the errors of opening the recording; `Unavailable` where `output` fails.
/// Frames that are not right are not an error: they are in the summary.
pub fn play(
    choices: &PlayChoices,
    stop: &AtomicBool,
    output: Option<&mut dyn Write>,
    opened: &mut dyn FnMut(&GapManifest),
) -> Result<PlaySummary> {
    let playback = Recording::open(&choices.dirs, choices.accept_loss)?;
    opened(playback.manifest());
    let all: Vec<u32> = (0..playback.manifest().links.len() as u32).collect();
    let links = choices.links.clone().unwrap_or(all);
    let continuity = choices.verify.then(|| playback.continuity());
    let start = Instant::now();
    let mut player = Player { choices, stop, playback: &playback, output, summary: summary(&playback, continuity) };
    for link in links {
        player.link(link)?;
    }
    let mut summary = player.summary;
    summary.frames = summary.links.iter().map(|link| link.frames).sum();
    summary.bytes = summary.links.iter().map(|link| link.bytes).sum();
    summary.elapsed_ns = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
    summary.stopped = stop.load(Ordering::Relaxed);
    Ok(summary)
}

fn summary(playback: &Playback, continuity: Option<Continuity>) -> PlaySummary {
    PlaySummary {
        links: Vec::new(),
        frames: 0,
        bytes: 0,
        elapsed_ns: 0,
        rebuilt: playback.manifest().rebuilt,
        errors_total: 0,
        errors: Vec::new(),
        differences_total: continuity.as_ref().map(|continuity| continuity.differences_total),
        differences: continuity.map(|continuity| continuity.differences).unwrap_or_default(),
        losses: playback.losses().to_vec(),
        stopped: false,
    }
}

struct Player<'a, 'o> {
    choices: &'a PlayChoices,
    stop: &'a AtomicBool,
    playback: &'a Playback,
    output: Option<&'o mut dyn Write>,
    summary: PlaySummary,
}

impl Player<'_, '_> {
    fn link(&mut self, number: u32) -> Result<()> {
        let (begin, end) = self.window(number)?;
        let frames = self.playback.window(begin, end, &[number])?;
        let Some(told) = self.playback.manifest().links.get(number as usize) else {
            return Err(Error::invalid(format!("no link {number}")));
        };
        let overlaps = |gap: &&ManifestGap| gap.begin < end && begin < gap.end;
        let mut link = PlayLink {
            link: number,
            name: told.config.name.clone(),
            begin,
            end,
            frames: 0,
            bytes: 0,
            errors: 0,
            gaps: told.gaps.iter().filter(overlaps).copied().collect(),
        };
        let mut checker = FrameChecker::new(if self.choices.verify { &told.config.format } else { "" });
        let mut era = None;
        for frame in frames {
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
            let checked = frame.and_then(|frame| {
                if era.replace(frame.era) != Some(frame.era) {
                    checker.begin_era();
                }
                checker.check(frame.tick, frame.span, frame.bytes())?;
                Ok(frame)
            });
            match checked {
                Ok(frame) => {
                    link.frames += 1;
                    link.bytes += frame.bytes().len() as u64;
                    if let Some(output) = &mut self.output {
                        let failed = |error| Error::unavailable("cannot write the output").with_source(error);
                        output.write_all(frame.bytes()).map_err(failed)?;
                    }
                }
                Err(error) => {
                    link.errors += 1;
                    self.summary.errors_total += 1;
                    if self.summary.errors.len() < ERRORS_MAX {
                        self.summary.errors.push(format!("{}: {error}", link.name));
                    }
                }
            }
        }
        self.summary.links.push(link);
        Ok(())
    }

    /// The ticks to play of a link.
    fn window(&self, number: u32) -> Result<(u64, u64)> {
        let recorded = self.playback.ticks(&[number])?;
        match self.choices.window {
            PlayWindow::Ticks(begin, end) => Ok((begin, end)),
            PlayWindow::Last(time) => {
                let plan = self.playback.manifest().links.get(number as usize).map(|link| &link.config);
                let per_second = plan.map_or(0, |plan| plan.ticks_per_second);
                if per_second == 0 {
                    return Err(Error::invalid(format!(
                        "link {number}: how many ticks a second has is not recorded; name ticks instead of a time"
                    )));
                }
                let ticks = time.as_nanos().saturating_mul(u128::from(per_second)) / 1_000_000_000;
                let end = recorded.map_or(0, |(_, end)| end);
                Ok((end.saturating_sub(u64::try_from(ticks).unwrap_or(u64::MAX)), end))
            }
        }
    }
}
