//! `forebay archive`: what movers wrote: looked at, compared, read back, put into a store again.
//!
//! ```text
//! create, ls, show, get, cat, verify, gc, rebuild ──▶ the archive alone          audit, restore ──▶ the archive and a store
//! ```

use crate::dataset::progress::Progress;
use crate::open::{Close, Place};
use crate::output::{Answer, Output, hex_dump};
use crate::{signal, units};
use clap::Subcommand;
use forebay_core::{Error, KeySchema, Result};
use forebay_dataset::storage::Options;
use forebay_mover::{Archive, Fault, Manifest, ManifestObject, Restore, WholeEvent, audit, restore};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

const HELP: &str = "\
Archives that `forebay move` writes. An archive is made once, and has an id; movers refuse a place without it, such as a mount point without \
its disk. It has a manifest for each run, and the objects that it names; each object reads without anything else. A URL is \
s3://bucket/prefix, dir:/path or a path.

Example: a new archive; what is there; what a run has, for a data management system; one event; all checksums; the run against its ledger:
  forebay archive create dir:/tmp/archive --name 2026
  forebay archive ls dir:/tmp/archive
  forebay archive ls dir:/tmp/archive 7 --json
  forebay archive show dir:/tmp/archive 7/42
  forebay archive verify dir:/tmp/archive
  forebay archive audit tcp://daq01:7440 s3://raw/2026 7";

/// Look at archives, verify them, take events out, restore runs.
#[derive(clap::Args)]
#[command(long_about = HELP)]
pub(crate) struct Command {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    Create(Create),
    Ls(Ls),
    Show(Show),
    Get(Get),
    Cat(Cat),
    Verify(Verify),
    Restore(RestoreRun),
    Audit(Audit),
    Gc(Gc),
    Rebuild(Rebuild),
}

impl Command {
    pub(crate) fn run(&self, out: &mut Output) -> Result<Answer> {
        match &self.action {
            // A run that is restored in part is ended in order.
            Action::Restore(command) => return command.run(out),
            _ => signal::exit_at_once()?,
        }
        match &self.action {
            Action::Create(command) => command.run(out),
            Action::Ls(command) => command.run(out),
            Action::Show(command) => command.run(out),
            Action::Get(command) => command.run(out),
            Action::Cat(command) => command.run(out),
            Action::Verify(command) => command.run(out),
            Action::Audit(command) => command.run(out),
            Action::Gc(command) => command.run(out),
            Action::Rebuild(command) => command.run(out),
            Action::Restore(_) => Err(Error::internal("a command that ran already")),
        }
    }
}

fn open(url: &str) -> Result<Archive> {
    Archive::open(url, &Options::default())
}

const CREATE_HELP: &str = "\
Make an archive of a place: write its id, which movers look for before they name anything. Done once for each place; the id is random, the \
name is for people. A place with runs, from before archives had ids, is taken with --adopt, after every object was verified.

Example:
  forebay archive create s3://raw/2026 --name raw-2026
  forebay archive create /mnt/archive --adopt";

/// Make an archive of a place.
#[derive(clap::Args)]
#[command(long_about = CREATE_HELP)]
struct Create {
    /// The archive: s3://bucket/prefix, or dir:/path.
    url: String,
    /// What people call it.
    #[arg(long, value_name = "NAME", default_value = "")]
    name: String,
    /// Verify what is there and take it.
    #[arg(long)]
    adopt: bool,
}

impl Create {
    fn run(&self, out: &mut Output) -> Result<Answer> {
        let archive = open(&self.url)?;
        let made = match self.adopt {
            false => archive.create(&self.name)?,
            true => {
                let progress = Progress::start(out, "verifying");
                archive.adopt(&self.name, &mut |done, all| progress.set(done, all, "objects"))?
            }
        };
        out.json(&json!({ "url": self.url, "archive": made }))?;
        out.line(format!("{} is the archive {made}", self.url))?;
        Ok(Answer::Yes)
    }
}

const NO_RUNS: &str =
    "no runs are listed here; a bucket that does not let itself be listed looks the same: name the run";

/// List runs, or the objects of a run with name, bytes, adler32, md5, run, stream and lumi range.
#[derive(clap::Args)]
struct Ls {
    /// The archive: s3://bucket/prefix, or dir:/path.
    url: String,
    /// Only this run, with its objects.
    run: Option<u64>,
}

