//! One server in a terminal: its newest view, and what the keys have made of it.

use super::feed::{Reading, Source};
use super::history::History;
use super::number;
use super::screen::{Screen, draw};
use super::terminal::{Away, Controls, Watched};
use super::view::View;
use forebay_core::Result;
use ratatui::Frame;

/// What is known of a server, and how it is looked at.
pub(super) struct ServerState {
    source: Source,
    reading: Option<Reading>,
    view: Option<View>,
    history: History,
    keyspace: usize,
    wanted: Option<String>,
}

impl ServerState {
    /// Of a server that has not been read yet; shows this keyspace first.
    pub(super) fn new(source: &Source, keyspace: Option<&str>) -> ServerState {
        ServerState {
            source: source.clone(),
            reading: None,
            view: None,
            history: History::default(),
            keyspace: 0,
            wanted: keyspace.map(str::to_owned),
        }
    }
}

impl Watched for ServerState {
    type Reading = Reading;

    fn take(&mut self, reading: Reading) -> Result<()> {
        if let Some(wanted) = self.wanted.take() {
            self.keyspace = number(&reading, Some(&wanted))?;
        }
        let view = View::new(self.source.url(), self.keyspace, &reading, self.reading.as_ref());
        self.history.add(&view.rates);
        self.view = Some(view);
        self.reading = Some(reading);
        Ok(())
    }

    fn next_keyspace(&mut self) {
        self.keyspace += 1;
        // Rates of one keyspace are no history of another.
        self.history = History::default();
        let shown = self.reading.as_ref();
        self.view = shown.map(|reading| View::new(self.source.url(), self.keyspace, reading, None));
    }

    fn draw(&self, frame: &mut Frame<'_>, controls: &Controls, away: Option<Away<'_>>) {
        let screen = Screen {
            url: self.source.url(),
            view: self.view.as_ref(),
            history: &self.history,
            away,
            paused: controls.paused,
            help: controls.help,
        };
        draw(frame, &screen);
    }
}
