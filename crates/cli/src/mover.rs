//! `forebay move`: accepted events go to an archive; the store lets them go once it was proved to have them.

use crate::open::{Close, Place};
use crate::output::{Answer, Output};
use crate::{signal, units};
use forebay_core::{Error, Result};
use forebay_dataset::storage::Options;
use forebay_mover::{Archive, Moved, Mover, MoverOptions, News};
use serde_json::json;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const HELP: &str = "\
Move accepted events, and those of the debug stream, to an archive: s3://bucket/prefix, or dir:/path. A mover claims a full container, \
writes its events as objects, reads every object back from the archive and compares each fragment with the checksum that the readout \
gave it, names the object in the manifest of its run, and only then tells the store. From then on the container is in custody: it can \
be read, and goes after custody_min, or earlier when the warm level is short of space.

Any number of movers may work on one server, on any machines; a directory has one process. A mover that is killed leaves its container \
to another one after --claim; one that comes late is fenced, and names nothing twice. What nobody named counts for nothing; \
`forebay archive gc` removes it. With the archive away movers try again, with growing pauses; nothing in the store stops.

A container that is still being filled is moved when its run has ended, or --move-after it began. A store without a warm level is moved \
in batches of events, which are released with their proof.

S3 takes its keys and its server from AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_ENDPOINT_URL and AWS_REGION, or from AWS_PROFILE. \
A token of the server needs the rights read and archive.

Ctrl-C ends it between two requests; the claim is given back. --once ends when there is nothing left to claim: exit code 0, also if \
that was nothing.

The archive is made once (`forebay archive create`); a place without its id, such as a mount point without its disk, gets nothing. The store \
remembers which archive its events are in: for another one say --another-archive.

Example: until it is stopped; once, at most 200 MB/s; from a directory that nobody serves:
  forebay archive create s3://raw/2026
  forebay move --from tcp://daq01:7440 --to s3://raw/2026
  forebay move --from tcp://daq01:7440 --to s3://raw/2026 --once --limit 200M
  forebay move --from /tmp/first --to dir:/tmp/archive --once --move-after 0s";

/// Move accepted events to an archive, with proof.
#[derive(clap::Args)]
#[command(long_about = HELP)]
pub(crate) struct Move {
    #[command(flatten)]
    store: Place,
    /// The store, in place of PLACE: a directory, or the address of its server.
    // Only for the help, as --connect.
    #[arg(long, value_name = "PLACE")]
    from: Option<String>,
    /// The archive: s3://bucket/prefix, or dir:/path.
    #[arg(long, value_name = "URL")]
    to: String,
    /// End when there is nothing left to move.
    #[arg(long)]
    once: bool,
    /// Containers that are still being filled are moved this long after they began.
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = units::parse_duration)]
    move_after: Duration,
    /// Only what lies on this device of the store, by its number.
    #[arg(long, value_name = "N")]
    device: Option<u32>,
    /// Bytes a second to the archive, at most.
    #[arg(long, value_name = "BYTES", value_parser = units::parse_bytes)]
    limit: Option<u64>,
    /// Bytes at which an object is ended.
    #[arg(long, value_name = "BYTES", default_value = "128M", value_parser = units::parse_len)]
    object_bytes: usize,
    /// Containers that are moved beside each other, 1 to 64: each needs memory for an object of each stream.
    #[arg(long, value_name = "N", default_value_t = MoverOptions::default().lanes)]
    lanes: usize,
    /// How long a claim lasts when its mover is not heard of: 1 s to 1 h.
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = units::parse_duration)]
    claim: Duration,
    /// An event in several streams goes into an object of each.
    #[arg(long)]
    per_stream: bool,
    /// What the store had archived is in another archive, and from now on it goes to this one.
    #[arg(long)]
    another_archive: bool,
    /// Compute MD5 of each object too, beside Adler-32: some 2 s of a processor for each GB.
    #[arg(long)]
    md5: bool,
}

/// How often a long move says how far it is.
const PROGRESS: Duration = Duration::from_secs(10);

impl Move {
    pub(crate) fn run(&self, out: &mut Output) -> Result<Answer> {
        if !(Duration::from_secs(1)..=Duration::from_secs(3600)).contains(&self.claim) {
            return Err(Error::invalid(format!("--claim {:?}: 1s to 1h", self.claim)));
        }
        if self.object_bytes < 64 << 10 || self.object_bytes > 4 << 30 {
            return Err(Error::invalid(format!("--object-bytes {}: 64K to 4G", self.object_bytes)));
        }
        if !(1..=64).contains(&self.lanes) {
            return Err(Error::invalid(format!("--lanes {}: 1 to 64", self.lanes)));
        }
        let options = MoverOptions {
            lanes: self.lanes,
            another_archive: self.another_archive,
            move_after: self.move_after,
            device: self.device,
            claim: self.claim,
            object_bytes: self.object_bytes,
            per_stream: self.per_stream,
            md5: self.md5,
            bytes_per_second: self.limit,
            ..MoverOptions::default()
        };
        let archive = Archive::open(&self.to, &Options::default())?;
        let store = self.store.open(out)?;
        let stop = signal::stop_flag()?;
        let mover = Mover::new(store.clone(), archive, options, stop.clone());
        let (mut told, mut said) = (Instant::now(), String::new());
        let done = mover.run(self.once, &mut |moved, news| {
            let words = match news {
                News::Again(error) if stop.load(Ordering::Relaxed) => format!("ending: {}", error.message()),
                News::Again(error) => format!("{error}; trying again"),
                News::SetBack(what) => what.to_owned(),
                News::Proved => format!("{} so far", describe(moved)),
            };
            // What fails in the same way again and again is progress of its own kind.
            if (matches!(news, News::Proved) || words == said) && told.elapsed() < PROGRESS {
                return;
            }
            out.note(format!("forebay: {words}"));
            (told, said) = (Instant::now(), words);
        });
        let moved = mover.moved();
        let interrupted = stop.load(Ordering::Relaxed);
        store.close()?;
        out.json(&json!({ "to": self.to, "moved": moved, "complete": done.is_ok() && !interrupted }))?;
        out.line(format!("moved {}", describe(&moved)))?;
        match done {
            // Asked to end, it ended in order: what it was at was given back.
            _ if interrupted => Ok(Answer::Interrupted),
            Ok(_) => Ok(Answer::Yes),
            Err(error) => Err(error),
        }
    }
}

fn describe(moved: &Moved) -> String {
    format!(
        "{} with {} in {}, {}; {} proved",
        units::plural(moved.contents.events, "event"),
        units::bytes(moved.contents.payload_bytes),
        units::plural(moved.objects, "object"),
        units::bytes(moved.object_bytes),
        moved.proved
    )
}
