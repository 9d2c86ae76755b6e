//! The one error type: a kind named by the caller's next move, a message with the values that matter, and a source.
//!
//! Absence is `Option`, never an error. The table of kinds below also makes exit codes; later the C enum, the C++
//! exceptions and the Python classes.

use std::fmt;

/// What the caller can do next. A kind exists if and only if a caller could react to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Fix the call: the arguments cannot be served, now or later.
    Invalid,
    /// Decide: something else already stands there.
    Conflict,
    /// Slow down: no space of the class that the call needs; the message says what fills it.
    Full,
    /// Retry later: the resource exists but is busy or away.
    Unavailable,
    /// The token, epoch or lease is not the one in force.
    Fenced,
    /// Repeat the same call: it is not known whether it took effect, or whether it survives the loss of the hot level.
    OutcomeUnknown,
    /// Use another copy and report: stored bytes do not verify.
    Corrupt,
    /// Reopen: this handle or run takes no more calls.
    Closed,
    /// Report a bug.
    Internal,
}

/// One row per kind: name, next move, exit code of the command line.
const TABLE: [(Kind, &str, &str, u8); 9] = [
    (Kind::Invalid, "Invalid", "fix the call", 2),
    (Kind::Conflict, "Conflict", "decide", 3),
    (Kind::Full, "Full", "slow down", 4),
    (Kind::Unavailable, "Unavailable", "retry later", 5),
    (Kind::Fenced, "Fenced", "refresh the lease or the map", 6),
    (Kind::OutcomeUnknown, "OutcomeUnknown", "repeat the same call", 7),
    (Kind::Corrupt, "Corrupt", "use another copy, report", 8),
    (Kind::Closed, "Closed", "reopen", 9),
    (Kind::Internal, "Internal", "report a bug", 10),
];

impl Kind {
    fn row(self) -> &'static (Kind, &'static str, &'static str, u8) {
        TABLE.iter().find(|row| row.0 == self).unwrap_or(&TABLE[8])
    }

    /// The kind's name, as the documentation writes it.
    pub fn name(self) -> &'static str {
        self.row().1
    }

    /// What the caller does next, in a few words.
    pub fn next_move(self) -> &'static str {
        self.row().2
    }

    /// Exit code of the command line for an error of this kind (2 to 10; 0 is success, 1 is "the answer is no").
    pub fn exit_code(self) -> u8 {
        self.row().3
    }

    /// All kinds, in the order of the table.
    pub fn all() -> impl Iterator<Item = Kind> {
        TABLE.iter().map(|row| row.0)
    }
}

/// An error with its kind, a message that names the values that matter, and what caused it.
#[derive(Debug)]
pub struct Error {
    kind: Kind,
    message: String,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
    earlier_try_unknown: bool,
}

/// What the message of an error says besides where an earlier try has no answer.
const EARLIER_TRY: &str = "the answer to an earlier try was lost; it is not known whether that try took effect";

/// Result with Forebay's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

macro_rules! constructors {
    ($($name:ident => $kind:ident),*) => { $(
        #[doc = concat!("An error of kind [`Kind::", stringify!($kind), "`].")]
        #[cold]
        pub fn $name(message: impl Into<String>) -> Error {
            Error::new(Kind::$kind, message)
        }
    )* };
}

impl Error {
    /// An error of the given kind.
    #[cold]
    pub fn new(kind: Kind, message: impl Into<String>) -> Error {
        Error { kind, message: message.into(), source: None, earlier_try_unknown: false }
    }

    constructors!(
        invalid => Invalid, conflict => Conflict, full => Full, unavailable => Unavailable, fenced => Fenced,
        unknown => OutcomeUnknown, corrupt => Corrupt, closed => Closed, internal => Internal
    );

    /// The same error with the cause attached.
    #[must_use]
    pub fn with_source(mut self, source: impl std::error::Error + Send + Sync + 'static) -> Error {
        self.source = Some(Box::new(source));
        self
    }

    /// The same error as the answer to a repeat, where the answer to an earlier try of the same call was lost. The kind stays:
    /// it says what to do about the try that was answered.
    #[must_use]
    #[cold]
    pub fn of_repeat(mut self) -> Error {
        // `OutcomeUnknown` says so by its kind.
        if !self.earlier_try_unknown && self.kind != Kind::OutcomeUnknown {
            self.message = format!("{} ({EARLIER_TRY})", self.message);
        }
        self.earlier_try_unknown = true;
        self
    }

    /// Whether the same call was sent before without an answer: this error says what became of the last try, and not
    /// whether an earlier one took effect. A put that is answered so may have been stored. Only clients answer it, never an
    /// embedded store.
    pub fn earlier_try_unknown(&self) -> bool {
        self.earlier_try_unknown
    }

    /// What the caller can do next.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The message alone, without the kind.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.kind.name(), self.message)?;
        if let Some(source) = &self.source {
            write!(out, " ({source})")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| source.as_ref() as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_own_row_and_exit_code() {
        let mut codes: Vec<u8> = Kind::all().map(Kind::exit_code).collect();
        codes.dedup();
        assert_eq!(codes.len(), 9);
        for kind in Kind::all() {
            assert_eq!(kind.row().0, kind);
            assert_eq!(kind.name(), format!("{kind:?}"));
        }
    }

    #[test]
    fn a_repeat_keeps_the_kind_and_says_once_that_an_earlier_try_is_unknown() {
        let error = Error::closed("run 1 is closed");
        assert!(!error.earlier_try_unknown());
        let error = error.of_repeat().of_repeat();
        assert!(error.earlier_try_unknown());
        assert_eq!(error.to_string(), format!("Closed: run 1 is closed ({EARLIER_TRY})"));
        let unknown = Error::unknown("no answer").of_repeat();
        assert_eq!((unknown.message(), unknown.earlier_try_unknown()), ("no answer", true));
    }

    #[test]
    fn display_carries_kind_message_and_source() {
        let error = Error::corrupt("entry 7").with_source(std::io::Error::other("disk says no"));
        assert_eq!(error.to_string(), "Corrupt: entry 7 (disk says no)");
    }
}
