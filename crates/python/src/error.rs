//! Errors of the dataset crate as the classes of `forebay._errors`, one a kind.

use forebay_dataset::Error;
use pyo3::prelude::*;
use std::error::Error as _;

/// The exception for an error: the class has the name of its kind.
pub(crate) fn raise(py: Python<'_>, error: &Error) -> PyErr {
    let mut message = error.message().to_owned();
    if let Some(source) = error.source() {
        message.push_str(&format!(" ({source})"));
    }
    let class = py.import("forebay._errors").and_then(|module| module.getattr(error.kind().name()));
    match class.and_then(|class| class.call1((message,))) {
        Ok(exception) => PyErr::from_value(exception),
        Err(failed) => failed,
    }
}

/// The result of a call without the interpreter.
pub(crate) trait OrRaise<T> {
    /// The value, or the exception.
    fn or_raise(self, py: Python<'_>) -> PyResult<T>;
}

impl<T> OrRaise<T> for forebay_dataset::Result<T> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|error| raise(py, &error))
    }
}
