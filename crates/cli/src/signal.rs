//! Ctrl-C as a flag: the first one asks the command to end in order, the second one ends the process.

use forebay_core::{Error, Result};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::low_level::pipe;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A flag that SIGINT and SIGTERM set.
///
/// # Errors
/// `Internal` where the handlers cannot be installed.
pub(crate) fn stop_flag() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // In this order: the shutdown looks at the flag before the same signal sets it.
        flag::register_conditional_shutdown(signal, 130, Arc::clone(&stop))
            .and_then(|_| flag::register(signal, Arc::clone(&stop)))
            .map_err(|error| Error::internal("cannot install the handler of Ctrl-C").with_source(error))?;
    }
    Ok(stop)
}

/// Ends the process with exit code 130 at the first SIGINT or SIGTERM: for a command that has nothing to put in order.
///
/// # Errors
/// As [`stop_flag`].
pub(crate) fn exit_at_once() -> Result<()> {
    let always = Arc::new(AtomicBool::new(true));
    for signal in [SIGINT, SIGTERM] {
        flag::register_conditional_shutdown(signal, 130, Arc::clone(&always))
            .map_err(|error| Error::internal("cannot install the handler of Ctrl-C").with_source(error))?;
    }
    Ok(())
}

/// The wait for SIGINT or SIGTERM, by a command that sleeps until then.
pub(crate) struct Waiting {
    stop: Arc<AtomicBool>,
    wake: UnixStream,
}

/// As [`stop_flag`], with a wait.
///
/// # Errors
/// `Internal` where the handlers cannot be installed.
pub(crate) fn wait_for_stop() -> Result<Waiting> {
    let stop = stop_flag()?;
    let failed = |error| Error::internal("cannot install the handler of Ctrl-C").with_source(error);
    let (wake, rung) = UnixStream::pair().map_err(failed)?;
    for signal in [SIGINT, SIGTERM] {
        let bell = rung.try_clone().map_err(failed)?;
        // A pipe as well as the flag: a handler can only set the flag, and a sleeping thread must wake.
        pipe::register(signal, bell).map_err(failed)?;
    }
    Ok(Waiting { stop, wake })
}

impl Waiting {
    /// Sleeps until a signal comes, or for so long; whether one came.
    pub(crate) fn stopped_within(&self, time: Duration) -> bool {
        let asked = || self.stop.load(Ordering::Acquire);
        if !asked() && self.wake.set_read_timeout(Some(time.max(Duration::from_millis(1)))).is_ok() {
            // A byte, the end of the time, or an interruption: the flag says which.
            let _ = (&self.wake).read(&mut [0; 1]);
        }
        asked()
    }
}
