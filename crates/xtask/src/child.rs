//! Child processes: found from the workspace root, streamed while they run, kept where a step reads what they said.

use crate::Result;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The workspace root: two levels above this package, which cargo names to the programs that it runs.
pub(crate) fn root() -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from).unwrap_or_default();
    match package.ancestors().nth(2) {
        Some(root) if root.join("Cargo.toml").exists() => root.to_path_buf(),
        _ => PathBuf::from("."),
    }
}

/// Where builds go, so that builds with other compiler flags can stand beside it.
pub(crate) fn target_dir() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => root().join(dir),
        None => root().join("target"),
    }
}

/// The cargo that runs this program, in the workspace root.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(root());
    command
}

/// Whether a program of this name is on the path.
pub(crate) fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| Path::new(&dir).join(program).is_file())
}

/// A child that has ended: whether it succeeded, and its standard output.
pub(crate) struct Ended {
    pub(crate) success: bool,
    pub(crate) stdout: String,
}

/// Runs a command and shows its output as it comes, keeping standard output.
pub(crate) fn stream(command: &mut Command) -> Result<Ended> {
    let shown = describe(command);
    println!("$ {shown}");
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cannot start `{shown}`: {error}"))?;
    let mut stdout = Vec::new();
    if let Some(pipe) = child.stdout.take() {
        let mut pipe = BufReader::new(pipe);
        loop {
            let from = stdout.len();
            if pipe.read_until(b'\n', &mut stdout)? == 0 {
                break;
            }
            std::io::stdout().write_all(&stdout[from..])?;
        }
    }
    let success = child.wait()?.success();
    Ok(Ended { success, stdout: String::from_utf8_lossy(&stdout).into_owned() })
}

/// What a short command says, without its surrounding white space; an error where it fails.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let shown = describe(command);
    let done = command.stdin(Stdio::null()).output().map_err(|error| format!("cannot start `{shown}`: {error}"))?;
    if !done.status.success() {
        return Err(format!("`{shown}`: {}\n{}", done.status, String::from_utf8_lossy(&done.stderr).trim()).into());
    }
    Ok(String::from_utf8_lossy(&done.stdout).trim().to_owned())
}

fn describe(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let set = command.get_envs().filter_map(|(name, value)| {
        value.map(|value| format!("{}='{}' ", name.to_string_lossy(), value.to_string_lossy()))
    });
    let arguments = command.get_args().map(|argument| format!(" {}", argument.to_string_lossy()));
    set.chain([program.to_string_lossy().into_owned()]).chain(arguments).collect()
}
