//! A slow machine, made of this one: what is tested runs at the lowest priority beside busy loops.
//!
//! *Invariants*: a loop ends with the program that started it, however that one ends.

use crate::Result;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Two for each processor of the machine that the times are written down for.
const LOOPS: usize = 4;
/// Above that of what is tested, which gets a sixth of each processor by the kernel's weights. Beside loops of priority 0 it would get less
/// than a hundredth, and a run would take days.
const PRIORITY: &str = "15";
/// `kill -0` asks whether the parent is there.
const LOOP: &str = "while kill -0 $PPID 2>/dev/null; do :; done";

/// Loops that run until it is dropped.
pub(crate) struct Load(Vec<Child>);

impl Load {
    /// Starts them.
    pub(crate) fn start() -> Result<Load> {
        let mut load = Load(Vec::new());
        for _ in 0..LOOPS {
            let busy = ["-n", PRIORITY, "sh", "-c", LOOP];
            load.0.push(Command::new("nice").args(busy).stdin(Stdio::null()).spawn()?);
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