impl Ls {
    fn run(&self, out: &mut Output) -> Result<Answer> {
        let archive = open(&self.url)?;
        let Some(run) = self.run else {
            let (mut all, mut problems) = (Vec::new(), Vec::new());
            for run in archive.runs()? {
                // One that is damaged keeps no other from being listed.
                let manifest = match archive.manifest_there(run) {
                    Ok(manifest) => manifest,
                    Err(error) => {
                        problems.push(in_words(&Fault::of_manifest(run, error)?));
                        continue;
                    }
                };
                let (objects, bytes) = (manifest.objects.len() as u64, sum(&manifest, |object| object.bytes));
                let events = sum(&manifest, |object| object.contents.events);
                out.line(format!(
                    "run {run:<10} {:>14} {:>10} {:>18}",
                    units::plural(objects, "object"),
                    units::bytes(bytes),
                    units::plural(events, "event")
                ))?;
                all.push(json!({ "run": run, "objects": objects, "bytes": bytes, "events": events }));
            }
            if all.is_empty() && problems.is_empty() {
                out.line(NO_RUNS)?;
            }
            problems.iter().try_for_each(|problem| out.line(problem))?;
            out.json(&json!({ "url": self.url, "runs": all, "problems": problems }))?;
            return Ok(Answer::found(!all.is_empty() && problems.is_empty()));
        };
        let manifest = archive.manifest_there(run)?;
        for object in &manifest.objects {
            let lumi = object.lumi.map_or_else(String::new, |(low, high)| format!("  lumi {low} to {high}"));
            out.line(format!(
                "{}  {}  adler32 {}  {}  {}{lumi}",
                object.name,
                units::bytes(object.bytes),
                object.adler32,
                object.stream,
                units::plural(object.contents.events, "event")
            ))?;
        }
        let objects: Vec<Value> = manifest.objects.iter().map(|object| with_run(run, object)).collect();
        out.json(&json!({ "url": self.url, "run": run, "keyspace": manifest.keyspace, "objects": objects }))?;
        Ok(Answer::found(!manifest.objects.is_empty()))
    }
}

fn in_words(fault: &Fault) -> String {
    format!("{}: {}", fault.name, fault.what)
}

/// An object as data management systems register it: its run beside what the manifest says.
fn with_run(run: u64, object: &ManifestObject) -> Value {
    let mut value = json!(object);
    value["run"] = json!(run);
    value
}

fn sum(manifest: &Manifest, of: impl Fn(&ManifestObject) -> u64) -> u64 {
    manifest.objects.iter().map(of).sum()
}

/// An event of an archive.
#[derive(clap::Args)]
struct Named {
    /// The archive: s3://bucket/prefix, or dir:/path.
    url: String,
    /// The event, such as 7/42.
    event: String,
}

impl Named {
    /// The event whole, with the keys of its archive.
    fn read(&self) -> Result<Option<(WholeEvent, KeySchema)>> {
        let archive = open(&self.url)?;
        let run = self.event.split('/').next().and_then(|run| run.parse().ok());
        let run = run.ok_or_else(|| Error::invalid(format!("`{}` is no event: give it as RUN/EVENT", self.event)))?;
        let manifest = archive.manifest_there(run)?;
        let Some(first) = manifest.objects.first() else { return Ok(None) };
        let schema = archive.object(run, first)?.keyspace.schema;
        let event = archive.event(&manifest, &schema.parse_primary(&self.event)?)?;
        Ok(event.map(|event| (event, schema)))
    }

    fn absent(&self, out: &mut Output) -> Result<Answer> {
        out.note(format!("forebay: the archive has nothing of event {}", self.event));
        out.json(&json!({ "event": self.event, "found": false }))?;
        Ok(Answer::No)
    }
}

/// Show an event: streams, attributes, and its fragments with their checksums, all compared.
#[derive(clap::Args)]
struct Show {
    #[command(flatten)]
    named: Named,
}

