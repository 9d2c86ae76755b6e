//! Errors of a configuration file that name file, line, column, the value and what to write instead.
//!
//! *Invariant*: this file never puts a value of the configuration into an error: it could be a secret in the wrong place.

use forebay_core::{Error, nearest};
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A value that reads well and cannot be.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    /// Names and positions from the top of the file down to the value, joined by dots: `keyspace.0.hot_low`.
    pub(crate) path: String,
    /// What is wrong, and what to write instead.
    pub(crate) message: String,
}

impl Problem {
    /// A problem with the value at this path.
    pub(crate) fn new(path: impl Into<String>, message: impl Into<String>) -> Problem {
        Problem { path: path.into(), message: message.into() }
    }

    /// The same problem further down: under this section.
    pub(crate) fn under(self, section: &str) -> Problem {
        Problem { path: format!("{section}.{}", self.path), message: self.message }
    }
}

/// The parser's message, with the place and a near miss.
pub(crate) fn unreadable(file: &str, text: &str, error: &toml::de::Error) -> Error {
    let span = error.span().unwrap_or(0..0);
    // Of the line only the name before `=` is shown, never what follows it.
    let key = key_at(text, span.start);
    let mut message = error.message().trim_end().replace('\n', ", ");
    if let Some((what, names)) = unknown(&message) {
        message = match what {
            "secret" | "password" | "token" => {
                "a secret is never in the configuration: `secret_file` names a file with it, `secret_env` an \
                 environment variable"
                    .to_owned()
            }
            _ => match nearest(what, &names) {
                Some(near) => format!("unknown `{what}`: did you mean `{near}`?"),
                None => format!("unknown `{what}`: expected one of {}", names.join(", ")),
            },
        };
    } else if let Some(key) = key {
        message = format!("{key}: {message}");
    }
    Error::invalid(format!("{}: {message}", place(file, text, span.start)))
}

/// A problem, with its place. Where the value itself is not written, the section where it belongs.
pub(crate) fn located(file: &str, text: &str, problem: &Problem) -> Error {
    let at = DeTable::parse(text).ok().map_or(0, |table| find(&table, &problem.path).start);
    Error::invalid(format!("{}: {}: {}", place(file, text, at), shown(&problem.path), problem.message))
}

/// `FILE:LINE:COLUMN` of a byte.
fn place(file: &str, text: &str, at: usize) -> String {
    let before = text.get(..at).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().map_or(0, |line| line.chars().count()) + 1;
    format!("{file}:{line}:{column}")
}

/// A path as people read it: entries of lists count from 1.
fn shown(path: &str) -> String {
    let step = |step: &str| step.parse::<usize>().map_or_else(|_| step.to_owned(), |number| (number + 1).to_string());
    path.split('.').map(step).collect::<Vec<_>>().join(" ")
}

/// The line of the value at the path, or of the last part of the path that exists.
fn find(table: &Spanned<DeTable<'_>>, path: &str) -> Range<usize> {
    let mut found = 0..0;
    let mut steps = path.split('.');
    let mut next = steps.next().and_then(|first| entry(table.get_ref(), first));
    while let Some((span, value)) = next {
        found = span;
        next = steps.next().and_then(|step| match value.get_ref() {
            DeValue::Table(table) => entry(table, step),
            DeValue::Array(list) => {
                let value = list.get(step.parse::<usize>().ok()?)?;
                Some((value.span(), value))
            }
            _ => None,
        });
    }
    found
}

fn entry<'a, 'i>(table: &'a DeTable<'i>, name: &str) -> Option<(Range<usize>, &'a Spanned<DeValue<'i>>)> {
    table.iter().find(|(key, _)| key.get_ref() == name).map(|(key, value)| (key.span(), value))
}

/// The name before the `=` of the line with this byte.
fn key_at(text: &str, at: usize) -> Option<&str> {
    let from = text.get(..at)?.rfind('\n').map_or(0, |before| before + 1);
    let line = text.get(from..)?.lines().next()?;
    let key = line.split_once('=')?.0.trim();
    let plain = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.\"*".contains(&byte));
    plain.then_some(key)
}

/// The name that the parser did not know, and those that it does.
fn unknown(message: &str) -> Option<(&str, Vec<&str>)> {
    let rest = message.strip_prefix("unknown field ").or_else(|| message.strip_prefix("unknown variant "))?;
    let mut quoted = rest.split('`').skip(1).step_by(2);
    Some((quoted.next()?, quoted.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_found_or_its_last_part_that_is_there() {
        let text = "threads = 1\n[[keyspace]]\npath = \"/a\"\n[[keyspace]]\npath = \"/b\"\nhot_low = 0.9\n";
        let at = |path: &str| located("f", text, &Problem::new(path, "x")).message().to_owned();
        assert_eq!(at("keyspace.1.hot_low"), "f:6:1: keyspace 2 hot_low: x");
        assert_eq!(at("keyspace.0.hot_low"), "f:2:1: keyspace 1 hot_low: x");
        assert_eq!(at("threads"), "f:1:1: threads: x");
        assert_eq!(at("tls.key"), "f:1:1: tls key: x");
    }

    #[test]
    fn lines_and_columns_count_from_one_in_letters() {
        assert_eq!(place("f", "", 0), "f:1:1");
        assert_eq!(place("f", "a\nµb", "a\nµ".len()), "f:2:2");
    }
}
