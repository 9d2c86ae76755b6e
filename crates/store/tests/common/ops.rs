//! Operations and their answers, with a text form of one line each, so that a child process can report them to its
//! parent.

use forebay_store::core::{Kind, Token};

/// One call on the store; events are numbers within the tests' one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Put {
        event: u64,
        source: u64,
        tag: u64,
        reserve: bool,
    },
    Update {
        event: u64,
        source: u64,
        tag: u64,
        token: Option<Token>,
    },
    Remove {
        event: u64,
        source: u64,
    },
    RemoveEvent {
        event: u64,
    },
    /// Whole events, both ends included.
    RemoveRange {
        from: u64,
        to: u64,
    },
    Seal {
        event: u64,
    },
    Lease {
        event: u64,
    },
    GetAny {
        n: usize,
        stage: u8,
    },
    /// With sources of its own.
    Announce {
        event: u64,
        sources: Vec<u64>,
    },
    /// To the second stage, with a result of this tag or none.
    Pass {
        event: u64,
        token: Token,
        result: Option<u64>,
    },
    /// Into one stream that keeps these sources, with a result of this tag or none.
    AcceptInto {
        event: u64,
        token: Token,
        keep: Vec<u64>,
        result: Option<u64>,
    },
    Replay {
        event: u64,
    },
    /// Holds all events of the lane back.
    Hold,
    ReleaseHold {
        id: u64,
    },
    /// From this event on.
    Mask {
        source: u64,
        from: u64,
    },
    /// From this event on.
    Unmask {
        source: u64,
        from: u64,
    },
    Accept {
        event: u64,
        token: Token,
    },
    Reject {
        event: u64,
        token: Token,
    },
    Requeue {
        event: u64,
        token: Token,
    },
    Release {
        event: u64,
    },
}

/// One granted lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) event: u64,
    pub(crate) token: Token,
    pub(crate) delivery: u8,
}

/// What a call answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Stored,
    Duplicate,
    Late,
    Version(u16),
    /// Success, or `true`.
    Done,
    /// `false` or `None`.
    Absent,
    Count(u64),
    Grants(Vec<Grant>),
    Failed(Kind),
}

/// `3,1,2`, or `-` for none.
fn list(numbers: &[u64]) -> String {
    let all: Vec<String> = numbers.iter().map(u64::to_string).collect();
    if all.is_empty() { "-".to_owned() } else { all.join(",") }
}

fn numbers(text: &str) -> Option<Vec<u64>> {
    if text == "-" {
        return Some(Vec::new());
    }
    text.split(',').map(|number| number.parse().ok()).collect()
}

impl Op {
    /// One line without its end.
    pub(crate) fn line(&self) -> String {
        match self {
            Op::Put { event, source, tag, reserve } => format!("put {event} {source} {tag} {reserve}"),
            Op::Update { event, source, tag, token } => {
                let token = token.map_or("-".to_owned(), |token| token.to_string());
                format!("update {event} {source} {tag} {token}")
            }
            Op::Remove { event, source } => format!("remove {event} {source}"),
            Op::RemoveEvent { event } => format!("remove-event {event}"),
            Op::RemoveRange { from, to } => format!("remove-range {from} {to}"),
            Op::Seal { event } => format!("seal {event}"),
            Op::Lease { event } => format!("lease {event}"),
            Op::GetAny { n, stage } => format!("get-any {n} {stage}"),
            Op::Announce { event, sources } => format!("announce {event} {}", list(sources)),
            Op::Pass { event, token, result } => format!("pass {event} {token} {}", result.unwrap_or_default()),
            Op::AcceptInto { event, token, keep, result } => {
                format!("accept-into {event} {token} {} {}", list(keep), result.unwrap_or_default())
            }
            Op::Replay { event } => format!("replay {event}"),
            Op::Hold => "hold 0".to_owned(),
            Op::ReleaseHold { id } => format!("release-hold {id}"),
            Op::Mask { source, from } => format!("mask {source} {from}"),
            Op::Unmask { source, from } => format!("unmask {source} {from}"),
            Op::Accept { event, token } => format!("accept {event} {token}"),
            Op::Reject { event, token } => format!("reject {event} {token}"),
            Op::Requeue { event, token } => format!("requeue {event} {token}"),
            Op::Release { event } => format!("release {event}"),
        }
    }

