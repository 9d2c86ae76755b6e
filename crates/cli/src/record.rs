//! `forebay record`: links at their real rate, straight to containers; or rings that are there.
//!
//! *Not here*: the recording itself (`forebay_daq::record`); this file is its command line.

use crate::connect::Identity;
use crate::open::{OpenedRing, Place};
use crate::output::{Answer, Output};
use crate::{levels, ring, scenario, units};
use forebay_core::{Either, Error, Result};
use forebay_daq::frames::FrameKind;
use forebay_daq::record::{self, RecordChoices, RecordDir, RecordSummary, Retroactive, RingChoices, RingSpan};
use forebay_daq::{Summary, Told};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

const HELP: &str = "\
Links go straight to preallocated containers, past memory levels and page cache: one thread per directory writes what its \
links send, in extents of about 8 MiB per link, and makes it durable every second. Each --warm DIR is one device; links are \
spread over them, and a link whose device is full or fails goes on to another one.

Links keep their rate and wait for nobody. What the devices do not take in time is missed, and the gap manifest says so: \
every stretch of ticks of every link that is missing, why, and totals that add up to what the links produced \
(DIR/manifest.json, docs/format-manifest.md). It is written when all containers are closed durably. If the process dies \
before, forebay play rebuilds it from the containers.

Without --input an emulator makes the frames: WIBEth (7200 B, 219.7 MB/s per link) or WIB1 (superchunks of 12, 928 MB/s). \
With it, recorded frames are replayed on every link, timestamps rewritten.

With --last the recording begins before its trigger, as for a supernova burst: links fill a ring, the trigger falls, and what \
the ring holds of the last seconds and what comes in the next go to the devices, while the ring keeps the rest for them. It \
is refused where the devices take less than the links send, or have not the room. The links are this command's.

With PLACEs the rings there are recorded instead: on servers, by address or by the directory that is served, or in directories \
that nobody serves. There is one trigger for all of them, --at TICK or the newest tick that one of them has, and one range of \
ticks: --last before it and --next after it, or --ticks. The bytes come over the network to the devices of this command; what is \
asked for is pinned on the servers meanwhile. All of them have one detector clock, and no source twice. Of a ring that nobody \
serves only what is there can be recorded.

Example: two links for ten seconds; a readout unit over two disks, 1 TiB each; as fast as the device goes; real frames:
  forebay record --warm /data/rec1
  forebay record --warm /disk1/rec:1T --warm /disk2/rec:1T --links 48 --seconds 100
  forebay record --warm /data/rec2:16G --fast --seconds 10
  forebay record --warm /data/rec3 --links 1 --input frames.bin
  forebay record --warm /data/burst --last 10s --next 90s
  forebay play /data/rec1 --verify

The last ten seconds of two readout units, and the next five, with one trigger; ticks of a ring's directory:
  forebay record tcp://readout1:7440 tcp://readout2:7440 --last 10s --next 5s --warm /data/burst
  forebay record /dev/shm/links --ticks 62500000..125000000 --warm /data/some

Exit code 0 means that every frame is durable; 1 that some were missed (the manifest says which); 130 that Ctrl-C ended \
it, consistently and with a manifest.";

/// Record links straight to containers, with a manifest of every gap.
#[derive(clap::Args)]
#[command(long_about = HELP)]
pub(crate) struct Record {
    /// Rings to record: directories, or addresses of their servers, such as tcp://HOST:PORT. Several have one trigger.
    #[arg(value_name = "PLACE", conflicts_with_all = ["links", "seconds", "input", "fast", "threads", "after", "ring", "rate_scale", "seed"])]
    places: Vec<PathBuf>,
    /// Directory of a device, created if it does not exist; with a size, such as /disk1/rec:100G, by default as much as is needed.
    #[arg(long, value_name = "DIR[:SIZE]", required = true, value_parser = parse_dir)]
    warm: Vec<RecordDir>,
    /// Links.
    #[arg(long, value_name = "N", default_value_t = 2)]
    links: u32,
    /// How long.
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0)]
    seconds: f64,
    /// Emulated frames: wibeth or wib1; wibeth when not given. Of rings: what their fragments are, for `forebay play --verify`.
    #[arg(long, value_name = "FORMAT", value_parser = parse_format)]
    format: Option<FrameKind>,
    /// Recorded detector frames to replay (WIB1 of 464 B or WIBEth of 7200 B).
    #[arg(long, value_name = "FILE", conflicts_with = "format")]
    input: Option<PathBuf>,
    /// As fast as the devices go, instead of the links' rate; ends early where they are full.
    #[arg(long)]
    fast: bool,
    /// Threads that read links out; one per two cores when not given.
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Run number.
    #[arg(long, value_name = "RUN", default_value_t = 1)]
    run: u64,
    /// Name, for people.
    #[arg(long, value_name = "NAME", default_value = "recording")]
    name: String,
    /// Memory per link for when the device is slow; 64M are 290 ms of WIBEth.
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = units::parse_bytes)]
    buffer: u64,
    /// How long a frame waits for the device before it is missed; of rings, how long after its time a tick may still come.
    #[arg(long, value_name = "DURATION", value_parser = units::parse_duration)]
    patience: Option<Duration>,
    /// Begin so long before the trigger: links go to a ring until then.
    #[arg(long, value_name = "DURATION", value_parser = units::parse_duration, conflicts_with_all = ["fast", "seconds"])]
    last: Option<Duration>,
    /// End so long after the trigger.
    #[arg(long, value_name = "DURATION", value_parser = units::parse_duration, requires = "last")]
    next: Option<Duration>,
    /// When the trigger falls, from the first frame on; as soon as the ring holds what --last asks for when not given.
    #[arg(long, value_name = "DURATION", value_parser = units::parse_duration, requires = "last")]
    after: Option<Duration>,
    /// Directory of the ring, kept afterwards; shared memory when not given.
    #[arg(long, value_name = "DIR", requires = "last")]
    ring: Option<PathBuf>,
    /// Link time per time: 1 is the links' own rate.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    rate_scale: f64,
    /// Links stay with their device, also where it is full or fails.
    #[arg(long)]
    no_spill: bool,
    /// Ticks to record of rings, instead of --last and --next.
    #[arg(long, value_name = "FROM..TO", value_parser = ring::parse_ticks, requires = "places", conflicts_with = "last")]
    ticks: Option<(u64, u64)>,
    /// The tick of the trigger; the newest that one of the rings has when not given.
    #[arg(long, value_name = "TICK", requires_all = ["places", "last"])]
    at: Option<u64>,
    #[command(flatten)]
    identity: Identity,
    /// Seed of emulated frames.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

