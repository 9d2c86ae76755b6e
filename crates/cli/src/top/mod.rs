//! `forebay top`: a server, or the nodes of a cluster, at work, in a terminal.
//!
//! ```text
//! /metrics ──▶ feed, a thread ──▶ reading ──▶ view (rates: two readings) ──▶ screen, plain text or JSON
//! nodes ─────▶ the same, over the native protocol (`nodes`)
//! ```

mod feed;
mod history;
mod nodes;
mod once;
mod page;
mod screen;
mod server;
mod terminal;
mod view;

use crate::connect::Identity;
use crate::output::{Answer, Output};
use crate::units;
use feed::{Feed, Source};
use forebay_core::{Error, Result};
use history::History;
use nodes::{NodesScreen, NodesSource, NodesState, NodesView};
use screen::Screen;
use server::ServerState;
use std::time::Duration;
use terminal::Controls;
use view::View;

/// Width and height of one screen as plain text, where there is no terminal that has its own.
const PLAIN: (u16, u16) = (100, 40);
/// Lines around those of the nodes.
const AROUND: u16 = 12;
/// Shortest time between two looks at a server, which take it a few milliseconds.
const INTERVAL_MIN: Duration = Duration::from_millis(100);

const HELP: &str = "\
Watch a server in a terminal: fill of its levels with their marks, what comes in and goes out each second, events by state, \
leases, containers of each device, whether the trigger is held and why, errors, connections; of a ring what it keeps, evicts and \
refuses, its pins and its silent sources. It reads what Prometheus reads.

Keys: q quits, p pauses and goes on, Tab shows the next keyspace, ? shows all of them. A server that is away is asked again \
until it is back.

With the native addresses of some nodes of a cluster, with commas between them, it shows the whole cluster: totals, and a line for \
each node with its fill, its events, and what comes in and is decided each second. A node that does not answer has a line that says \
why; one that is full inhibits the trigger of all, and is named. One such address is one server. Of a ring (--keyspace) it shows what \
each node keeps, takes, evicts and refuses.

Example: in a terminal; once, as text and as JSON; a cluster:
  forebay top --url http://127.0.0.1:7442
  forebay top --once
  forebay top --json | jq .inhibit
  forebay top tcp://daq01:7440,tcp://daq02:7440
  forebay top tcp://daq01:7440,tcp://daq02:7440 --json | jq '.inhibit.name, .nodes[].error'";

/// Watch a server or a cluster: fill, rates, events, containers, inhibit.
#[derive(clap::Args)]
#[command(long_about = HELP)]
pub(crate) struct Top {
    /// Nodes of a cluster by their native addresses, with commas between them; or one server by its own. Without it the server at --url.
    #[arg(value_name = "ADDRESSES", conflicts_with = "url")]
    place: Option<String>,
    /// Where the server answers over HTTP.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:7442")]
    url: String,
    /// Time between two looks.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = units::parse_duration)]
    interval: Duration,
    /// Write one screen as plain text and end: rates are those of one interval.
    #[arg(long)]
    once: bool,
    // Its keyspace is also the one that is shown first of a server at --url.
    #[command(flatten)]
    identity: Identity,
}

impl Top {
    pub(crate) fn run(&self, out: &mut Output) -> Result<Answer> {
        if self.interval < INTERVAL_MIN {
            let (asked, least) = (self.interval, INTERVAL_MIN);
            return Err(Error::invalid(format!(
                "--interval {asked:?}: at least {least:?}, to leave the server in peace"
            )));
        }
        let is_once = self.once || out.json;
        if !is_once && !out.is_terminal() {
            return Err(Error::invalid("`forebay top` needs a terminal; --once writes one screen, --json one object"));
        }
        match &self.place {
            Some(place) => {
                let mut source = NodesSource::new(place, self.identity.options("forebay top")?);
                if is_once {
                    return self.nodes_once(out, &mut source);
                }
                let state = NodesState::new(source.addresses());
                terminal::run(&Feed::start(move || source.read(), self.interval)?, state)
            }
            None => {
                let source = Source::new(&self.url)?;
                if is_once {
                    return self.once(out, &source);
                }
                let state = ServerState::new(&source, self.identity.keyspace());
                terminal::run(&Feed::start(move || source.read(), self.interval)?, state)
            }
        }
    }

    /// One view over one interval.
    fn once(&self, out: &mut Output, source: &Source) -> Result<Answer> {
        let before = source.read()?;
        std::thread::sleep(self.interval);
        let now = source.read()?;
        let view = View::new(source.url(), number(&now, self.identity.keyspace())?, &now, Some(&before));
        out.json(&view)?;
        let mut history = History::default();
        history.add(&view.rates);
        let screen =
            Screen { url: source.url(), view: Some(&view), history: &history, away: None, paused: false, help: false };
        let (width, height) = PLAIN;
        out.line(once::uncut(|frame| screen::draw(frame, &screen), width, height)?)?;
        Ok(Answer::Yes)
    }

    /// The same of several nodes.
    fn nodes_once(&self, out: &mut Output, source: &mut NodesSource) -> Result<Answer> {
        let before = source.read()?;
        std::thread::sleep(self.interval);
        let now = source.read()?;
        let view = NodesView::new(&now, Some(&before));
        out.json(&view)?;
        let mut history = History::default();
        history.add(&view.rates());
        let controls = Controls::default();
        let screen = NodesScreen {
            addresses: source.addresses(),
            view: Some(&view),
            history: &history,
            away: None,
            controls: &controls,
        };
        let (width, height) = PLAIN;
        // On paper there is room for all.
        let height = height.max(u16::try_from(now.count()).unwrap_or(u16::MAX).saturating_add(AROUND));
        out.line(once::uncut(|frame| nodes::draw(frame, &screen), width, height)?)?;
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
