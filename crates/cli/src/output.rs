//! Output of commands: text for people or JSON for programs on stdout, remarks and errors on stderr.
//!
//! *Invariant*: with `--json` stdout carries JSON only (test `json_parses` in `tests/cli/main.rs`).
//! *On failure*: a reader that went away (`forebay range … | head`) ends the command quietly with exit code 0.

use forebay_core::{Error, Result};
use serde::Serialize;
use std::fmt;
use std::io::{BufWriter, ErrorKind, IsTerminal, Stdout, Write};

/// What a command found, beside errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Done.
    Yes,
    /// The answer is no: absent, nothing ready, late, unbalanced, problems found.
    No,
    /// Ended by Ctrl-C, in order.
    Interrupted,
    /// What a program said that was called, by its exit code: it has written its answer or its error itself.
    Said(u8),
}

impl Answer {
    pub(crate) fn exit_code(self) -> u8 {
        match self {
            Answer::Yes => 0,
            Answer::No => 1,
            Answer::Interrupted => 130,
            Answer::Said(code) => code,
        }
    }

    /// `Yes` where something was there.
    pub(crate) fn found(found: bool) -> Answer {
        if found { Answer::Yes } else { Answer::No }
    }
}

/// The command's stdout, and the global options.
pub(crate) struct Output {
    /// JSON instead of text.
    pub(crate) json: bool,
    /// Open stores whose medium may have lost data.
    pub(crate) accept_loss: bool,
    stdout: BufWriter<Stdout>,
    gone: bool,
}

impl Output {
    pub(crate) fn new(json: bool, accept_loss: bool) -> Output {
        Output { json, accept_loss, stdout: BufWriter::with_capacity(64 << 10, std::io::stdout()), gone: false }
    }

    /// Raw bytes.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> Result<()> {
        let result = self.stdout.write_all(bytes);
        self.checked(result)
    }

    /// One line of text; nothing with `--json`.
    pub(crate) fn line(&mut self, text: impl fmt::Display) -> Result<()> {
        if self.json {
            return Ok(());
        }
        let result = writeln!(self.stdout, "{text}");
        self.checked(result)
    }

    /// One JSON value on a line of its own; nothing without `--json`.
    pub(crate) fn json(&mut self, value: &impl Serialize) -> Result<()> {
        if !self.json {
            return Ok(());
        }
        let text =
            serde_json::to_string(value).map_err(|error| Error::internal("answer to JSON").with_source(error))?;
        let result = writeln!(self.stdout, "{text}");
        self.checked(result)
    }

    /// What a check found, and its answer.
    pub(crate) fn problems(&mut self, problems: &[String]) -> Result<Answer> {
        for problem in problems {
            self.line(format!("  problem: {problem}"))?;
        }
        self.line(match problems.len() {
            0 => "no problems found".to_owned(),
            number => format!("{} found", crate::units::plural(number as u64, "problem")),
        })?;
        Ok(Answer::found(problems.is_empty()))
    }

    /// A remark for people, on stderr.
    pub(crate) fn note(&self, text: impl fmt::Display) {
        note(text);
    }

    /// Hands everything to the reader.
    pub(crate) fn finish(&mut self) -> Result<()> {
        let result = self.stdout.flush();
        self.checked(result)
    }

    /// Whether stdout is a terminal.
    pub(crate) fn is_terminal(&self) -> bool {
        std::io::stdout().is_terminal()
    }

    /// Whether the reader of stdout went away: no error of ours.
    pub(crate) fn reader_is_gone(&self) -> bool {
        self.gone
    }

    fn checked(&mut self, result: std::io::Result<()>) -> Result<()> {
        result.map_err(|error| {
            // Remembered, because the command still ends with this error: `main` turns it into success.
            self.gone |= error.kind() == ErrorKind::BrokenPipe;
            Error::unavailable("cannot write to stdout").with_source(error)
        })
    }
}

/// Exit code of a start that is refused because what was served before is gone.
const GONE: u8 = 11;

/// Exit code of a command that ends with this error.
pub(crate) fn exit_code(error: &Error) -> u8 {
    // By the source, not by the kind: a script that starts servers must tell this refusal from other corruption.
    let is_gone = std::error::Error::source(error).is_some_and(|source| source.is::<forebay_server::Gone>());
    if is_gone { GONE } else { error.kind().exit_code() }
}

/// Writes an error to stderr: a line with the kind, or an object with what a program needs.
pub(crate) fn report(error: &Error, json: bool) {
    if json {
        let value = serde_json::json!({ "error": {
            "kind": error.kind().name(),
            "message": error.message(),
            "cause": std::error::Error::source(error).map(ToString::to_string),
            "next_move": error.kind().next_move(),
            "full": error.shortage(),
            "exit_code": exit_code(error),
        }});
        note(value);
    } else {
        note(format!("forebay: {error}"));
    }
}

/// A line on stderr. Where nobody reads it, nothing can be said, and nothing else should fail for it.
pub(crate) fn note(text: impl fmt::Display) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Lines of a hex dump: offset, sixteen bytes, their ASCII form.
pub(crate) fn hex_dump(bytes: &[u8]) -> impl Iterator<Item = String> + '_ {
    bytes.chunks(16).enumerate().map(|(row, chunk)| {
        let mut hex = String::with_capacity(50);
        for (at, byte) in chunk.iter().enumerate() {
            hex.push_str(if at == 8 { "  " } else { " " });
            hex.push_str(&format!("{byte:02x}"));
        }
        let ascii: String =
            chunk.iter().map(|&byte| if (0x20..0x7f).contains(&byte) { char::from(byte) } else { '.' }).collect();
        format!("{:08x} {hex:<50} |{ascii}|", row * 16)
    })
}

/// Bytes as one hexadecimal word.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_forms() {
        let bytes: Vec<u8> = (0x3c..0x50).collect();
        let lines: Vec<String> = hex_dump(&bytes).collect();
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0], "00000000  3c 3d 3e 3f 40 41 42 43  44 45 46 47 48 49 4a 4b  |<=>?@ABCDEFGHIJK|");
        assert!(lines[1].starts_with("00000010  4c 4d 4e 4f") && lines[1].ends_with("|LMNO|"));
        assert_eq!(lines[0].find('|'), lines[1].find('|'));
        assert_eq!(hex(&[0, 255]), "00ff");
        assert_eq!(hex_dump(&[]).count(), 0);
    }
}
