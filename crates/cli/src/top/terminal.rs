//! The terminal: readings and keys in turn, until somebody quits.
//!
//! *On failure*: the terminal is given back as it was, also by a panic.

use super::feed::Feed;
use crate::output::Answer;
use crate::signal;
use forebay_core::{Error, Result};
use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Longest time in which a key or a signal is not seen.
const TURN: Duration = Duration::from_millis(50);

/// Seconds for which nothing has been read, and why.
pub(super) type Away<'a> = (u64, &'a str);

/// What is watched in a terminal.
pub(super) trait Watched {
    /// What one look finds.
    type Reading: Send + 'static;
    /// Shows a reading from now on.
    ///
    /// # Errors
    /// `Invalid` where what was asked for is not in it: this ends the program.
    fn take(&mut self, reading: Self::Reading) -> Result<()>;
    /// Shows the next keyspace.
    fn next_keyspace(&mut self);
    /// Draws all of it.
    fn draw(&self, frame: &mut Frame<'_>, controls: &Controls, away: Option<Away<'_>>);
}

/// What the keys have set.
#[derive(Default)]
pub(super) struct Controls {
    pub(super) paused: bool,
    pub(super) help: bool,
}

/// Shows something until somebody quits.
///
/// # Errors
/// `Unavailable` where the terminal cannot be had, or goes away; those of [`Watched::take`].
pub(super) fn run<W: Watched>(feed: &Feed<W::Reading>, watched: W) -> Result<Answer> {
    let stop = signal::stop_flag()?;
    let mut state = TerminalState { watched, controls: Controls::default(), away: None };
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
                terminal.draw(|frame| state.draw(frame)).map_err(lost)?;
                drawn = Some(Instant::now());
            }
        }
        Ok(Answer::Interrupted)
    })();
    // Also after an error: the terminal goes back to its owner.
    ratatui::restore();
    answer
}

struct TerminalState<W> {
    watched: W,
    controls: Controls,
    /// Since when, and why, nothing can be read.
    away: Option<(Instant, String)>,
}

impl<W: Watched> TerminalState<W> {
    /// Takes a reading, or the news that there is none.
    fn read(&mut self, reading: Result<W::Reading>) -> Result<()> {
        match reading {
            Ok(reading) => {
                self.away = None;
                if self.controls.paused { Ok(()) } else { self.watched.take(reading) }
            }
            Err(error) => {
                // Since the first failure, not the last: the screen shows how long nobody answers.
                let since = self.away.as_ref().map_or_else(Instant::now, |away| away.0);
                self.away = Some((since, error.to_string()));
                Ok(())
            }
        }
    }

    /// Does what a key says; `false` where it says quit.
    fn key(&mut self, key: KeyEvent) -> bool {
        let controls = &mut self.controls;
        match key.code {
            _ if key.kind == KeyEventKind::Release => {}
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return false,
            KeyCode::Esc if controls.help => controls.help = false,
            KeyCode::Char('q') | KeyCode::Esc => return false,
            KeyCode::Char('p') => controls.paused = !controls.paused,
            KeyCode::Char('?') => controls.help = !controls.help,
            KeyCode::Tab => self.watched.next_keyspace(),
            _ => {}
        }
        true
    }

    fn draw(&self, frame: &mut Frame<'_>) {
        let away = self.away.as_ref().map(|(since, error)| (since.elapsed().as_secs(), error.as_str()));
        self.watched.draw(frame, &self.controls, away);
    }
}
