//! `forebay dataset import`, `add` and `export`: what the Python package does, called as a process of its own.
//!
//! ```text
//! forebay dataset import … ──▶ python3 -m forebay import …   (FOREBAY_PYTHON names another interpreter)
//!         Ctrl-C ──▶ one SIGINT for the process, which ends in order and leaves no version half made
//! ```
//!
//! *Not here*: ROOT and Parquet, which are read and written by uproot and pyarrow.

use crate::output::{Answer, Output};
use crate::signal;
use forebay_core::{Error, Result};
use rustix::process::{Pid, Signal};
use std::ffi::{OsStr, OsString};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

const IMPORT: &str = "\
Make a dataset of ROOT files (TTree or RNTuple) or Parquet files: all events of all files, one after the other, with titles, type \
names and counters, and with the side trees as tables. Files may have different columns: the dataset has the union. Branches that \
cannot be read are listed with the reason.

The files are read by the Python package `forebay` and by uproot; without them this command says how to install them. FOREBAY_PYTHON \
names the interpreter, python3 if it is not set. Ctrl-C leaves no dataset half made; `forebay dataset gc` removes what was written.

Example: one file; many into a bucket, only some columns of another tree:
  forebay dataset import nanoaod.root /tmp/ds
  forebay dataset import run1.root run2.root s3://physics/2026/zmumu --tree Events --columns 'Muon_*' --columns 'HLT_*'
  forebay dataset import nanoaod.root /tmp/ds --json";

const ADD: &str = "\
Add the columns of a file (ROOT or Parquet) to the events of a dataset, as a new version: the file has the same events in the same \
order. Only the new columns are written.

The file is read by the Python package `forebay`; without it this command says how to install it.

Example: and what it made:
  forebay dataset add /tmp/ds weights.parquet
  forebay dataset versions /tmp/ds
  forebay dataset add /tmp/ds weights.root --json";

const EXPORT: &str = "\
Write the events of a dataset to a file: its name ends in .root (RNTuple) or .parquet. What the format of the file has no type \
for is refused by name; with --widen it becomes the next wider type.

The file is written by the Python package `forebay`; without it this command says how to install it.

Example: for ROOT, and for everything that reads Parquet:
  forebay dataset export /tmp/ds copy.root
  forebay dataset export s3://physics/2026/zmumu copy.parquet
  forebay dataset export /tmp/ds copy.parquet --json";

/// Make a dataset of ROOT or Parquet files.
#[derive(clap::Args)]
#[command(long_about = IMPORT)]
pub(super) struct Import {
    /// ROOT or Parquet files, in the order of their events.
    #[arg(value_name = "FILES", required = true)]
    files: Vec<PathBuf>,
    /// Where the dataset will be: a path, or s3://bucket/prefix.
    #[arg(value_name = "URL", required = true)]
    url: String,
    /// The tree with the events, where a file has several.
    #[arg(long, value_name = "NAME")]
    tree: Option<String>,
    /// Only columns whose names fit this pattern; may be repeated.
    #[arg(long, value_name = "PATTERN")]
    columns: Vec<String>,
    /// Append the events to a dataset that is there, as a new version.
    #[arg(long)]
    append: bool,
}

