//! One screen as plain text.

use super::screen::CUT;
use forebay_core::{Error, Result};
use ratatui::backend::TestBackend;
use ratatui::{Frame, Terminal};

/// Width at which no line of a screen is cut.
const WIDTH_MAX: u16 = 4096;

/// The screen as lines, as wide as its longest text needs, and at least this wide.
///
/// # Errors
/// As [`plain`].
pub(super) fn uncut(draw: impl Fn(&mut Frame<'_>), mut width: u16, height: u16) -> Result<String> {
    let cuts = |text: &str| text.matches(CUT).count();
    // The texts may have such a sign of their own.
    let own = cuts(&plain(&draw, WIDTH_MAX, height)?);
    loop {
        let text = plain(&draw, width, height)?;
        if cuts(&text) <= own || width >= WIDTH_MAX {
            return Ok(text);
        }
        width += width / 2;
    }
}

/// The screen as lines, without what is empty at their ends.
///
/// # Errors
/// `Internal` where it cannot be drawn, which memory always can.
pub(super) fn plain(draw: impl FnOnce(&mut Frame<'_>), width: u16, height: u16) -> Result<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).map_err(undrawn)?;
    terminal.draw(draw).map_err(undrawn)?;
    let cells = terminal.backend().buffer();
    let line = |y: u16| {
        let line: String = (0..width).filter_map(|x| cells.cell((x, y))).map(|cell| cell.symbol()).collect();
        line.trim_end().to_owned()
    };
    let mut lines: Vec<String> = (0..height).map(line).collect();
    while lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    Ok(lines.join("\n"))
}

fn undrawn(error: impl std::fmt::Display) -> Error {
    Error::internal(format!("the screen cannot be drawn: {error}"))
}
