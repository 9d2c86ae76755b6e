//! The output while steps run side by side: each step's output in one piece when it ends, and a line of progress from time
//! to time.
//!
//! ```text
//! child ──line──▶ Log of its step ──▶ target/checks/STEP.log          (at once)
//!                        │ at the step's end, in one piece ──▶ Screen ──▶ standard output
//! ticker ── active steps, their time, their last line ───────▶   ┘
//! ```
//!
//! *Invariants*: two steps never mix on standard output; if only one step runs, its lines are shown at once.

use crate::Result;
use crate::child::{self, Listener};
use std::fs::File;
use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The first line of progress comes after this time.
const FIRST: Duration = Duration::from_secs(2);
/// The next ones: on a terminal one line that is written over, elsewhere lines of their own.
const EVERY_ON_A_TERMINAL: Duration = Duration::from_secs(1);
const EVERY_ELSEWHERE: Duration = Duration::from_secs(20);
/// A line about progress is cut to what fits on most terminals.
const COLUMNS: usize = 118;

/// Standard output, shared by the steps that run.
pub(crate) struct Screen {
    from: Instant,
    /// Whether lines are shown as they come: one step at a time.
    live: bool,
    terminal: bool,
    stop: AtomicBool,
    running: Mutex<Vec<Running>>,
    /// Held while something is written.
    out: Mutex<()>,
}

struct Running {
    name: &'static str,
    since: Instant,
    status: String,
}

impl Screen {
    /// A screen for steps one at a time (`live`), or side by side.
    pub(crate) fn new(live: bool) -> Screen {
        Screen {
            from: Instant::now(),
            live,
            terminal: std::io::stdout().is_terminal(),
            stop: AtomicBool::new(false),
            running: Mutex::new(Vec::new()),
            out: Mutex::new(()),
        }
    }

    /// Since the screen was made.
    pub(crate) fn elapsed(&self) -> Duration {
        self.from.elapsed()
    }

    /// Shows text that ends its line.
    pub(crate) fn show(&self, text: &str) {
        let _whole = lock(&self.out);
        // A closed terminal does not stop the checks.
        let _ = self.write(&format!("{text}\n"));
    }

    /// Writes over the line of progress.
    fn write(&self, text: &str) -> std::io::Result<()> {
        let mut out = std::io::stdout().lock();
        if self.terminal && !self.live {
            out.write_all(b"\r\x1b[K")?;
        }
        out.write_all(text.as_bytes())?;
        out.flush()
    }

    /// Shows progress until `finish` is called.
    pub(crate) fn tick(&self) {
        if self.live {
            return;
        }
        let mut next = self.from + FIRST;
        while !self.stop.load(Ordering::Relaxed) {
            if Instant::now() >= next {
                next = Instant::now() + if self.terminal { EVERY_ON_A_TERMINAL } else { EVERY_ELSEWHERE };
                let line = self.progress();
                let _whole = lock(&self.out);
                let _ = self.write(&line);
                if !self.terminal {
                    let _ = self.write("\n");
                }
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Ends `tick`.
    pub(crate) fn finish(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    fn progress(&self) -> String {
        let running = lock(&self.running);
        let each: Vec<String> = running
            .iter()
            .map(|step| format!("{} {} s: {}", step.name, step.since.elapsed().as_secs(), step.status.trim()))
            .collect();
        let width = COLUMNS / each.len().max(1);
        let cut: Vec<String> = each.iter().map(|text| text.chars().take(width).collect()).collect();
        format!("[{:>4} s] {}", self.elapsed().as_secs(), cut.join(" | "))
    }

    /// The log of a step that begins.
    pub(crate) fn begin(&self, name: &'static str, what: &str) -> Result<Log<'_>> {
        let dir = child::target_dir().join("checks");
        std::fs::create_dir_all(&dir)?;
        let file = File::create(dir.join(format!("{name}.log")))?;
        lock(&self.running).push(Running { name, since: Instant::now(), status: String::new() });
        if self.live {
            self.show(&format!("\n=== {name}: {what}"));
        }
        Ok(Log {
            screen: self,
            name,
            what: what.to_owned(),
            said: Mutex::new((String::new(), file)),
            cpu: Mutex::default(),
        })
    }
}

/// The output of one step, and the processor time of its children.
pub(crate) struct Log<'a> {
    screen: &'a Screen,
    name: &'static str,
    what: String,
    said: Mutex<(String, File)>,
    cpu: Mutex<Duration>,
}

impl Log<'_> {
    /// Names the current work of the step, if its last line does not.
    pub(crate) fn status(&self, status: &str) {
        if let Some(step) = lock(&self.screen.running).iter_mut().find(|step| step.name == self.name) {
            step.status.clear();
            step.status.push_str(status);
        }
    }

    /// Adds lines of one source in one piece.
    pub(crate) fn block(&self, text: &str) {
        let text = text.trim_end();
        let mut said = lock(&self.said);
        let _ = writeln!(said.1, "{text}");
        if self.screen.live {
            self.screen.show(text);
        } else {
            said.0.push_str(text);
            said.0.push('\n');
        }
    }

    /// Shows all of it with how it ended; yields the processor time of its children.
    pub(crate) fn end(self, ended: &str) -> Duration {
        lock(&self.screen.running).retain(|step| step.name != self.name);
        let said = std::mem::take(&mut lock(&self.said).0);
        let head = if self.screen.live { String::new() } else { format!("\n=== {}: {}\n", self.name, self.what) };
        self.screen.show(&format!("{head}{said}--- {}: {ended}", self.name));
        *lock(&self.cpu)
    }
}

impl Listener for Log<'_> {
    fn line(&self, line: &str) {
        self.status(line);
        self.block(line);
    }

    fn spent(&self, cpu: Duration) {
        *lock(&self.cpu) += cpu;
    }
}

/// A panicked thread leaves a consistent state here.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
