//! The audit log: who changed what, in a file that is only added to.
//!
//! ```text
//! call that changes ──▶ line "asked" (synced: releases, removals) ──▶ the call ──▶ line with its answer
//! ```
//!
//! *Invariants*: the line of a release or a removal is durable before the call is made: an unaudited one cannot happen. A line
//! is one JSON object, and is written with one system call; after a kill the last line may be cut off.
//!
//! *On failure*: a call whose line cannot be written is refused, and has no effect; the metric counts it.
//!
//! *Not here*: which right a call needs (`access.rs`); reads, puts and verdicts, which are no operators' business.

use crate::locate::Problem;
use forebay_core::{Call, Error, Result};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use time::UtcDateTime;

/// Longest description of what a call is about: a list of events is cut.
const ABOUT_BYTES_MAX: usize = 4096;

/// A section `[audit]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AuditSettings {
    /// The file.
    pub file: PathBuf,
    /// Bytes at which a new file is begun: the full one gets the ending `.1`, older ones higher numbers.
    #[serde(with = "crate::units::size")]
    pub bytes_max: u64,
    /// How many full files are kept.
    pub files_max: u32,
}

impl Default for AuditSettings {
    fn default() -> AuditSettings {
        AuditSettings { file: PathBuf::new(), bytes_max: 64 << 20, files_max: 16 }
    }
}

impl AuditSettings {
    pub(crate) fn problem(&self) -> Option<Problem> {
        if self.file.as_os_str().is_empty() {
            return Some(Problem::new("file", "needed: the file of the audit log"));
        }
        if self.bytes_max < 64 << 10 {
            return Some(Problem::new("bytes_max", "at least 64 KiB: every line must find its room"));
        }
        (self.files_max == 0).then(|| Problem::new("files_max", "at least 1: a full file would be thrown away"))
    }

    pub(crate) fn resolve(&mut self, base: &Path) {
        self.file = base.join(&self.file);
    }
}

/// Who makes a call.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Actor {
    pub(crate) token: String,
    pub(crate) peer: String,
    pub(crate) protocol: &'static str,
    pub(crate) keyspace: String,
}

/// Whether a call is audited, and whether its line must be durable before it is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Audited {
    No,
    Noted,
    Synced,
}

/// What the audit log wants of a call.
pub(crate) fn audited(call: Call) -> Audited {
    match call {
        Call::Release | Call::Remove => Audited::Synced,
        Call::Run
        | Call::Mask
        | Call::Prescale
        | Call::Hold
        | Call::ReleaseHold
        | Call::Device
        | Call::Order
        | Call::Update
        | Call::Replay => Audited::Noted,
        _ => Audited::No,
    }
}

/// The audit log of a server.
#[derive(Debug)]
pub(crate) struct Audit {
    settings: AuditSettings,
    open: Mutex<Open>,
    calls: AtomicU64,
    /// Lines that could not be written.
    pub(crate) failed: AtomicU64,
}

#[derive(Debug)]
struct Open {
    file: File,
    bytes: u64,
}

#[derive(Serialize)]
struct Line<'a> {
    time: String,
    number: u64,
    #[serde(flatten)]
    actor: &'a Actor,
    call: &'a str,
    about: &'a str,
    answer: &'a str,
}

impl Audit {
    /// Opens the file, or makes it.
    ///
    /// # Errors
    /// `Invalid` for a file that cannot be written.
    pub(crate) fn open(settings: AuditSettings) -> Result<Audit> {
        let open = open(&settings.file).map_err(|error| {
            let file = settings.file.display();
            Error::invalid(format!("audit: {file} cannot be written: {error}")).with_source(error)
        })?;
        Ok(Audit { settings, open: Mutex::new(open), calls: 0.into(), failed: 0.into() })
    }

    /// Makes a call between its two lines.
    ///
    /// # Errors
    /// `Unavailable` where the first line cannot be written: the call is not made. Else those of the call.
    pub(crate) fn around<T>(
        &self,
        actor: &Actor,
        call: Call,
        about: &str,
        make: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let number = self.asked(actor, call, about)?;
        let answer = make();
        self.answered(number, actor, call, about, &answer);
        answer
    }

    /// The first line of a call; answers its number.
    ///
    /// # Errors
    /// `Unavailable` where it cannot be written.
    pub(crate) fn asked(&self, actor: &Actor, call: Call, about: &str) -> Result<u64> {
        let number = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        let line = Line { time: now(), number, actor, call: call.name(), about: cut(about), answer: "asked" };
        self.write(&line, audited(call) == Audited::Synced).map(|()| number)
    }

    /// Its second line.
    pub(crate) fn answered<T>(&self, number: u64, actor: &Actor, call: Call, about: &str, answer: &Result<T>) {
        let answer = answer.as_ref().map_or_else(|error| error.kind().name(), |_| "done");
        // The call has been made: what is written of it cannot take it back. The first line says that it was asked for.
        let _ = self.write(&Line { time: now(), number, actor, call: call.name(), about: cut(about), answer }, false);
    }

    /// A line about the server itself, such as new tokens.
    pub(crate) fn note(&self, call: &str, about: &str, answer: &str) {
        let number = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        let actor = Actor { token: String::new(), peer: String::new(), protocol: "server", keyspace: String::new() };
        let _ = self.write(&Line { time: now(), number, actor: &actor, call, about: cut(about), answer }, false);
    }

    fn write(&self, line: &Line<'_>, sync: bool) -> Result<()> {
        let mut text = serde_json::to_vec(line).unwrap_or_default();
        text.push(b'\n');
        let written = self.add(&text, sync);
        written.map_err(|error| {
            self.failed.fetch_add(1, Ordering::Relaxed);
            let file = self.settings.file.display();
            tracing::error!(%error, %file, "the audit log cannot be written: calls that it must have are refused");
            Error::unavailable(format!("the audit log {file} cannot be written, so the call was not made: {error}"))
                .with_source(error)
        })
    }

