//! Child processes: run from the workspace root, their output read line by line, their processor time counted.

use crate::Result;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The workspace root: two levels above this package, which cargo names to the programs that it runs.
pub fn root() -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from).unwrap_or_default();
    match package.ancestors().nth(2) {
        Some(root) if root.join("Cargo.toml").exists() => root.to_path_buf(),
        _ => PathBuf::from("."),
    }
}

/// Where builds go; builds with other compiler flags have directories of their own in it.
pub fn target_dir() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => root().join(dir),
        None => root().join("target"),
    }
}

/// The cargo that runs this program, in the workspace root, without the package variables that it set for this program:
/// the build script of the crate `ring` reads them, and would rebuild it and all its dependents.
pub fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(root());
    for (name, _) in std::env::vars_os() {
        if ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|of_package| name.to_string_lossy().starts_with(of_package)) {
            command.env_remove(name);
        }
    }
    command
}

/// The triple that the compiler builds for.
pub fn host() -> Result<String> {
    let versions = output(Command::new("rustc").arg("-vV").current_dir(root()))?;
    let host = versions.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.ok_or("rustc -vV names no host")?.to_owned())
}

/// Whether a program of this name is on the path.
pub fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| Path::new(&dir).join(program).is_file())
}

/// Receives the output and processor time of children; several threads may call it at once.
pub trait Listener: Sync {
    /// One line of a child's output, or of its errors, without the line's end.
    fn line(&self, line: &str);
    /// Processor time that a child took, its own children included.
    fn spent(&self, cpu: Duration) {
        let _ = cpu;
    }
}

/// Shows every line as it comes.
pub struct Terminal;

impl Listener for Terminal {
    #[expect(clippy::print_stdout, reason = "a command-line tool talks to people on standard output")]
    fn line(&self, line: &str) {
        println!("{line}");
    }
}

/// A child that has ended: whether it succeeded, and its standard output.
pub struct Ended {
    /// Whether it ended by itself with exit code 0.
    pub success: bool,
    /// All of its standard output.
    pub stdout: String,
}

/// Runs a command to its end; the listener gets its output line by line. Standard output is kept as well.
pub fn stream(command: &mut Command, listener: &dyn Listener) -> Result<Ended> {
    listener.line(&format!("$ {}", describe(command)));
    follow(command, listener)
}

/// Like `stream`, for a command whose standard output is for programs: the listener gets its errors only.
pub fn stream_errors(command: &mut Command, listener: &dyn Listener) -> Result<Ended> {
    listener.line(&format!("$ {}", describe(command)));
    follow_saying(command, listener, &|_| {})
}

/// The same without a line about the command: for one with long arguments.
pub fn follow(command: &mut Command, listener: &dyn Listener) -> Result<Ended> {
    follow_saying(command, listener, &|line| listener.line(line))
}

fn follow_saying(command: &mut Command, listener: &dyn Listener, said: &dyn Fn(&str)) -> Result<Ended> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cannot start `{}`: {error}", describe(command)))?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let stdout = std::thread::scope(|scope| {
        scope.spawn(|| lines(stderr, &|line| listener.line(line)));
        lines(stdout, said)
    });
    // Read after the child has ended and before it is waited for: after that the kernel has forgotten its times.
    let cpu = cpu_of_ended(&child);
    let success = child.wait()?.success();
    listener.spent(cpu);
    Ok(Ended { success, stdout })
}

/// Reads to the end; invalid UTF-8 is replaced.
fn lines(pipe: Option<impl Read>, said: &dyn Fn(&str)) -> String {
    let mut all = String::new();
    let Some(pipe) = pipe else { return all };
    let (mut pipe, mut line) = (BufReader::new(pipe), Vec::new());
    while pipe.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
        let text = String::from_utf8_lossy(&line);
        said(text.trim_end_matches(['\n', '\r']));
        all.push_str(&text);
        line.clear();
    }
    all
}

/// Waits until the child has ended, and reads its times, with those of the children that it has waited for.
fn cpu_of_ended(child: &Child) -> Duration {
    let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) else { return Duration::ZERO };
    while let Err(rustix::io::Errno::INTR) = waitid(WaitId::Pid(pid), ended) {}
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap_or_default();
    Duration::from_secs_f64(ticks(&stat) as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// Fields 14 to 17 of `/proc/PID/stat`: user and system time, of itself and of its children. See proc(5).
fn ticks(stat: &str) -> u64 {
    // The name in parentheses, field 2, may contain anything.
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
    fields.skip(11).take(4).filter_map(|field| field.parse::<u64>().ok()).sum()
}

/// The trimmed output of a short command; an error if it fails.
pub fn output(command: &mut Command) -> Result<String> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[derive(Default)]
    struct Heard(Mutex<(Vec<String>, Duration)>);

    impl Listener for Heard {
        fn line(&self, line: &str) {
            self.0.lock().unwrap().0.push(line.to_owned());
        }
        fn spent(&self, cpu: Duration) {
            self.0.lock().unwrap().1 += cpu;
        }
    }

    #[test]
    fn both_outputs_are_heard_and_one_is_kept() {
        let heard = Heard::default();
        let ended = stream(Command::new("sh").args(["-c", "echo out; echo err >&2; exit 3"]), &heard).unwrap();
        assert_eq!((ended.success, ended.stdout.as_str()), (false, "out\n"));
        let lines = heard.0.lock().unwrap().0.clone();
        assert!(lines.contains(&"out".to_owned()) && lines.contains(&"err".to_owned()), "{lines:?}");
    }

    #[test]
    fn a_childs_children_are_counted() {
        let heard = Heard::default();
        // Until it has taken a tick by its own account: fields 14 and 15 of its `stat`.
        let spent = "read -r stat < /proc/$$/stat; set -- $stat; spent=$((${14} + ${15}))";
        let busy = format!("sh -c 'spent=0; while [ $spent -eq 0 ]; do {spent}; done'; true");
        stream(Command::new("sh").args(["-c", busy.as_str()]), &heard).unwrap();
        assert!(heard.0.lock().unwrap().1 > Duration::ZERO);
        assert_eq!(ticks("1 (a ) b) Z 2 3 4 5 6 7 8 9 10 11 100 20 3 4 0 0"), 127);
    }
}
