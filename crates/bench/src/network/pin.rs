//! Which processor does what: the server one, the load another.

use crate::Result;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};

/// The processor of servers.
pub(super) const SERVER: usize = 0;
/// The processor of the load.
pub(super) const LOAD: usize = 1;

/// Moves all threads of a process to a processor, as far as it has them now; threads that they start stay there.
pub(super) fn process(id: u32, processor: usize) -> Result<()> {
    for thread in std::fs::read_dir(format!("/proc/{id}/task"))? {
        let thread: i32 = thread?.file_name().to_string_lossy().parse()?;
        set(Pid::from_raw(thread), processor)?;
    }
    Ok(())
}

/// Moves this thread.
pub(super) fn this_thread(processor: usize) -> Result<()> {
    set(None, processor)
}

fn set(thread: Option<Pid>, processor: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(processor % std::thread::available_parallelism().map_or(1, usize::from).max(processor + 1));
    Ok(sched_setaffinity(thread, &set)?)
}
