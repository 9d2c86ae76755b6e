//! The terminal: readings and keys in turn, until somebody quits.
//!
//! *On failure*: the terminal is given back as it was, also by a panic.

use super::feed::{Feed, Reading, Source};
use super::history::History;
use super::number;
use super::screen::{Screen, draw};
use super::view::View;
use crate::output::Answer;
use crate::signal;
use forebay_core::{Error, Result};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Longest time in which a key or a signal is not seen.
const TURN: Duration = Duration::from_millis(50);

/// What is known, and how it is looked at.
struct TerminalState {
    source: Source,
    reading: Option<Reading>,
    view: Option<View>,
    history: History,
    /// Since when, and why, the server does not answer.
    away: Option<(Instant, String)>,
    keyspace: usize,
    wanted: Option<String>,
    paused: bool,
    help: bool,
}

/// Shows a server until somebody quits.
///
/// # Errors
/// `Unavailable` where the terminal cannot be had, or goes away; `Invalid` for a keyspace that the server does not have.
pub(super) fn run(source: &Source, interval: Duration, keyspace: Option<&str>) -> Result<Answer> {
    let stop = signal::stop_flag()?;
    let feed = Feed::start(source.clone(), interval)?;
    let mut state = TerminalState {
        source: source.clone(),
        reading: None,
        view: None,
        history: History::default(),
        away: None,
        keyspace: 0,
        wanted: keyspace.map(str::to_owned),
        paused: false,
        help: false,
    };
    let lost = |error: std::io::Error| Error::unavailable("the terminal cannot be used").with_source(error);
    let mut terminal = ratatui::try_init().map_err(lost)?;
    let answer = (|| {
        let mut drawn: Option<Instant> = None;
        while !stop.load(Ordering::Relaxed) {
            let mut changed = drawn.is_none_or(|drawn| drawn.elapsed() >= Duration::from_secs(1));
            if let Some(reading) = feed.next(Duration::ZERO) {
                state.read(reading)?;
                changed = true;
            }
            if event::poll(TURN).map_err(lost)? {
                if let Event::Key(key) = event::read().map_err(lost)?
                    && !state.key(key)
                {
                    return Ok(Answer::Yes);
                }
                changed = true;
            }
            if changed {
                terminal.draw(|frame| draw(frame, &state.screen())).map_err(lost)?;
                drawn = Some(Instant::now());
            }
        }
        Ok(Answer::Interrupted)
    })();
    // Also after an error: the terminal goes back to its owner.
    ratatui::restore();
    answer
}

impl TerminalState {
    /// Takes a reading, or the news that there is none.
    fn read(&mut self, reading: Result<Reading>) -> Result<()> {
        let reading = match reading {
            Ok(reading) => reading,
            Err(error) => {
                // Since the first failure, not the last: the screen shows how long the server is away.
                let since = self.away.as_ref().map_or_else(Instant::now, |away| away.0);
                self.away = Some((since, error.to_string()));
                return Ok(());
            }
        };
        self.away = None;
        if self.paused {
            return Ok(());
        }
        if let Some(wanted) = self.wanted.take() {
            self.keyspace = number(&reading, Some(&wanted))?;
        }
        let view = View::new(self.source.url(), self.keyspace, &reading, self.reading.as_ref());
        self.history.add(&view.rates);
        self.view = Some(view);
        self.reading = Some(reading);
        Ok(())
    }

    /// Does what a key says; `false` where it says quit.
    fn key(&mut self, key: KeyEvent) -> bool {
        match key.code {
            _ if key.kind == KeyEventKind::Release => {}
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return false,
            KeyCode::Esc if self.help => self.help = false,
            KeyCode::Char('q') | KeyCode::Esc => return false,
            KeyCode::Char('p') => self.paused = !self.paused,
            KeyCode::Char('?') => self.help = !self.help,
            KeyCode::Tab => {
                self.keyspace += 1;
                // Rates of one keyspace are no history of another.
                self.history = History::default();
                let shown = self.reading.as_ref();
                self.view = shown.map(|reading| View::new(self.source.url(), self.keyspace, reading, None));
            }
            _ => {}
        }
        true
    }

    fn screen(&self) -> Screen<'_> {
        let away = self.away.as_ref();
        Screen {
            url: self.source.url(),
            view: self.view.as_ref(),
            history: &self.history,
            away: away.map(|(since, error)| (since.elapsed().as_secs(), error.as_str())),
            paused: self.paused,
            help: self.help,
        }
    }
}
