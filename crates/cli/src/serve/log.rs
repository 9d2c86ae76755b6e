//! Logs to stderr, as text or JSON, through a thread: an event loop never waits for the reader of its log.
//!
//! *Invariant*: the queue is bounded. *On failure*: lines that find it full are dropped, and their number is told once there
//! is room.

use forebay_core::{Error, Result};
use forebay_server::{LogFormat, LogLevel, LogSettings};
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;

/// Lines that wait to be written.
const LINES_MAX: usize = 4096;
/// How long the last lines are waited for at the end.
const FINISH: Duration = Duration::from_secs(1);

/// The log at work.
pub(super) struct Log {
    lines: SyncSender<Message>,
}

enum Message {
    Line(Vec<u8>),
    /// All before this is written; says so.
    Finish(SyncSender<()>),
}

/// Where the lines of all threads go.
#[derive(Clone)]
struct Lines {
    lines: SyncSender<Message>,
    dropped: Arc<AtomicU64>,
}

/// A line on its way.
struct Line<'a> {
    lines: &'a Lines,
    bytes: Vec<u8>,
}

impl Write for Line<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Line<'_> {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        // Never waits: a full queue costs lines of the log, not the time of an event loop.
        if !bytes.is_empty() && self.lines.lines.try_send(Message::Line(bytes)).is_err() {
            self.lines.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Line<'a> {
        Line { lines: self, bytes: Vec::new() }
    }
}

impl Log {
    /// Writes what waits, within a moment.
    pub(super) fn finish(self) {
        let (done, written) = sync_channel(1);
        // A reader that takes nothing any more gets nothing any more.
        if self.lines.try_send(Message::Finish(done)).is_ok() {
            let _ = written.recv_timeout(FINISH);
        }
    }
}

/// Logs of this process go to stderr from now on.
///
/// # Errors
/// `Unavailable` where the system gives no thread, `Internal` where something else logs already.
pub(super) fn install(settings: &LogSettings) -> Result<Log> {
    let (lines, waiting) = sync_channel(LINES_MAX);
    let dropped = Arc::new(AtomicU64::new(0));
    let counted = dropped.clone();
    let json = settings.format == LogFormat::Json;
    std::thread::Builder::new()
        .name("log".to_owned())
        .spawn(move || write(&waiting, &counted, json, &mut io::stderr()))
        .map_err(|error| Error::unavailable("the system gives no thread").with_source(error))?;
    let writer = Lines { lines: lines.clone(), dropped };
    let level = match settings.level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let builder = tracing_subscriber::fmt().with_max_level(level).with_writer(writer).log_internal_errors(false);
    let installed = match settings.format {
        LogFormat::Text => tracing::subscriber::set_global_default(builder.with_ansi(false).finish()),
        LogFormat::Json => tracing::subscriber::set_global_default(builder.json().flatten_event(true).finish()),
    };
    installed.map_err(|error| Error::internal("something logs already").with_source(error))?;
    // A bug in one connection ends that connection: the log has it among its lines.
    std::panic::set_hook(Box::new(|panic| {
        let thread = std::thread::current();
        let backtrace = std::backtrace::Backtrace::capture();
        tracing::error!(thread = thread.name(), %panic, %backtrace, "a bug: please report it");
    }));
    Ok(Log { lines })
}

fn write(waiting: &Receiver<Message>, dropped: &AtomicU64, json: bool, to: &mut impl Write) {
    loop {
        let message = match waiting.recv_timeout(FINISH) {
            Ok(message) => Some(message),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        // Where nobody reads them, nothing can be said.
        match message {
            Some(Message::Line(line)) => {
                let _ = to.write_all(&line);
            }
            Some(Message::Finish(done)) => {
                let _ = to.flush();
                let _ = done.try_send(());
            }
            None => {}
        }
        // After each message, so that the gap is reported next to the lines around it.
        let lost = dropped.swap(0, Ordering::Relaxed);
        if lost > 0 {
            let text = format!("{lost} lines of this log were dropped: its reader is slow");
            let _ = if json {
                writeln!(to, "{}", serde_json::json!({ "level": "WARN", "message": text }))
            } else {
                writeln!(to, "WARN {text}")
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_that_stands_still_stops_nobody() {
        let (lines, waiting) = sync_channel(2);
        let writer = Lines { lines: lines.clone(), dropped: Arc::default() };
        for number in 0..5 {
            writeln!(writer.make_writer(), "line {number}").unwrap();
        }
        // Now it reads.
        let dropped = writer.dropped.clone();
        drop((lines, writer));
        let mut text = Vec::new();
        write(&waiting, &dropped, false, &mut text);
        let text = String::from_utf8(text).unwrap();
        assert!(text.starts_with("line 0\n"), "{text}");
        assert!(
            text.contains("line 1\n") && !text.contains("line 2") && text.contains("3 lines of this log"),
            "{text}"
        );
    }
}
