//! `forebay put`: one fragment, from the command line, a file or stdin.

use crate::open::{Close, Opened, Place};
use crate::output::{Answer, Output};
use crate::{levels, units};
use forebay_core::{Attributes, Error, EventStore, Key, Level, ReadFragment, Result};
use forebay_store::{PutOptions, PutOutcome};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const HELP: &str = "\
Put one fragment under its key. When the command returns, the fragment is stored: it survives the end of any process.

The same bytes again are a duplicate, which is a success. Other bytes under the same key are a conflict (exit code 3). \
A fragment of an event that is leased, decided or removed is late: it is not stored (exit code 1).
The store is there before (`forebay create`), and its run is open.

Example: three fragments of event 42 of run 1, from an argument, a file and a pipe, then an empty one:
  forebay run /tmp/first open 1
  forebay put /tmp/first 1/42/0 hello
  forebay put /tmp/first 1/42/1 --file frame.bin --status 0x3
  zcat frame.gz | forebay put /tmp/first 1/42/2 -
  forebay put /tmp/first 1/43/0 ''

Where the store has a warm level, --persisted returns only when the fragment is on its device, where the loss of power does \
not reach it (a millisecond and a write later); --level says where it goes and overrides the group of its source: on hot it \
is at hand for the selection, to warm it goes to a device once what is rejected at once is gone (the command waits for that):
  forebay put /tmp/two 1/42/3 --persisted precious
  forebay put /tmp/two 1/42/4 --level warm 'not read before the verdict'

An empty fragment is legal and counts. Attributes of the event, where `forebay create --attribute lumi:u32` declared \
them, come with any of its fragments: --attribute lumi=7.";

/// How long to wait for a fragment on its way to a device, and how often to look.
const DOWN_WAIT: Duration = Duration::from_secs(5);
const DOWN_LOOK: Duration = Duration::from_millis(10);

/// Put one fragment.
#[derive(clap::Args)]
#[command(long_about = HELP)]
pub(crate) struct Put {
    #[command(flatten)]
    store: Place,
    /// Key, such as run/event/source: 1/42/0.
    key: String,
    /// The bytes; `-` reads them from stdin.
    #[arg(required_unless_present = "file", conflicts_with = "file", allow_hyphen_values = true)]
    value: Option<String>,
    /// Reads the bytes from a file.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Attribute of the event, `name=value`; may be repeated.
    #[arg(long, value_name = "NAME=VALUE", conflicts_with = "update")]
    attribute: Vec<String>,
    /// The producer's status bits, decimal or 0x….
    #[arg(long, value_name = "BITS", default_value = "0", value_parser = parse_status, conflicts_with = "update")]
    status: u32,
    /// How long to wait for space before answering Full; the store's own deadline when not given.
    #[arg(long, value_name = "DURATION", value_parser = units::parse_duration)]
    deadline: Option<Duration>,
    /// Return when the fragment survives the loss of power: it is on a device of the warm level.
    #[arg(long, conflicts_with = "update")]
    persisted: bool,
    /// Level to which the fragment goes, hot or warm; that of its source's group when not given.
    #[arg(long, value_name = "LEVEL", value_parser = levels::parse_level, conflicts_with = "update")]
    level: Option<Level>,
    /// Make a new version of a fragment that is there already.
    #[arg(long)]
    update: bool,
}

impl Put {
    pub(crate) fn run(&self, out: &mut Output) -> Result<Answer> {
        let store = self.store.open(out)?;
        let answer = self.put(&store, out)?;
        store.close()?;
        Ok(answer)
    }

    fn put(&self, store: &Opened, out: &mut Output) -> Result<Answer> {
        let schema = store.schema();
        let key = schema.parse_key(&self.key)?;
        let text = schema.text(key.as_bytes());
        // Bounded while it is read: a wrong pipe must not fill the memory before the store refuses it.
        let value = self.bytes(store.keyspace().fragment_bytes_max)?;
        if self.update {
            let version = store.update(&key, &value, None)?;
            out.line(format!("updated {text} to version {version}: {}", units::bytes(value.len() as u64)))?;
            out.json(&serde_json::json!({
                "key": text, "outcome": "updated", "bytes": value.len(), "version": version
            }))?;
            return Ok(Answer::Yes);
        }
        let attributes = Attributes::parse(&store.keyspace().attributes, &self.attribute)?;
        let options = PutOptions {
            status: self.status,
            attributes: (!attributes.is_empty()).then_some(&attributes),
            deadline: self.deadline,
            persisted: self.persisted,
            level: self.level,
            ..PutOptions::default()
        };
        let outcome = store.put(&key, &value, &options)?;
        let goes_down = self.level == Some(Level::Warm) && !outcome.is_late();
        let arrived = goes_down && wait_for_warm(store, &key)?;
        let (name, remark) = match outcome {
            PutOutcome::Stored if self.persisted => ("stored", " (on the warm level, persisted)"),
            PutOutcome::Stored if arrived => ("stored", " (on the warm level)"),
            PutOutcome::Stored if goes_down => ("stored", " (on the hot level: no device has taken it yet)"),
            PutOutcome::Stored => ("stored", ""),
            PutOutcome::Duplicate => ("duplicate", " (the same bytes were there already)"),
            PutOutcome::Late | PutOutcome::LateUnknown => {
                ("late", " (its event is leased, decided or removed: not stored)")
            }
        };
        out.line(format!("{name} {text}: {}{remark}", units::bytes(value.len() as u64)))?;
        out.json(
            &serde_json::json!({ "key": text, "outcome": name, "bytes": value.len(), "persisted": self.persisted }),
        )?;
        Ok(Answer::found(!outcome.is_late()))
    }

    /// The value, never reading much more than a fragment can have.
    fn bytes(&self, fragment_bytes_max: usize) -> Result<Vec<u8>> {
        match (&self.file, self.value.as_deref()) {
            (Some(file), _) => {
                let source = std::fs::File::open(file).map_err(|error| cannot_read(file, error))?;
                read_bounded(source, fragment_bytes_max, file)
            }
            (None, Some("-")) => read_bounded(std::io::stdin().lock(), fragment_bytes_max, Path::new("stdin")),
            (None, value) => Ok(value.unwrap_or_default().as_bytes().to_vec()),
        }
    }
}

/// Waits until the fragment is on the warm level: what this process does not see down stays where it is, because
/// nobody else serves the store. `false` where it does not come there in time.
fn wait_for_warm(store: &Opened, key: &Key) -> Result<bool> {
    let deadline = Instant::now() + DOWN_WAIT;
    while Instant::now() < deadline {
        if store.get(key)?.is_none_or(|fragment| fragment.level() == Level::Warm) {
            return Ok(true);
        }
        std::thread::sleep(DOWN_LOOK);
    }
    Ok(false)
}

fn read_bounded(source: impl Read, bytes_max: usize, name: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    source.take(bytes_max as u64 + 1).read_to_end(&mut bytes).map_err(|error| cannot_read(name, error))?;
    if bytes.len() > bytes_max {
        return Err(Error::invalid(format!(
            "{} is longer than a fragment of this keyspace can be: {bytes_max} bytes (fragment_bytes_max)",
            name.display()
        )));
    }
    Ok(bytes)
}

fn cannot_read(name: &Path, error: std::io::Error) -> Error {
    Error::invalid(format!("cannot read {}", name.display())).with_source(error)
}

fn parse_status(text: &str) -> std::result::Result<u32, String> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => text.parse(),
    };
    number.map_err(|_| format!("`{text}` is not a number of 32 bits, such as 3 or 0x3"))
}
