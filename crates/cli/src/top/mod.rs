//! `forebay top`: a server as it works, in a terminal.
//!
//! ```text
//! /metrics ──▶ feed, a thread ──▶ reading ──▶ view (rates: two readings) ──▶ screen, plain text or JSON
//! ```

mod feed;
mod history;
mod once;
mod page;
mod screen;
mod terminal;
mod view;

use crate::output::{Answer, Output};
use crate::units;
use feed::Source;
use forebay_core::{Error, Result};
use history::History;
use screen::Screen;
use std::time::Duration;
use view::View;

/// Width and height of one screen as plain text, where there is no terminal that has its own.
const PLAIN: (u16, u16) = (100, 40);
/// Shortest time between two looks at a server, which take it a few milliseconds.
const INTERVAL_MIN: Duration = Duration::from_millis(100);

const HELP: &str = "\
Watch a server in a terminal: fill of its levels with their marks, what comes in and goes out each second, events by state, \
leases, containers of each device, whether the trigger is held and why, errors, connections; of a ring what it keeps, evicts and \
refuses, its pins and its silent sources. It reads what Prometheus reads.

Keys: q quits, p pauses and goes on, Tab shows the next keyspace, ? shows all of them. A server that is away is asked again \
until it is back.

Example: in a terminal; once, as text and as JSON:
  forebay top --url http://127.0.0.1:7442
  forebay top --once
  forebay top --json | jq .inhibit";

/// Watch a server: fill, rates, events, containers, inhibit.
#[derive(clap::Args)]
#[command(long_about = HELP)]
pub(crate) struct Top {
    /// Where the server answers over HTTP.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:7442")]
    url: String,
    /// Time between two looks.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = units::parse_duration)]
    interval: Duration,
    /// Show this keyspace first.
    #[arg(long, value_name = "NAME")]
    keyspace: Option<String>,
    /// Write one screen as plain text and end: rates are those of one interval.
    #[arg(long)]
    once: bool,
}

impl Top {
    pub(crate) fn run(&self, out: &mut Output) -> Result<Answer> {
        let source = Source::new(&self.url)?;
        if self.interval < INTERVAL_MIN {
            let (asked, least) = (self.interval, INTERVAL_MIN);
            return Err(Error::invalid(format!(
                "--interval {asked:?}: at least {least:?}, to leave the server in peace"
            )));
        }
        if self.once || out.json {
            return self.once(out, &source);
        }
        if !out.is_terminal() {
            return Err(Error::invalid("`forebay top` needs a terminal; --once writes one screen, --json one object"));
        }
        terminal::run(&source, self.interval, self.keyspace.as_deref())
    }

    /// One view over one interval.
    fn once(&self, out: &mut Output, source: &Source) -> Result<Answer> {
        let before = source.read()?;
        std::thread::sleep(self.interval);
        let now = source.read()?;
        let view = View::new(source.url(), number(&now, self.keyspace.as_deref())?, &now, Some(&before));
        out.json(&view)?;
        let mut history = History::default();
        history.add(&view.rates);
        let screen =
            Screen { url: source.url(), view: Some(&view), history: &history, away: None, paused: false, help: false };
        let (width, height) = PLAIN;
        out.line(once::plain(&screen, width, height)?)?;
        Ok(Answer::Yes)
    }
}

/// The place of a keyspace among those of the server.
///
/// # Errors
/// `Invalid` where the server has none of this name.
fn number(reading: &feed::Reading, keyspace: Option<&str>) -> Result<usize> {
    let Some(wanted) = keyspace else { return Ok(0) };
    let known = view::keyspaces(&reading.page);
    known
        .iter()
        .position(|name| name == wanted)
        .ok_or_else(|| Error::invalid(format!("no keyspace `{wanted}`: this server has {}", known.join(", "))))
}
