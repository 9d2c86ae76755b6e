//! A line on stderr about work that takes longer than two seconds.
//!
//! *Invariants*: nothing is shown in the first two seconds. On a terminal one line is written again and again; elsewhere there is a
//! line every ten seconds, and none with `--json`.

use crate::output::Output;
use std::io::{IsTerminal, Write};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Work that is shorter says nothing.
const SILENT: Duration = Duration::from_secs(2);
const ON_TERMINAL: Duration = Duration::from_millis(250);
const ELSEWHERE: Duration = Duration::from_secs(10);

/// Shows what is under way until it is dropped.
pub(crate) struct Progress {
    /// What was done until now. The thread reads it, the work writes it.
    figures: Arc<Mutex<String>>,
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Progress {
    /// Starts to watch the clock.
    pub(crate) fn start(out: &Output, what: &str) -> Progress {
        let terminal = std::io::stderr().is_terminal();
        let figures = Arc::new(Mutex::new(String::new()));
        let mut progress = Progress { figures: Arc::clone(&figures), end: None, thread: None };
        if terminal || !out.json {
            let (end, ended) = mpsc::channel();
            let what = what.to_owned();
            let show = move || watch(&what, &figures, terminal, &ended);
            // Without a thread the work is done without a line about it.
            progress.thread = std::thread::Builder::new().name("forebay-progress".into()).spawn(show).ok();
            progress.end = Some(end);
        }
        progress
    }

    /// Says how much of the work is done.
    pub(crate) fn set(&self, done: u64, all: u64, unit: &str) {
        let percent = if all == 0 { 100 } else { u128::from(done) * 100 / u128::from(all) };
        *self.figures.lock().unwrap_or_else(PoisonError::into_inner) = format!("{done} of {all} {unit}, {percent} %");
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.end = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn watch(what: &str, figures: &Mutex<String>, terminal: bool, ended: &mpsc::Receiver<()>) {
    let (start, mut wait, mut width) = (Instant::now(), SILENT, 0);
    while ended.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
        let figures = figures.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let text = format!("{:6.1} s {what}  {figures}", start.elapsed().as_secs_f64());
        // Progress that cannot be shown stops nothing.
        let _ = match terminal {
            true => write!(std::io::stderr(), "\r{text:<width$}"),
            false => writeln!(std::io::stderr(), "{}", text.trim_end()),
        };
        (width, wait) = (text.chars().count(), if terminal { ON_TERMINAL } else { ELSEWHERE });
    }
    if terminal && width > 0 {
        let _ = write!(std::io::stderr(), "\r{:width$}\r", "");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_work_says_nothing_and_ends_at_once() {
        let start = Instant::now();
        let progress = Progress::start(&Output::new(false, false), "testing");
        progress.set(1, 3, "batches");
        assert_eq!(*progress.figures.lock().unwrap(), "1 of 3 batches, 33 %");
        progress.set(0, 0, "events");
        drop(progress);
        assert!(start.elapsed() < SILENT);
    }
}