    fn add(&self, text: &[u8], sync: bool) -> std::io::Result<()> {
        // Held over a sync: lines are in the order of their numbers for those who wait for each other, and calls that are
        // audited are rare.
        let mut now = self.open.lock();
        if now.bytes + text.len() as u64 > self.settings.bytes_max && now.bytes > 0 {
            now.file.sync_data()?;
            self.rotate()?;
            *now = open(&self.settings.file)?;
        }
        let before = now.bytes;
        let written = now.file.write(text)?;
        now.bytes += written as u64;
        if written < text.len() {
            // A full disk takes the beginning of a line: the next one must not be glued to it.
            now.file.set_len(before)?;
            now.bytes = before;
            return Err(std::io::Error::new(std::io::ErrorKind::StorageFull, "there is no room for a whole line"));
        }
        if sync { now.file.sync_data() } else { Ok(()) }
    }

    fn rotate(&self) -> std::io::Result<()> {
        let numbered = |number: u32| PathBuf::from(format!("{}.{number}", self.settings.file.display()));
        for number in (1..self.settings.files_max).rev() {
            let from = numbered(number);
            if from.exists() {
                std::fs::rename(from, numbered(number + 1))?;
            }
        }
        std::fs::rename(&self.settings.file, numbered(1))
    }
}

fn open(path: &Path) -> std::io::Result<Open> {
    let file = OpenOptions::new().append(true).create(true).mode(0o640).open(path)?;
    // The name of a new file is durable before a line in it counts as durable.
    File::open(dir_of(path))?.sync_all()?;
    let bytes = file.metadata()?.len();
    Ok(Open { file, bytes })
}

/// A name alone is a file of the working directory, whose path is not empty.
fn dir_of(path: &Path) -> &Path {
    path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// As the server's log has it: RFC 3339, in UTC.
fn now() -> String {
    text_of(UtcDateTime::now())
}

fn text_of(time: UtcDateTime) -> String {
    let (day, [hour, minute, second]) = (time.date(), [time.hour(), time.minute(), time.second()]);
    // A date is written as year-month-day.
    format!("{day}T{hour:02}:{minute:02}:{second:02}.{:03}Z", time.millisecond())
}

fn cut(text: &str) -> &str {
    let mut end = text.len().min(ABOUT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::Kind;

    fn actor() -> Actor {
        let (token, peer, keyspace) = ("expert".to_owned(), "127.0.0.1:9".to_owned(), "events".to_owned());
        Actor { token, peer, protocol: "native", keyspace }
    }

    fn dir(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("forebay-audit-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        dir
    }

    fn lines(path: &Path) -> Vec<serde_json::Value> {
        let text = std::fs::read_to_string(path).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn each_call_has_two_lines_and_full_files_are_kept_in_number() {
        let dir = dir("lines");
        let settings = AuditSettings { file: dir.join("audit.log"), bytes_max: 64 << 10, files_max: 2 };
        let audit = Audit::open(settings.clone()).unwrap();
        let made = audit.around(&actor(), Call::Release, "1/42", || Ok(7));
        assert_eq!(made.unwrap(), 7);
        let refused: Result<()> = audit.around(&actor(), Call::Mask, "1 3", || Err(Error::closed("run 1")));
        assert_eq!(refused.unwrap_err().kind(), Kind::Closed);
        let seen = lines(&settings.file);
        let answers: Vec<_> = seen.iter().map(|line| (line["call"].as_str(), line["answer"].as_str())).collect();
        let (release, mask) = (Some("release"), Some("mask"));
        assert_eq!(
            answers,
            [(release, Some("asked")), (release, Some("done")), (mask, Some("asked")), (mask, Some("Closed"))]
        );
        assert_eq!((&seen[0]["token"], &seen[0]["about"]), (&"expert".into(), &"1/42".into()));
        let long = "x".repeat(10_000);
        for _ in 0..40 {
            audit.around(&actor(), Call::Hold, &long, || Ok(())).unwrap();
        }
        assert!(dir.join("audit.log.2").exists() && !dir.join("audit.log.3").exists());
        let all: usize =
            ["audit.log", "audit.log.1", "audit.log.2"].iter().map(|name| lines(&dir.join(name)).len()).sum();
        assert!(all > 30, "{all} lines in three files of 64 KiB");
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_file_may_be_a_name_alone() {
        let dirs = ["audit.log", "logs/audit.log", "/audit.log"].map(|file| dir_of(Path::new(file)).to_str().unwrap());
        assert_eq!(dirs, [".", "logs", "/"]);
    }

    #[test]
    fn times_are_text_that_sorts() {
        let at = |seconds: i64| text_of(UtcDateTime::from_unix_timestamp(seconds).unwrap());
        assert_eq!([at(0), at(1_000_000_000)], ["1970-01-01T00:00:00.000Z", "2001-09-09T01:46:40.000Z"]);
    }

    #[test]
    fn what_cannot_be_written_is_not_done() {
        let dir = dir("full");
        let audit = Audit::open(AuditSettings { file: dir.join("audit.log"), ..AuditSettings::default() }).unwrap();
        // A file that is opened for reading only takes no line.
        audit.open.lock().file = File::open(dir.join("audit.log")).unwrap();
        let refused = audit.around(&actor(), Call::Remove, "1", || -> Result<()> { panic!("it must not be made") });
        assert_eq!(refused.unwrap_err().kind(), Kind::Unavailable);
        assert_eq!(audit.failed.load(Ordering::Relaxed), 1);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
