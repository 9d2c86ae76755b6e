//! A slow machine, made of this one: what is tested runs at the lowest priority beside busy loops.
//!
//! *Invariants*: a loop ends with the program that started it, however that one ends.

use crate::Result;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Two for each processor of the machine that the times are written down for.
const LOOPS: usize = 4;
/// `kill -0` asks whether the parent is there.
const LOOP: &str = "while kill -0 $PPID 2>/dev/null; do :; done";

/// Loops that run until it is dropped.
pub(crate) struct Load(Vec<Child>);

impl Load {
    /// Starts them.
    pub(crate) fn start() -> Result<Load> {
        let mut load = Load(Vec::new());
        for _ in 0..LOOPS {
            load.0.push(Command::new("sh").args(["-c", LOOP]).stdin(Stdio::null()).spawn()?);
        }
        Ok(load)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A command that starts the program at the lowest priority.
pub(crate) fn command(program: &Path) -> Command {
    let mut command = Command::new("nice");
    command.args(["-n", "19"]).arg(program);
    command
}