    /// Reads what [`Op::line`] wrote.
    pub(crate) fn parse(line: &str) -> Option<Op> {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words.get(at)?.parse::<u64>().ok();
        let token = |at: usize| words.get(at)?.parse::<Token>().ok();
        let event = number(1)?;
        Some(match *words.first()? {
            "put" => {
                Op::Put { event, source: number(2)?, tag: number(3)?, reserve: words.get(4)?.parse::<bool>().ok()? }
            }
            "update" => Op::Update { event, source: number(2)?, tag: number(3)?, token: token(4) },
            "remove" => Op::Remove { event, source: number(2)? },
            "remove-event" => Op::RemoveEvent { event },
            "remove-range" => Op::RemoveRange { from: event, to: number(2)? },
            "seal" => Op::Seal { event },
            "lease" => Op::Lease { event },
            "get-any" => Op::GetAny { n: event as usize, stage: number(2)? as u8 },
            "announce" => Op::Announce { event, sources: numbers(words.get(2)?)? },
            "pass" => Op::Pass { event, token: token(2)?, result: number(3).filter(|tag| *tag > 0) },
            "accept-into" => {
                let (keep, result) = (numbers(words.get(3)?)?, number(4).filter(|tag| *tag > 0));
                Op::AcceptInto { event, token: token(2)?, keep, result }
            }
            "replay" => Op::Replay { event },
            "hold" => Op::Hold,
            "release-hold" => Op::ReleaseHold { id: event },
            "mask" => Op::Mask { source: event, from: number(2)? },
            "unmask" => Op::Unmask { source: event, from: number(2)? },
            "accept" => Op::Accept { event, token: token(2)? },
            "reject" => Op::Reject { event, token: token(2)? },
            "requeue" => Op::Requeue { event, token: token(2)? },
            "release" => Op::Release { event },
            _ => return None,
        })
    }
}

impl Answer {
    /// One line without its end.
    pub(crate) fn line(&self) -> String {
        match self {
            Answer::Stored => "stored".to_owned(),
            Answer::Duplicate => "duplicate".to_owned(),
            Answer::Late => "late".to_owned(),
            Answer::Version(version) => format!("version {version}"),
            Answer::Done => "done".to_owned(),
            Answer::Absent => "absent".to_owned(),
            Answer::Count(count) => format!("count {count}"),
            Answer::Grants(grants) => {
                let one = |grant: &Grant| format!(" {}:{}:{}", grant.event, grant.token, grant.delivery);
                format!("grants{}", grants.iter().map(one).collect::<String>())
            }
            Answer::Failed(kind) => format!("failed {}", kind.name()),
        }
    }

    /// Reads what [`Answer::line`] wrote.
    pub(crate) fn parse(line: &str) -> Option<Answer> {
        let words: Vec<&str> = line.split(' ').collect();
        Some(match *words.first()? {
            "stored" => Answer::Stored,
            "duplicate" => Answer::Duplicate,
            "late" => Answer::Late,
            "version" => Answer::Version(words.get(1)?.parse().ok()?),
            "done" => Answer::Done,
            "absent" => Answer::Absent,
            "count" => Answer::Count(words.get(1)?.parse().ok()?),
            "grants" => Answer::Grants(words[1..].iter().map(|word| Grant::parse(word)).collect::<Option<_>>()?),
            "failed" => Answer::Failed(Kind::all().find(|kind| Some(&kind.name()) == words.get(1))?),
            _ => return None,
        })
    }
}

impl Grant {
    fn parse(word: &str) -> Option<Grant> {
        let mut parts = word.split(':');
        let grant = Grant {
            event: parts.next()?.parse().ok()?,
            token: parts.next()?.parse().ok()?,
            delivery: parts.next()?.parse().ok()?,
        };
        parts.next().is_none().then_some(grant)
    }
}
