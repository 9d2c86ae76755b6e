//! Rules of the protocol that the search leaves out, one at a time, to show that each is needed.
//!
//! *Invariants*: each mutant is found, and by the invariant that its row names (`main`).

use super::scenario::{
    CONFLICTS, CRASH, LATE, REJOIN, REJOIN_CONFLICTS, Scenario, THREE, THREE_EPOCHS, THREE_OPEN, TWO_WORKERS,
};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mutant {
    /// Members record a verdict before the primary's log has it.
    LogAfterMembers,
    /// The worker is answered when the primary alone has recorded the verdict.
    VerdictOfOne,
    /// A member records a verdict of other content than it has.
    VerdictUncompared,
    /// What members answered counts under a later `since`.
    OldAnswers,
    /// A put is acknowledged by the full members.
    JoinerOutsideAcks,
    /// An event is confirmed by the full members.
    JoinerOutsideDigest,
    /// Answers that a client had under several `since` count together.
    AcksOfSeveralEpochs,
    /// A primary goes by an answer to a digest though its content has changed since.
    ContentGrew,
    /// A primary answers plain `Stored` in a ready event.
    StoredWhenReady,
    /// A primary answers `confirmed` to a repeat in a ready event without a digest under the present `since`.
    ConfirmedUnasked,
    /// A member with a ready mark takes what clients send.
    ReadyMemberTakes,
    /// A primary takes what clients send into a leased event.
    LeasedTakes,
    /// A client that does not get an answer withdraws what members stored.
    ClientWithdraws,
    /// Frames of a link are taken after a newer one was opened.
    OldLinks,
    /// The epoch is not compared under the lock for digests and copies.
    CopiesOfOldEpoch,
    /// The epoch is not compared under the lock for puts.
    PutsOfOldEpoch,
    /// The epoch is not compared under the lock for decisions.
    DecisionsOfOldEpoch,
    /// A fill sends the fragments of a decided event before the decision.
    FragmentsFirst,
    /// A fill, and a verdict, leave out that an event is decided where the member is joining.
    FillWithoutDecisions,
    /// A joining member records a decision without what it covers.
    DecisionWithoutContent,
    /// A primary answers the report of a joining member with fragments though the event is decided.
    ReportBeforeDecision,
    /// A fill leaves out ready marks.
    FillWithoutMarks,
    /// A fill of an open event ends what the primary does not name.
    FillEndsInOpenEvent,
    /// A joining member keeps a decision that its primary does not know.
    JoinerKeepsDecision,
    /// A node that joins again keeps its own decision and mark until the primary has compared. Does no harm: see `main`.
    RejoinKeeps,
    /// The steward does not ask under which `since` a node was filled that says it is full.
    FullOfOlderEpoch,
    /// A joining member can be elected.
    JoinerLeads,
    /// A new primary takes what another node has, whose bytes win.
    UnionAtPromotion,
    /// Members do not tell the primary what nobody digested.
    NoReports,
    /// Members report nothing of an event with a ready mark.
    MarkedNotReported,
    /// A new primary of three copies asks nobody before it grants.
    NothingAsked,
}

impl Mutant {
    /// Whether nothing false is ever said under it, but something does not come to its end.
    pub(super) fn is_found_at_rest(self) -> bool {
        matches!(self, Self::JoinerKeepsDecision | Self::NoReports | Self::MarkedNotReported)
    }
}

/// A mutant, the scenario in which it is looked for, and the invariant that falls first.
pub(super) const MUTANTS: [(Mutant, Scenario, u8); 32] = [
    (Mutant::LogAfterMembers, CRASH, 2),
    (Mutant::VerdictOfOne, TWO_WORKERS, 3),
    (Mutant::VerdictUncompared, LATE, 12),
    (Mutant::OldAnswers, TWO_WORKERS, 9),
    (Mutant::JoinerOutsideAcks, TWO_WORKERS, 11),
    (Mutant::JoinerOutsideDigest, LATE, 9),
    (Mutant::AcksOfSeveralEpochs, CONFLICTS, 1),
    (Mutant::ContentGrew, CONFLICTS, 9),
    (Mutant::StoredWhenReady, LATE, 11),
    (Mutant::ConfirmedUnasked, LATE, 1),
    (Mutant::ReadyMemberTakes, CONFLICTS, 9),
    (Mutant::LeasedTakes, LATE, 5),
    (Mutant::ClientWithdraws, CONFLICTS, 1),
    (Mutant::OldLinks, CRASH, 9),
    (Mutant::CopiesOfOldEpoch, LATE, 5),
    (Mutant::PutsOfOldEpoch, CONFLICTS, 11),
    (Mutant::DecisionsOfOldEpoch, LATE, 3),
    (Mutant::FragmentsFirst, TWO_WORKERS, 5),
    (Mutant::FillWithoutDecisions, LATE, 4),
    (Mutant::DecisionWithoutContent, TWO_WORKERS, 12),
    (Mutant::ReportBeforeDecision, TWO_WORKERS, 3),
    (Mutant::FillWithoutMarks, LATE, 5),
    (Mutant::FillEndsInOpenEvent, TWO_WORKERS, 11),
    (Mutant::JoinerKeepsDecision, TWO_WORKERS, 17),
    (Mutant::FullOfOlderEpoch, REJOIN, 11),
    (Mutant::FullOfOlderEpoch, THREE_EPOCHS, 2),
    (Mutant::JoinerLeads, TWO_WORKERS, 5),
    (Mutant::UnionAtPromotion, REJOIN_CONFLICTS, 1),
    (Mutant::NoReports, TWO_WORKERS, 9),
    (Mutant::MarkedNotReported, THREE_OPEN, 9),
    (Mutant::NothingAsked, THREE, 2),
    (Mutant::NothingAsked, THREE_OPEN, 5),
];