impl Show {
    fn run(&self, out: &mut Output) -> Result<Answer> {
        let Some((whole, schema)) = self.named.read()? else { return self.named.absent(out) };
        let event = &whole.event;
        let streams: Vec<&str> = event.streams.iter().map(|(name, _)| name.as_str()).collect();
        let fragment = |fragment: &forebay_mover::Fragment| {
            json!({
                "source": schema.source_text(fragment.source.as_bytes()),
                "bytes": fragment.payload.end - fragment.payload.start,
                "crc32c": format!("{:08x}", fragment.checksum),
                "status": fragment.status,
                "version": fragment.version,
            })
        };
        let fragments: Vec<Value> = event.fragments.iter().map(fragment).collect();
        out.json(&json!({
            "event": schema.text(event.primary.as_bytes()),
            "found": true,
            "state": event.state,
            "stage": event.stage,
            "streams": streams,
            "event_fragments": event.event_fragments,
            "fragments": fragments,
        }))?;
        out.line(format!(
            "event {} · {} · {} · {} of {}",
            schema.text(event.primary.as_bytes()),
            event.state.name(),
            streams.join(", "),
            event.fragments.len(),
            units::plural(u64::from(event.event_fragments), "fragment")
        ))?;
        for fragment in &event.fragments {
            out.line(format!(
                "  source {:<12} {:>10} B  crc32c {:08x}  status {}  version {}",
                schema.source_text(fragment.source.as_bytes()),
                fragment.payload.end - fragment.payload.start,
                fragment.checksum,
                fragment.status,
                fragment.version
            ))?;
        }
        Ok(Answer::found(event.fragments.len() >= event.event_fragments as usize))
    }
}

