//! The one place where a scenario is run and reported: Ctrl-C, progress, summary, what it came to.
//!
//! ```text
//! scenario(stop, told) ─Progress─▶ a line on stderr
//!         └─▶ summary ─▶ JSON │ text (`report`) and what holds or does not ─▶ Verdict ─▶ Answer
//! ```

use crate::output::{Answer, Output};
use crate::{report, signal, units};
use forebay_core::Result;
use forebay_daq::{Figure, Phase, Progress, Summary, Told, Verdict};
use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Runs a scenario and reports it.
///
/// # Errors
/// Those of the scenario.
pub(crate) fn run<S: Summary>(
    out: &mut Output,
    scenario: impl FnOnce(&AtomicBool, &mut Told<'_>) -> Result<S>,
) -> Result<Answer> {
    let (summary, stopped) = execute(out, scenario)?;
    report(out, &summary)?;
    Ok(summary.verdict(stopped).into())
}

/// Runs a scenario; its summary, and whether Ctrl-C ended it.
///
/// # Errors
/// Those of the scenario.
pub(crate) fn execute<S: Summary>(
    out: &Output,
    scenario: impl FnOnce(&AtomicBool, &mut Told<'_>) -> Result<S>,
) -> Result<(S, bool)> {
    let stop = signal::stop_flag()?;
    let mut line = ProgressLine::new(out.json);
    let summary = scenario(&stop, &mut |progress| line.show(progress));
    // Also where the scenario failed: the error has a line of its own.
    line.end();
    Ok((summary?, stop.load(Ordering::Relaxed)))
}

/// Shows a summary, and at its end whether what it claims holds.
///
/// # Errors
/// Where nothing can be written.
pub(crate) fn report<S: Summary>(out: &mut Output, summary: &S) -> Result<()> {
    out.json(summary)?;
    for line in report::lines(summary)? {
        out.line(line)?;
    }
    let problems = summary.problems();
    if problems.is_empty() {
        return out.line(format!("\n{}", summary.claim()));
    }
    debug_assert!(summary.claim().contains(':'), "a claim is a word, a colon, and what it means");
    let word = summary.claim().split(':').next().unwrap_or_default().to_uppercase();
    out.line(format!("\nNOT {word}"))?;
    problems.iter().try_for_each(|problem| out.line(format!("  {problem}")))
}

impl From<Verdict> for Answer {
    fn from(verdict: Verdict) -> Answer {
        match verdict {
            Verdict::Sound => Answer::Yes,
            Verdict::Unsound => Answer::No,
            Verdict::Stopped => Answer::Interrupted,
        }
    }
}

/// One line that lives on a terminal; elsewhere a line per second; with `--json` nothing elsewhere.
struct ProgressLine {
    terminal: bool,
    json: bool,
    shown: Option<Instant>,
    width: usize,
}

impl ProgressLine {
    fn new(json: bool) -> ProgressLine {
        ProgressLine { terminal: std::io::stderr().is_terminal(), json, shown: None, width: 0 }
    }

    fn show(&mut self, progress: &Progress) {
        if self.terminal {
            let text = text(progress);
            // Blanks cover what a longer line left behind. Progress that cannot be shown stops nothing.
            let _ = write!(std::io::stderr(), "\r{text:<width$}", width = self.width);
            self.width = text.chars().count();
        } else if !self.json && self.shown.is_none_or(|at| at.elapsed() >= Duration::from_millis(990)) {
            self.shown = Some(Instant::now());
            let _ = writeln!(std::io::stderr(), "{}", text(progress));
        }
    }

    fn end(&self) {
        if self.terminal && self.width > 0 {
            let _ = writeln!(std::io::stderr());
        }
    }
}

/// Progress as one line.
fn text(progress: &Progress) -> String {
    let phase = match progress.phase {
        Phase::Taking => "taking",
        Phase::Draining => "draining",
    };
    let mut line = format!("{:6.1} s {phase}", progress.elapsed_s);
    for (name, figure) in &progress.figures {
        let value = match figure {
            Figure::Count(count) => count.to_string(),
            Figure::PerSecond(rate) => format!("{}/s", units::count(*rate)),
            Figure::BytesPerSecond(rate) => format!("{:.2} GB/s", rate / 1e9),
            Figure::Bytes(bytes) => units::bytes(*bytes),
            Figure::Share(share) => format!("{:.0} %", share * 100.0),
            Figure::Words(words) => words.clone(),
        };
        line.push_str(&format!("  {name} {value}"));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_every_figure_with_its_unit() {
        let figures = vec![
            ("in", Figure::BytesPerSecond(6.3e9)),
            ("events", Figure::PerSecond(1234.4)),
            ("fill", Figure::Share(0.314)),
            ("ready", Figure::Count(12)),
            ("written", Figure::Bytes(3 << 20)),
            ("INHIBIT", Figure::Words("by selection: hot fill 92 %".to_owned())),
        ];
        let progress = Progress { phase: Phase::Taking, elapsed_s: 3.25, figures };
        let expected = "   3.2 s taking  in 6.30 GB/s  events 1.23 k/s  fill 31 %  ready 12  written 3.00 MiB  \
                        INHIBIT by selection: hot fill 92 %";
        assert_eq!(text(&progress), expected);
    }
}
