//! Why a command was refused, in the words of Redis where Redis has the same case.

use forebay_core::{Error, Kind};

/// An error's line, and the kind under which it is counted.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) line: String,
    pub(super) kind: Kind,
}

impl Failure {
    /// Fix the call: `-ERR` and what is wrong with it.
    pub(super) fn err(message: impl AsRef<str>) -> Failure {
        Failure::coded("ERR", message)
    }

    /// With a code of its own.
    pub(super) fn coded(code: &str, message: impl AsRef<str>) -> Failure {
        Failure { line: format!("{code} {}", message.as_ref()), kind: Kind::Invalid }
    }

    /// Options that do not fit together.
    pub(super) fn syntax() -> Failure {
        Failure::err("syntax error")
    }

    /// A number that is none.
    pub(super) fn number() -> Failure {
        Failure::err("value is not an integer or out of range")
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let (kind, text) = (error.kind(), error.to_string());
        let message = text.split_once(": ").map_or(text.as_str(), |(_, message)| message);
        Failure { line: format!("{} {message}", kind.name().to_uppercase()), kind }
    }
}
