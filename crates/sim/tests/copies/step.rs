//! Every kind of step, and the rules that a search goes by.

use super::mutants::Mutant;
use super::scenario::Scenario;
use super::state::NodeId;
use std::fmt;

/// What a search goes by.
#[derive(Clone, Copy)]
pub(super) struct Rules {
    pub(super) scenario: Scenario,
    pub(super) mutant: Option<Mutant>,
    /// One state of this number is brought to rest, to see that everything ends; 0: none.
    pub(super) settle: usize,
    /// Whether states that nothing can tell apart become one.
    pub(super) reduce: bool,
}

impl Rules {
    pub(super) const fn of(scenario: Scenario) -> Self {
        Self { scenario, mutant: None, settle: 499, reduce: true }
    }

    pub(super) fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    /// Whether a frame does something though it is of an older `since`, or of an older link.
    pub(super) fn takes_old_frames(&self) -> bool {
        use Mutant::{CopiesOfOldEpoch, DecisionsOfOldEpoch, OldAnswers, OldLinks};
        matches!(self.mutant, Some(CopiesOfOldEpoch | DecisionsOfOldEpoch | OldAnswers | OldLinks))
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// A member handles what a client sent under `since`.
    Put {
        put: usize,
        node: NodeId,
        since: u8,
    },
    /// A client gives up an attempt (mutant).
    GiveUp {
        put: usize,
    },
    /// A member handles a withdrawal (mutant).
    Withdraw {
        put: usize,
        node: NodeId,
    },
    /// The first frame of a link is read.
    Deliver {
        from: NodeId,
        to: NodeId,
    },
    /// A frame of a link that was replaced is read (mutant).
    DeliverStray,
    /// A member says what it has, as nobody asks.
    Report {
        from: NodeId,
        to: NodeId,
    },
    Digest {
        from: NodeId,
        to: NodeId,
    },
    Fill {
        from: NodeId,
        to: NodeId,
    },
    Decide {
        from: NodeId,
        to: NodeId,
    },
    /// A primary without other members has nobody to ask.
    Ready {
        node: NodeId,
    },
    Grant {
        node: NodeId,
    },
    /// A lease ends by its time, or is given back.
    EndLease {
        node: NodeId,
    },
    Verdict {
        node: NodeId,
    },
    Adopt {
        node: NodeId,
        since: u8,
    },
    /// The steward writes a map without this member, with or without another in its place.
    Drop {
        node: NodeId,
        joiner: Option<NodeId>,
    },
    Join {
        node: NodeId,
    },
    MarkFull {
        node: NodeId,
    },
    Crash {
        node: NodeId,
    },
    Restart {
        node: NodeId,
    },
    /// A link breaks, and loses its frames.
    Reset {
        from: NodeId,
        to: NodeId,
    },
}

impl Step {
    /// Whether the step ends what is under way: not what people, the steward and faults may do or not. Clients can have died.
    pub(super) fn is_progress(self, clients: bool) -> bool {
        match self {
            Self::Put { .. } => clients,
            Self::Deliver { .. } | Self::Report { .. } | Self::Digest { .. } | Self::Fill { .. } => true,
            Self::Decide { .. } | Self::Ready { .. } | Self::MarkFull { .. } => true,
            _ => false,
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Put { put, node, since } => write!(f, "{node} handles put {put} since {since}"),
            Self::GiveUp { put } => write!(f, "client withdraws put {put}"),
            Self::Withdraw { put, node } => write!(f, "{node} handles withdrawal of put {put}"),
            Self::Deliver { from, to } => write!(f, "{from} → {to}"),
            Self::DeliverStray => write!(f, "a frame of an older link"),
            Self::Report { from, to } => write!(f, "{from} reports to {to}"),
            Self::Digest { from, to } => write!(f, "{from} sends digest to {to}"),
            Self::Fill { from, to } => write!(f, "{from} fills {to}"),
            Self::Decide { from, to } => write!(f, "{from} sends verdict to {to}"),
            Self::Ready { node } => write!(f, "{node}, alone, calls the event ready"),
            Self::Grant { node } => write!(f, "{node} grants a lease"),
            Self::EndLease { node } => write!(f, "lease of {node} ends"),
            Self::Verdict { node } => write!(f, "worker gives verdict to {node}"),
            Self::Adopt { node, since } => write!(f, "{node} adopts map {since}"),
            Self::Drop { node, joiner: None } => write!(f, "steward drops {node}"),
            Self::Drop { node, joiner: Some(joiner) } => write!(f, "steward drops {node}, {joiner} joins"),
            Self::Join { node } => write!(f, "steward lets {node} join"),
            Self::MarkFull { node } => write!(f, "steward marks {node} full"),
            Self::Crash { node } => write!(f, "{node} crashes"),
            Self::Restart { node } => write!(f, "{node} restarts"),
            Self::Reset { from, to } => write!(f, "link {from} → {to} breaks"),
        }
    }
}