/// Add the columns of a file to the events of a dataset.
#[derive(clap::Args)]
#[command(long_about = ADD)]
pub(super) struct Add {
    /// Where the dataset is: a path, or s3://bucket/prefix.
    #[arg(value_name = "URL")]
    url: String,
    /// ROOT or Parquet file with the columns.
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// Write a dataset to a ROOT or Parquet file.
#[derive(clap::Args)]
#[command(long_about = EXPORT)]
pub(super) struct Export {
    /// Where the dataset is: a path, or s3://bucket/prefix.
    #[arg(value_name = "URL")]
    url: String,
    /// The file that is written; its name ends in .root or .parquet.
    #[arg(value_name = "FILE", value_parser = parse_target)]
    file: PathBuf,
    /// Version to write; the newest one when not given.
    #[arg(long, value_name = "N")]
    version: Option<u32>,
    /// Types that the format lacks become the next wider ones.
    #[arg(long)]
    widen: bool,
}

impl Import {
    pub(super) fn run(&self, out: &mut Output) -> Result<Answer> {
        let mut arguments: Vec<OsString> = vec![self.url.clone().into()];
        arguments.extend(self.files.iter().map(|file| plain(file)));
        // In one word with their values: a pattern may begin with a dash.
        arguments.extend(self.tree.iter().map(|tree| format!("--tree={tree}").into()));
        arguments.extend(self.columns.iter().map(|pattern| format!("--columns={pattern}").into()));
        arguments.extend(self.append.then(|| "--append".into()));
        call(out, "import", "reads ROOT and Parquet files", &arguments)
    }
}

impl Add {
    pub(super) fn run(&self, out: &mut Output) -> Result<Answer> {
        call(out, "add", "reads ROOT and Parquet files", &[self.url.clone().into(), plain(&self.file)])
    }
}

impl Export {
    pub(super) fn run(&self, out: &mut Output) -> Result<Answer> {
        let mut arguments: Vec<OsString> = vec![self.url.clone().into(), plain(&self.file)];
        arguments.extend(self.version.map(|version| format!("--version={version}").into()));
        arguments.extend(self.widen.then(|| "--widen".into()));
        call(out, "export", "writes ROOT and Parquet files", &arguments)
    }
}

/// A path that no program takes for an option.
fn plain(path: &std::path::Path) -> OsString {
    match path.as_os_str().as_encoded_bytes().first() {
        Some(b'-') => PathBuf::from(".").join(path).into(),
        _ => path.into(),
    }
}

fn parse_target(text: &str) -> std::result::Result<PathBuf, String> {
    let path = PathBuf::from(text);
    match path.extension().and_then(OsStr::to_str) {
        Some("root" | "parquet") => Ok(path),
        _ => Err(format!("`{text}`: expected a file whose name ends in .root or .parquet")),
    }
}

/// Looks for the package without importing it; a folder of this name is none. The exit codes are ours.
const LOOK: &str = "\
import importlib.util, sys
if sys.version_info < (3, 11): sys.exit(91)
spec = importlib.util.find_spec('forebay')
sys.exit(0 if spec is not None and spec.origin is not None else 92)";

/// Runs the package's command and hands on what it answers.
fn call(out: &mut Output, action: &str, what: &str, arguments: &[OsString]) -> Result<Answer> {
    let python =
        std::env::var_os("FOREBAY_PYTHON").filter(|python| !python.is_empty()).unwrap_or_else(|| "python3".into());
    look(&python, action, what)?;
    let stop = signal::wait_for_stop()?;
    let mut command = interpreter(&python);
    command.args(["-m", "forebay", action]).args(arguments);
    if out.json {
        command.arg("--json");
    }
    // In a group of its own a terminal's Ctrl-C comes to it once, from here: a second one would cut its tidying short.
    let mut child = command.process_group(0).spawn().map_err(|error| cannot_run(&python, error))?;
    let mut asked = false;
    let status = loop {
        let waited = child.try_wait().map_err(|error| Error::internal("cannot wait for Python").with_source(error))?;
        if let Some(status) = waited {
            break status;
        }
        match asked {
            false if stop.stopped_within(WAIT) => {
                asked = true;
                interrupt(&child);
            }
            false => {}
            true => std::thread::sleep(WAIT),
        }
    };
    answer(status, asked, action)
}

/// How long the end of the process may go unnoticed.
const WAIT: Duration = Duration::from_millis(20);

fn interpreter(python: &OsStr) -> Command {
    let mut command = Command::new(python);
    // Without the directory of the user in the search path: a folder `forebay` there is not the package.
    command.env("PYTHONSAFEPATH", "1").stdin(Stdio::null());
    command
}

/// Refuses in words where interpreter or package are missing.
fn look(python: &OsStr, action: &str, what: &str) -> Result<()> {
    let status = interpreter(python).args(["-c", LOOK]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    let status = status.map_err(|error| cannot_run(python, error))?;
    let python = python.display();
    match status.code() {
        Some(0) => Ok(()),
        Some(91) => {
            Err(Error::invalid(format!("{python} is older than Python 3.11; let FOREBAY_PYTHON name a newer one")))
        }
        _ => Err(Error::invalid(format!(
            "`forebay dataset {action}` {what} with the Python package `forebay`, which {python} does not have. In the sources of \
             Forebay:\n  {python} -m pip install './crates/python[root,arrow]'\nor let FOREBAY_PYTHON name an interpreter that has it"
        ))),
    }
}

fn cannot_run(python: &OsStr, error: std::io::Error) -> Error {
    let message = format!(
        "cannot run {}; install Python 3.11 or newer, or let FOREBAY_PYTHON name the interpreter that has the package `forebay`",
        python.display()
    );
    Error::invalid(message).with_source(error)
}

/// Ctrl-C for the process.
fn interrupt(child: &Child) {
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        // It may have ended just now.
        let _ = rustix::process::kill_process(pid, Signal::INT);
    }
}

fn answer(status: ExitStatus, asked: bool, action: &str) -> Result<Answer> {
    match (status.code(), status.signal()) {
        (Some(0), _) => Ok(Answer::Yes),
        _ if asked => Ok(Answer::Interrupted),
        // Its errors have our exit codes, and it has said them.
        (Some(code @ 1..=255), _) => Ok(Answer::Said(u8::try_from(code).unwrap_or(10))),
        (_, signal) => Err(Error::internal(format!(
            "the Python process of `forebay dataset {action}` was ended by signal {}; the dataset is as before",
            signal.unwrap_or_default()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_no_options_and_targets_have_a_format() {
        assert_eq!(plain("-x.root".as_ref()), "./-x.root");
        assert_eq!(plain("/a/b.root".as_ref()), "/a/b.root");
        assert!(parse_target("a.parquet").is_ok() && parse_target("a.b.root").is_ok());
        assert!(parse_target("a.csv").is_err() && parse_target(".root").is_err());
    }

    #[test]
    fn what_the_process_says_is_the_answer() {
        let exit = |code: i32| ExitStatus::from_raw(code << 8);
        assert_eq!(answer(exit(0), false, "add").unwrap(), Answer::Yes);
        assert_eq!(answer(exit(3), false, "add").unwrap(), Answer::Said(3));
        assert_eq!(answer(exit(130), true, "add").unwrap(), Answer::Interrupted);
        assert!(answer(ExitStatus::from_raw(9), false, "add").is_err());
    }
}
