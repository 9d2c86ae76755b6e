//! What the steps run, in the profile `checked`: one build of libraries, programs, examples and tests, and one of the simulator.
//!
//! ```text
//! build       the workspace, as users have it ─▶ tests, examples, demos, benchmarks
//! build-sim   the simulator, with planted faults that it can switch on; what others wrote is there already
//! ```
//!
//! *Invariants*: every step that runs a program of the project takes it from here, so that nothing is compiled twice. No test
//! beside those of the simulator runs code with planted faults.

use super::screen::Log;
use super::{Context, slow};
use crate::{Result, checked, child};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Purpose of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// The unit tests of a library or a program.
    UnitTests,
    /// A program of tests, one module for each subject.
    Tests,
    /// An example.
    Example,
    /// A program that people start.
    Program,
    /// A library that programs load, such as the extension module of Python.
    Library,
}

/// A program that was built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Built {
    pub(crate) kind: Kind,
    /// Its package, such as `forebay-store`.
    pub(crate) package: String,
    /// Its target, such as `crash`.
    pub(crate) target: String,
    /// Directory of the package, in which its tests run.
    pub(crate) dir: PathBuf,
    pub(crate) program: PathBuf,
    /// Whether it runs as on a slow machine: see [`super::slow`].
    pub(crate) slow: bool,
}

impl Built {
    /// Its name in reports.
    pub(crate) fn name(&self) -> String {
        format!("{} {}", self.package, self.target)
    }

    /// A command that starts it as cargo would.
    pub(crate) fn command(&self) -> Command {
        let mut command = if self.slow { slow::command(&self.program) } else { Command::new(&self.program) };
        command.current_dir(&self.dir).env("CARGO_MANIFEST_DIR", &self.dir).env("CARGO_PKG_NAME", &self.package);
        command
    }
}

/// Builds everything but the simulator.
pub(crate) fn everything(context: &Context, log: &Log<'_>) -> Result<Vec<Built>> {
    let what = ["--workspace", "--lib", "--bins", "--examples", "--tests"];
    cargo_build(&[&what[..], &checked::APART].concat(), context, log)
}

/// Builds the simulator and its tests; all packages are named so that what others wrote has the features that it has in the other build.
pub(crate) fn simulator(context: &Context, log: &Log<'_>) -> Result<Vec<Built>> {
    cargo_build(&["--workspace", "--exclude", "forebay-fuzz", "--bin", "forebay-sim", "--test", "sim"], context, log)
}

fn cargo_build(what: &[&str], context: &Context, log: &Log<'_>) -> Result<Vec<Built>> {
    let ended =
        child::stream_errors(checked::cargo("build", what).arg("--message-format=json-render-diagnostics"), log)?;
    let slow = context.load.is_some();
    match ended.success {
        true => Ok(ended.stdout.lines().filter_map(read).map(|built| Built { slow, ..built }).collect()),
        false => Err("it does not build".into()),
    }
}

/// The program that one of cargo's messages reports as built.
fn read(message: &str) -> Option<Built> {
    let message: Value = serde_json::from_str(message).ok()?;
    let library = message["target"]["kind"][0] == "cdylib";
    let file = if library { message["filenames"][0].as_str()? } else { message["executable"].as_str()? };
    let program = PathBuf::from(file);
    let dir = Path::new(message["manifest_path"].as_str()?).parent()?.to_path_buf();
    // `path+file:///…/crates/store#forebay-store@0.1.0`, or `…/xtask#0.1.0` where folder and package have one name.
    let id = message["package_id"].as_str()?.rsplit_once('#')?.1;
    let package = match id.split_once('@') {
        Some((name, _)) => name.to_owned(),
        None => dir.file_name()?.to_string_lossy().into_owned(),
    };
    let kind = match (message["profile"]["test"].as_bool()?, message["target"]["kind"][0].as_str()?) {
        (true, "test") => Kind::Tests,
        (true, _) => Kind::UnitTests,
        (false, "example") => Kind::Example,
        (false, "cdylib") => Kind::Library,
        (false, _) => Kind::Program,
    };
    Some(Built { kind, package, target: message["target"]["name"].as_str()?.to_owned(), dir, program, slow: false })
}

/// The program of this name that the step `build` has made.
pub(crate) fn program(context: &Context, target: &str) -> Result<Command> {
    let found = context.built().find(|built| built.kind == Kind::Program && built.target == target);
    let mut command = found.ok_or_else(|| format!("no program `{target}` was built"))?.command();
    command.current_dir(child::root());
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn messages_name_programs() {
        let message = |id: &str, kind: &str, test: bool| {
            json!({
                "reason": "compiler-artifact", "package_id": id, "manifest_path": "/w/crates/store/Cargo.toml",
                "target": {"kind": [kind], "name": "crash"}, "profile": {"test": test}, "executable": "/w/t/crash-1",
            })
            .to_string()
        };
        let built = read(&message("path+file:///w/crates/store#forebay-store@0.1.0", "test", true)).unwrap();
        assert_eq!((built.kind, built.name().as_str()), (Kind::Tests, "forebay-store crash"));
        assert_eq!(built.dir, Path::new("/w/crates/store"));
        assert_eq!(read(&message("path+file:///w/crates/store#0.1.0", "bin", false)).unwrap().package, "store");
        assert_eq!(read(&message("path+file:///w/crates/store#0.1.0", "example", false)).unwrap().kind, Kind::Example);
        let library = json!({
            "package_id": "path+file:///w/crates/python#forebay-python@0.1.0", "manifest_path": "/w/crates/python/Cargo.toml",
            "target": {"kind": ["cdylib"], "name": "_native"}, "profile": {"test": false}, "executable": null,
            "filenames": ["/w/t/lib_native.so"],
        });
        let built = read(&library.to_string()).unwrap();
        assert_eq!((built.kind, built.program), (Kind::Library, PathBuf::from("/w/t/lib_native.so")));
        assert_eq!(read(r#"{"reason": "build-finished", "success": true}"#), None);
    }
}
