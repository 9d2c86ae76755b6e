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

    /// The line about the refusal of this client, once it is there.
    pub(crate) fn refusal_of(&self, client: SocketAddr) -> String {
        let find = || {
            let text = self.text();
            text.lines().find(|line| line.contains("refused") && line.contains(&client.to_string())).map(str::to_owned)
        };
        crate::eventually(&format!("a refusal of {client} in the log"), || find().is_some());
        find().unwrap()
    }
}
