//! The one error type: a kind named by the caller's next move, a message with the values that matter, and a source.
//!
//! Absence is `Option`, never an error. The table of kinds below also makes the numbers on the wire and the exit
//! codes; later the C enum, the C++ exceptions and the Python classes.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The kind of an error: the caller's next move. A kind exists if and only if a caller could react to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Fix the call: the arguments cannot be served, now or later.
    Invalid,
    /// Decide: something else is already there.
    Conflict,
    /// Slow down: no space of the class that the call needs; [`Error::shortage`] says where, why and who can change it.
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

/// One row per kind, in the order of [`Kind`]: its number, its name, its next move. A number is never given to another kind:
/// it is on the wire and the exit code of the command line.
const TABLE: [(Kind, u8, &str, &str); 9] = [
    (Kind::Invalid, 2, "Invalid", "fix the call"),
    (Kind::Conflict, 3, "Conflict", "decide"),
    (Kind::Full, 4, "Full", "slow down"),
    (Kind::Unavailable, 5, "Unavailable", "retry later"),
    (Kind::Fenced, 6, "Fenced", "refresh the lease or the map"),
    (Kind::OutcomeUnknown, 7, "OutcomeUnknown", "repeat the same call"),
    (Kind::Corrupt, 8, "Corrupt", "use another copy, report"),
    (Kind::Closed, 9, "Closed", "reopen"),
    (Kind::Internal, 10, "Internal", "report a bug"),
];

// `row` indexes the table by the kind.
const _: () = {
    let mut at = 0;
    while at < TABLE.len() {
        assert!(TABLE[at].0 as usize == at, "the table has a row for each kind, in their order");
        at += 1;
    }
};

impl Kind {
    /// How many there are.
    pub const COUNT: usize = TABLE.len();

    fn row(self) -> &'static (Kind, u8, &'static str, &'static str) {
        &TABLE[self as usize]
    }

    /// The kind's number: on the wire, and wherever a program tells kinds apart without their names.
    pub fn code(self) -> u8 {
        self.row().1
    }

    /// The kind of this number.
    pub fn of_code(code: u8) -> Option<Kind> {
        TABLE.iter().find(|row| row.1 == code).map(|row| row.0)
    }

    /// The kind's name, as the documentation writes it.
    pub fn name(self) -> &'static str {
        self.row().2
    }

    /// What the caller does next, in a few words.
    pub fn next_move(self) -> &'static str {
        self.row().3
    }

    /// Exit code of the command line for an error of this kind: its number (0 is success, 1 is "the answer is no").
    pub fn exit_code(self) -> u8 {
        self.code()
    }

    /// All kinds, in the order of the table.
    pub fn all() -> impl Iterator<Item = Kind> {
        TABLE.iter().map(|row| row.0)
    }
}

/// What is full where an error is [`Kind::Full`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shortage {
    /// Where there is no space: `hot level`, `warm level`, `device` and its name, `debug stream`; or what has reached its
    /// limit, such as `leases`.
    pub level: String,
    /// The role that can change that: `readout`, `selection`, `archive`, `operator`, `warm level`, `debug stream`, a device,
    /// or the holder of guards or pins by name.
    pub owner: String,
    /// What fills it, in words and figures.
    pub cause: String,
}

/// An error with its kind, a message that names the values that matter, and what caused it.
#[derive(Debug)]
pub struct Error {
    kind: Kind,
    message: String,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
    earlier_try_unknown: bool,
    unanswered: bool,
    shortage: Option<Box<Shortage>>,
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
        let (earlier_try_unknown, unanswered) = (false, false);
        Error { kind, message: message.into(), source: None, earlier_try_unknown, unanswered, shortage: None }
    }

    /// The same error, without what caused it, for another thing that it concerns.
    #[must_use]
    pub fn again(&self) -> Error {
        self.in_words(self.message.clone())
    }

    /// The same as [`Error::again`], in other words.
    #[must_use]
    pub fn in_words(&self, message: impl Into<String>) -> Error {
        let Error { kind, earlier_try_unknown, unanswered, .. } = *self;
        let (message, shortage) = (message.into(), self.shortage.clone());
        Error { kind, message, source: None, earlier_try_unknown, unanswered, shortage }
    }

    constructors!(
        invalid => Invalid, conflict => Conflict, full => Full, unavailable => Unavailable, fenced => Fenced,
        unknown => OutcomeUnknown, corrupt => Corrupt, closed => Closed, internal => Internal
    );

    /// An error of kind [`Kind::Full`] whose message is the cause.
    #[cold]
    pub fn full_of(level: impl Into<String>, owner: impl Into<String>, cause: impl Into<String>) -> Error {
        let shortage = Shortage { level: level.into(), owner: owner.into(), cause: cause.into() };
        Error::full(shortage.cause.clone()).with_shortage(shortage)
    }

    /// The same error with what is full. Other kinds than `Full` stay as they are.
    #[must_use]
    #[cold]
    pub fn with_shortage(mut self, shortage: Shortage) -> Error {
        if self.kind == Kind::Full {
            self.shortage = Some(Box::new(shortage));
        }
        self
    }

    /// What is full, and who can change that; `None` for other kinds than `Full`, and where numbers or formats end and nobody
    /// can change it.
    pub fn shortage(&self) -> Option<&Shortage> {
        self.shortage.as_deref()
    }

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

    /// The same error where the server that it is of was not reached, or has changed nothing that counts.
    #[must_use]
    #[cold]
    pub fn of_no_answer(mut self) -> Error {
        self.unanswered = true;
        self
    }

    /// Whether the server that it is of was not reached, or has changed nothing that counts, such as a lease that nobody got: the same
    /// call may be made again. Only clients answer it.
    pub fn is_unanswered(&self) -> bool {
        self.unanswered && !self.earlier_try_unknown && self.kind != Kind::OutcomeUnknown
    }

    /// Whether no answer came, in time or at all, whatever became of the call. Only clients answer it.
    pub fn is_silence(&self) -> bool {
        self.unanswered
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
    fn every_kind_has_a_number_of_its_own_that_never_changes() {
        use Kind::*;
        let kinds = [Invalid, Conflict, Full, Unavailable, Fenced, OutcomeUnknown, Corrupt, Closed, Internal];
        for (code, kind) in (2..).zip(kinds) {
            assert_eq!((kind.code(), Kind::of_code(code)), (code, Some(kind)));
            assert_eq!(kind.name(), format!("{kind:?}"));
        }
        assert_eq!((0..=u8::MAX).filter_map(Kind::of_code).count(), Kind::COUNT);
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
    fn only_what_is_full_has_a_shortage() {
        let full = Error::full_of("hot level", "selection", "hot fill 92 %: 71 % ready");
        assert_eq!(full.message(), "hot fill 92 %: 71 % ready");
        let shortage = full.shortage().unwrap().clone();
        assert_eq!((&shortage.level[..], &shortage.owner[..]), ("hot level", "selection"));
        assert_eq!(full.of_repeat().shortage(), Some(&shortage));
        assert_eq!(Error::closed("over").with_shortage(shortage).shortage(), None);
    }

    #[test]
    fn display_carries_kind_message_and_source() {
        let error = Error::corrupt("entry 7").with_source(std::io::Error::other("disk says no"));
        assert_eq!(error.to_string(), "Corrupt: entry 7 (disk says no)");
    }
}