/// Write the fragments of an event as files, one for each source.
#[derive(clap::Args)]
struct Get {
    #[command(flatten)]
    named: Named,
    /// Directory for the files, which is made.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

impl Get {
    fn run(&self, out: &mut Output) -> Result<Answer> {
        let Some((whole, schema)) = self.named.read()? else { return self.named.absent(out) };
        let failed = |error| Error::invalid(format!("{} cannot be written", self.out.display())).with_source(error);
        std::fs::create_dir_all(&self.out).map_err(failed)?;
        let mut files = Vec::new();
        for (fragment, payload) in whole.event.fragments.iter().zip(&whole.payloads) {
            let name = schema.source_text(fragment.source.as_bytes()).replace('/', "-");
            std::fs::write(self.out.join(&name), payload).map_err(failed)?;
            files.push(name);
        }
        out.line(format!("{} in {}", units::plural(files.len() as u64, "file"), self.out.display()))?;
        out.json(&json!({ "event": self.named.event, "found": true, "files": files }))?;
        Ok(Answer::Yes)
    }
}

/// Write the bytes of one source of an event to stdout; on a terminal as hexadecimal digits.
#[derive(clap::Args)]
struct Cat {
    #[command(flatten)]
    named: Named,
    /// The source, such as 3.
    source: String,
}

impl Cat {
    fn run(&self, out: &mut Output) -> Result<Answer> {
        let Some((whole, schema)) = self.named.read()? else { return self.named.absent(out) };
        let source = schema.parse_source(&self.source)?;
        let found = whole.event.fragments.iter().position(|fragment| fragment.source == source);
        let Some(at) = found else {
            out.note(format!("forebay: event {} has no source {}", self.named.event, self.source));
            return Ok(Answer::No);
        };
        if out.is_terminal() {
            for line in hex_dump(&whole.payloads[at]) {
                out.line(line)?;
            }
        } else {
            out.bytes(&whole.payloads[at])?;
        }
        Ok(Answer::Yes)
    }
}

/// Read every object that manifests name, compare all checksums, and name what is damaged. Exit code 1 for damage.
#[derive(clap::Args)]
struct Verify {
    /// The archive: s3://bucket/prefix, or dir:/path.
    url: String,
    /// Only this run.
    run: Option<u64>,
}

impl Verify {
    fn run(&self, out: &mut Output) -> Result<Answer> {
        let archive = open(&self.url)?;
        let runs = self.run.map_or_else(|| archive.runs(), |run| Ok(vec![run]))?;
        let (mut problems, mut objects, mut bytes) = (Vec::new(), 0, 0);
        if runs.is_empty() {
            problems.push(format!("{}: {NO_RUNS}", self.url));
        }
        let progress = Progress::start(out, "verifying");
        for run in runs {
            let manifest = match archive.manifest_there(run) {
                Ok(manifest) => manifest,
                Err(error) if self.run.is_none() => {
                    problems.push(in_words(&Fault::of_manifest(run, error)?));
                    continue;
                }
                Err(error) => return Err(error),
            };
            let all = manifest.objects.len() as u64;
            for (at, object) in (1..).zip(&manifest.objects) {
                if let Err(error) = archive.verify(run, object) {
                    // What does not answer says nothing about the object.
                    if !matches!(error.kind(), forebay_core::Kind::Corrupt | forebay_core::Kind::Invalid) {
                        return Err(error);
                    }
                    problems.push(format!("{}: {}", object.name, error.message()));
                }
                (objects, bytes) = (objects + 1, bytes + object.bytes);
                progress.set(at, all, &format!("objects of run {run}"));
            }
        }
        drop(progress);
        out.json(&json!({ "url": self.url, "objects": objects, "bytes": bytes, "problems": problems }))?;
        out.line(format!("{}, {}", units::plural(objects, "object"), units::bytes(bytes)))?;
        out.problems(&problems)
    }
}

const RESTORE_HELP: &str = "\
Put all events of an archived run into a store again, under another run number: keys but for the run, attributes, status and checksums \
as archived. The events are ready; with --stage, in that stage of the selection. A run that the store knows is refused. The keyspace \
must have the same keys and attributes.

Example:
  forebay archive restore /tmp/second dir:/tmp/archive 7 --as-run 1007 --stage final";

/// Put the events of an archived run into a store, as another run.
#[derive(clap::Args)]
#[command(long_about = RESTORE_HELP)]
struct RestoreRun {
    #[command(flatten)]
    store: Place,
    /// The archive: s3://bucket/prefix, or dir:/path.
    url: String,
    /// The run in the archive.
    run: u64,
    /// The run in the store.
    #[arg(long, value_name = "N")]
    as_run: u64,
    /// Stage of the selection in which the events become ready; the first one when not given.
    #[arg(long, value_name = "NAME")]
    stage: Option<String>,
}

impl RestoreRun {
    fn run(&self, out: &mut Output) -> Result<Answer> {
        let archive = open(&self.url)?;
        let store = self.store.open(out)?;
        let stop = signal::stop_flag()?;
        let progress = Progress::start(out, "restoring");
        let how = Restore { run: self.run, as_run: self.as_run, stage: self.stage.clone() };
        let all = sum(&archive.manifest_there(self.run)?, |object| object.contents.events);
        let done = restore(&archive, &store, &how, &mut |done| {
            progress.set(done.events, all.max(done.events), "events");
            !stop.load(Ordering::Relaxed)
        })?;
        drop(progress);
        store.close()?;
        let complete = !stop.load(Ordering::Relaxed);
        out.json(&json!({ "run": self.run, "as_run": self.as_run, "restored": done, "complete": complete }))?;
        out.line(format!(
            "restored {} with {}, {}, as run {}",
            units::plural(done.events, "event"),
            units::plural(done.fragments, "fragment"),
            units::bytes(done.payload_bytes),
            self.as_run
        ))?;
        Ok(if complete { Answer::Yes } else { Answer::Interrupted })
    }
}

const AUDIT_HELP: &str = "\
Set what the archive has of a run against the run's ledger, fragment for fragment: what is released or in custody has to be in the \
archive. Reads every directory of the run's objects, no payload (`verify` does that). Exit code 1 where something is missing.

More in the archive than was let go is no problem: it was archived and is not proved yet, or was removed from the store since. Less \
is one, unless an operator released events by hand (`forebay release`; a server's audit log names who did). Events that the store \
still has are looked up, and do not count for what is released; what was removed after it was archived cannot be told from that.

Example:
  forebay archive audit tcp://daq01:7440 s3://raw/2026 7
  forebay archive audit /tmp/first dir:/tmp/archive 7 --json";

/// Compare what an archive has of a run with the run's ledger.
#[derive(clap::Args)]
#[command(long_about = AUDIT_HELP)]
struct Audit {
    #[command(flatten)]
    store: Place,
    /// The archive: s3://bucket/prefix, or dir:/path.
    url: String,
    /// The run.
    run: u64,
}

impl Audit {
    fn run(&self, out: &mut Output) -> Result<Answer> {
        let archive = open(&self.url)?;
        let store = self.store.open(out)?;
        let progress = Progress::start(out, "reading directories");
        let found = audit(&archive, &store, self.run, &mut |done, all| progress.set(done, all, "events"))?;
        drop(progress);
        store.close()?;
        let forebay_mover::Audit { ledger, inventory, problems, .. } = &found;
        let kept = ledger.live.accepted.fragments + ledger.live.debug.fragments - ledger.in_custody.fragments;
        out.json(&json!({
            "run": self.run,
            "archive": inventory,
            "released": ledger.released,
            "in_custody": ledger.in_custody,
            "still_in_store_fragments": found.still_there.0,
            "not_archived_fragments": kept,
            "problems": problems,
        }))?;
        out.line(format!(
            "archive: {} of {}, {}; {} in parts, {} more than once",
            units::plural(inventory.fragments, "fragment"),
            units::plural(inventory.events, "event"),
            units::bytes(inventory.payload_bytes),
            inventory.partial,
            inventory.repeated
        ))?;
        out.line(format!(
            "store: {} released, {} in custody, {kept} kept for the archive",
            units::plural(ledger.released.fragments, "fragment"),
            ledger.in_custody.fragments
        ))?;
        out.problems(problems)
    }
}

/// Remove objects that no manifest names, and unfinished ones: what killed movers left.
#[derive(clap::Args)]
struct Gc {
    /// The archive: s3://bucket/prefix, or dir:/path.
    url: String,
    /// How old an object is at least, by the clock of the place: younger ones may be named in a moment.
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = parse_older)]
    older: Duration,
    /// Only say what would be removed.
    #[arg(long)]
    dry_run: bool,
}

