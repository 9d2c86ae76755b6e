//! Faults by script: which requests go wrong, how, and how often.

/// What goes wrong with a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An error is answered, and nothing is done.
    Status {
        /// The status, such as 503.
        status: u16,
        /// The code in the body, such as `SlowDown`; empty: no body, as a proxy answers.
        code: String,
    },
    /// No answer, for as long as the client waits. Nothing is done.
    Stall,
    /// The connection is reset. Nothing is done.
    Reset,
    /// The answer's head and half of its body come, then the connection is closed.
    Cut,
    /// The answer's head and half of its body come, then nothing more.
    StallBody,
    /// A byte of the answer's body is another one.
    Flip,
    /// A byte of the request's body is another one when it arrives.
    FlipSent,
    /// The answer is whole, but has fewer bytes than were asked for.
    Short,
    /// The range that was asked for is ignored: the whole object is answered.
    Whole,
    /// The request is carried out, and the connection closed without an answer.
    LoseAnswer,
}

/// A rule: which requests, how often, what goes wrong.
#[derive(Clone, Debug)]
pub struct Fault {
    /// Requests with this method; empty: all.
    pub method: String,
    /// Requests of objects whose name contains this.
    pub name: String,
    /// Requests that match but are left alone first.
    pub skip: u32,
    /// How many are disturbed after those.
    pub times: u32,
    /// What goes wrong.
    pub kind: Kind,
}

impl Fault {
    /// The next request with this method goes wrong.
    #[must_use]
    pub fn next(method: &str, kind: Kind) -> Fault {
        Fault { method: method.to_owned(), name: String::new(), skip: 0, times: 1, kind }
    }

    /// As often as this, instead of once.
    #[must_use]
    pub fn times(self, times: u32) -> Fault {
        Fault { times, ..self }
    }

    /// After this many requests that are left alone.
    #[must_use]
    pub fn after(self, skip: u32) -> Fault {
        Fault { skip, ..self }
    }

    /// Only objects whose name contains this.
    #[must_use]
    pub fn of(self, name: &str) -> Fault {
        Fault { name: name.to_owned(), ..self }
    }
}

impl Kind {
    /// The server has too much to do, as S3 says it.
    #[must_use]
    pub fn slow_down() -> Kind {
        Kind::Status { status: 503, code: "SlowDown".to_owned() }
    }

    /// The kind with this name, as the control path has it.
    pub(super) fn named(name: &str, status: u16, code: &str) -> Option<Kind> {
        Some(match name {
            "status" => Kind::Status { status, code: code.to_owned() },
            "stall" => Kind::Stall,
            "reset" => Kind::Reset,
            "cut" => Kind::Cut,
            "stall-body" => Kind::StallBody,
            "flip" => Kind::Flip,
            "flip-sent" => Kind::FlipSent,
            "short" => Kind::Short,
            "whole" => Kind::Whole,
            "lose-answer" => Kind::LoseAnswer,
            _ => return None,
        })
    }
}

/// What goes wrong with this request, if anything: the first rule that matches and is not used up.
pub(super) fn take(faults: &mut [Fault], method: &str, name: &str) -> Option<Kind> {
    let matches = |fault: &&mut Fault| {
        fault.times > 0 && (fault.method.is_empty() || fault.method == method) && name.contains(&fault.name)
    };
    let fault = faults.iter_mut().find(matches)?;
    if fault.skip > 0 {
        fault.skip -= 1;
        return None;
    }
    fault.times -= 1;
    Some(fault.kind.clone())
}
