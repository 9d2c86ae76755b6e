//! What the servers of these tests log, all of it, for looking through.

use parking_lot::Mutex;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use tracing_subscriber::fmt::MakeWriter;

/// Everything that was logged since `collect` was called first.
#[derive(Clone, Default)]
pub(crate) struct Collected(Arc<Mutex<Vec<u8>>>);

impl Write for Collected {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Collected {
    type Writer = Collected;

    fn make_writer(&'a self) -> Collected {
        self.clone()
    }
}

/// Collects from now on, at every level.
pub(crate) fn collect() -> Collected {
    static LOG: OnceLock<Collected> = OnceLock::new();
    let install = || {
        let log = Collected::default();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::level_filters::LevelFilter::TRACE)
            .with_ansi(false)
            .with_writer(log.clone());
        tracing::subscriber::set_global_default(subscriber.finish()).unwrap();
        log
    };
    LOG.get_or_init(install).clone()
}

impl Collected {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock()).into_owned()
    }

    /// The line about the refusal of this client for this reason, once it is there. The tests of this process share the
    /// log, and the system gives one port to several of them.
    pub(crate) fn refusal_of(&self, client: SocketAddr, reason: &str) -> String {
        let marks = ["refused".to_owned(), format!("peer=\"{client}\""), format!("reason=\"{reason}\"")];
        let find = || {
            let text = self.text();
            text.lines().find(|line| marks.iter().all(|mark| line.contains(mark))).map(str::to_owned)
        };
        crate::secure::eventually(&format!("{marks:?} in the log"), || find().is_some());
        find().unwrap()
    }
}