impl Record {
    pub(crate) fn run(&self, out: &mut Output) -> Result<Answer> {
        if self.places.is_empty() { self.links(out) } else { self.rings(out) }
    }

    fn rings(&self, out: &mut Output) -> Result<Answer> {
        let open = |place: &PathBuf| Place::of(place, &self.identity).ring(out);
        let rings = self.places.iter().map(open).collect::<Result<Vec<OpenedRing>>>()?;
        let still = rings.iter().all(|ring| matches!(ring, Either::Here(_)));
        let span = match (self.ticks, self.last) {
            (Some((begin, end)), _) => RingSpan::Ticks(begin, end),
            (None, Some(last)) => RingSpan::Trigger { at: self.at, last, next: self.next.unwrap_or_default() },
            (None, None) => return Err(Error::invalid("which ticks? --last DURATION, or --ticks FROM..TO")),
        };
        let choices = RingChoices {
            dirs: self.warm.clone(),
            span,
            still,
            format: self.format.map(|format| format.name().to_owned()).unwrap_or_default(),
            ticks_per_fragment: self.format.and_then(|format| u32::try_from(format.ticks()).ok()),
            run: self.run,
            name: self.name.clone(),
            buffer_bytes_per_link: self.buffer,
            patience: self.patience,
            spill: !self.no_spill,
        };
        self.report(out, |stop, told| record::record_rings(&rings, &choices, stop, told))
    }

    fn links(&self, out: &mut Output) -> Result<Answer> {
        let base = RecordChoices::default();
        let choices = RecordChoices {
            dirs: self.warm.clone(),
            links: self.links,
            seconds: self.seconds,
            format: self.format.unwrap_or(base.format),
            input: self.input.clone(),
            fast: self.fast,
            threads: self.threads.unwrap_or(base.threads),
            run: self.run,
            name: self.name.clone(),
            seed: self.seed,
            buffer_bytes_per_link: self.buffer,
            push_deadline: self.patience,
            spill: !self.no_spill,
            rate_scale: self.rate_scale,
            retroactive: self.last.map(|last| Retroactive {
                last,
                next: self.next.unwrap_or_default(),
                after: self.after,
                ring: self.ring.clone(),
            }),
        };
        self.report(out, |stop, told| record::run(&choices, stop, told))
    }

    fn report(
        &self,
        out: &mut Output,
        recording: impl FnOnce(&AtomicBool, &mut Told<'_>) -> Result<RecordSummary>,
    ) -> Result<Answer> {
        let (summary, stopped) = scenario::execute(out, recording)?;
        scenario::report(out, &summary)?;
        let first = self.warm.first().map(|dir| dir.path.display().to_string()).unwrap_or_default();
        out.line(format!("manifest: {first}/manifest.json"))?;
        Ok(summary.verdict(stopped).into())
    }
}

fn parse_dir(text: &str) -> std::result::Result<RecordDir, String> {
    levels::parse_dir(text).map(|dir| RecordDir { path: dir.path, bytes: dir.bytes })
}

fn parse_format(text: &str) -> Result<FrameKind> {
    FrameKind::ALL
        .into_iter()
        .find(|kind| kind.name().eq_ignore_ascii_case(text))
        .ok_or_else(|| Error::invalid(format!("no frames `{text}`: expected wibeth or wib1")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_known_whatever_their_case() {
        assert_eq!(parse_format("wib1").unwrap(), FrameKind::Wib1);
        assert_eq!(parse_format("WIBEth").unwrap(), FrameKind::WibEth);
        assert!(parse_format("tde").is_err());
    }
}
