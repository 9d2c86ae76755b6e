//! The nodes of a cluster beside each other: totals, a line for each, and which of them holds the trigger of all.
//!
//! ```text
//! each node: stats, runs ──▶ reading (a node that is away is in it) ──▶ view ──▶ screen, plain text or JSON
//! ```

mod reading;
mod screen;
mod view;

pub(super) use reading::{NodesReading, NodesSource};
pub(super) use screen::{NodesScreen, draw};
pub(super) use view::NodesView;

use super::history::History;
use super::terminal::{Away, Controls, Watched};
use super::view::Rates;
use forebay_core::Result;
use ratatui::Frame;

/// What is known of the nodes.
pub(super) struct NodesState {
    addresses: String,
    reading: Option<NodesReading>,
    view: Option<NodesView>,
    history: History,
}

impl NodesState {
    /// Of nodes that have not been read yet.
    pub(super) fn new(addresses: &str) -> NodesState {
        NodesState { addresses: addresses.to_owned(), reading: None, view: None, history: History::default() }
    }
}

impl NodesView {
    /// Rates of all nodes, in the form in which their history is kept.
    pub(super) fn rates(&self) -> Rates {
        let all = self.totals.rates;
        Rates { puts: all.puts, stored_bytes: all.stored_bytes, verdicts: all.verdicts, ..Rates::default() }
    }
}

impl Watched for NodesState {
    type Reading = NodesReading;

    fn take(&mut self, reading: NodesReading) -> Result<()> {
        let view = NodesView::new(&reading, self.reading.as_ref());
        self.history.add(&view.rates());
        self.view = Some(view);
        self.reading = Some(reading);
        Ok(())
    }

    // Nodes are looked at in one keyspace, that of the connection.
    fn next_keyspace(&mut self) {}

    fn draw(&self, frame: &mut Frame<'_>, controls: &Controls, away: Option<Away<'_>>) {
        let screen = NodesScreen {
            addresses: &self.addresses,
            view: self.view.as_ref(),
            history: &self.history,
            away,
            controls,
        };
        draw(frame, &screen);
    }
}