impl Gc {
    fn run(&self, out: &mut Output) -> Result<Answer> {
        let archive = open(&self.url)?;
        archive.identity_there()?;
        let progress = Progress::start(out, "looking for what no manifest names");
        let (mut names, faults) = archive.unnamed(self.older)?;
        if !self.dry_run {
            archive.place().remove(&names)?;
        }
        names.extend(archive.place().clear_unfinished(self.older, self.dry_run)?);
        drop(progress);
        for name in &names {
            out.line(format!("{}: {name}", if self.dry_run { "would be removed" } else { "removed" }))?;
        }
        if names.is_empty() {
            out.line("nothing to remove")?;
        }
        let problems: Vec<String> = faults.iter().map(in_words).collect();
        out.json(&json!({ "url": self.url, "removed": !self.dry_run, "names": names, "problems": problems }))?;
        if problems.is_empty() { Ok(Answer::Yes) } else { out.problems(&problems) }
    }
}

/// Less could take what a mover is about to name.
const OLDER_MIN: Duration = Duration::from_secs(600);

fn parse_older(text: &str) -> std::result::Result<Duration, String> {
    let older = units::parse_duration(text)?;
    if older < OLDER_MIN {
        return Err("at least 10min: a mover that still works may name what is younger in a moment".to_owned());
    }
    Ok(older)
}

const REBUILD_HELP: &str = "\
Make the manifest of a run from its objects, where it is missing or does not verify. Every object is read and compared; those that verify \
are in the new manifest. What movers had under way is archived once more, and `audit` counts it as more than once.

Example:
  forebay archive rebuild dir:/tmp/archive 7";

/// Make a lost manifest again from the objects of its run.
#[derive(clap::Args)]
#[command(long_about = REBUILD_HELP)]
struct Rebuild {
    /// The archive: s3://bucket/prefix, or dir:/path.
    url: String,
    /// The run.
    run: u64,
}

impl Rebuild {
    fn run(&self, out: &mut Output) -> Result<Answer> {
        let archive = open(&self.url)?;
        archive.identity_there()?;
        let progress = Progress::start(out, "reading objects");
        let (manifest, faults) = archive.rebuild(self.run, &mut |done, all| progress.set(done, all, "objects"))?;
        drop(progress);
        let objects = manifest.objects.len() as u64;
        let problems: Vec<String> = faults.iter().map(in_words).collect();
        out.json(&json!({ "url": self.url, "run": self.run, "objects": objects, "problems": problems }))?;
        let events = sum(&manifest, |object| object.contents.events);
        out.line(format!(
            "run {}: {}, {}",
            self.run,
            units::plural(objects, "object"),
            units::plural(events, "event")
        ))?;
        if problems.is_empty() { Ok(Answer::Yes) } else { out.problems(&problems) }
    }
}
