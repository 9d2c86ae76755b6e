//! What a search begins with, and its bounds.
//!
//! The first search for a violation is cheap whatever the bounds; only a search without one goes through all states.
//!
//! *Not here*: bounds of the model itself, which are in `state`.

use super::state::{Answer, Content, EPOCHS_MAX, Node, Put, Slot, State, Token, bit};

#[derive(Clone, Copy, Debug)]
pub(super) struct Scenario {
    /// For a person.
    pub(super) name: &'static str,
    /// Members of the slot: 2 or 3.
    pub(super) copies: u8,
    /// Changes of members or primary, with the first map.
    pub(super) epochs: u8,
    pub(super) puts: &'static [Put],
    /// The first put is acknowledged and the event ready when the search begins.
    pub(super) ready: bool,
    /// Each can have one lease.
    pub(super) workers: u8,
    pub(super) crashes: u8,
    /// Frames under way on one link, in each direction: 1 or 2.
    pub(super) frames: usize,
    /// Links break, and lose what is under way.
    pub(super) resets: bool,
}

const A: Put = Put { source: 0, bytes: 1 };
const OTHER_A: Put = Put { source: 0, bytes: 2 };
const B: Put = Put { source: 1, bytes: 1 };

const BASE: Scenario = Scenario {
    name: "",
    copies: 2,
    epochs: 2,
    puts: &[A],
    ready: false,
    workers: 0,
    crashes: 0,
    frames: 1,
    resets: false,
};

pub(super) const TWO_WORKERS: Scenario = Scenario { name: "two workers", epochs: 3, workers: 2, frames: 2, ..BASE };
pub(super) const LATE: Scenario =
    Scenario { name: "late fragment", epochs: 3, puts: &[A, B], ready: true, workers: 1, frames: 2, ..BASE };
pub(super) const CRASH: Scenario =
    Scenario { name: "crash", puts: &[A, B], ready: true, workers: 2, crashes: 1, frames: 2, resets: true, ..BASE };
pub(super) const CONFLICTS: Scenario = Scenario { name: "conflicts", puts: &[A, OTHER_A, B], ..BASE };
pub(super) const REJOIN: Scenario = Scenario { name: "rejoin", epochs: 4, workers: 1, ..BASE };
pub(super) const THREE: Scenario =
    Scenario { name: "three copies", copies: 3, epochs: 3, ready: true, workers: 2, frames: 2, ..BASE };
pub(super) const THREE_OPEN: Scenario = Scenario { name: "three copies, open", ready: false, frames: 1, ..THREE };

// Larger ones, which the default tests do not search to the end.
pub(super) const REJOIN_CONFLICTS: Scenario =
    Scenario { name: "rejoin, conflicts", epochs: 4, puts: &[A, OTHER_A], ..BASE };
pub(super) const LATE_WORKERS: Scenario = Scenario { name: "late fragment, two workers", workers: 2, ..LATE };
pub(super) const LATE_EPOCHS: Scenario = Scenario { name: "late fragment, four epochs", epochs: 4, frames: 1, ..LATE };
pub(super) const CRASH_EPOCHS: Scenario = Scenario { name: "crash, three epochs", epochs: 3, resets: false, ..CRASH };
pub(super) const CRASH_OPEN: Scenario = Scenario { name: "crash, open", ready: false, frames: 1, ..CRASH };
pub(super) const FOUR_EPOCHS: Scenario =
    Scenario { name: "two workers, four epochs", epochs: 4, frames: 1, ..TWO_WORKERS };
pub(super) const THREE_FRAMES: Scenario = Scenario { name: "three copies, open, two frames", frames: 2, ..THREE_OPEN };
pub(super) const THREE_EPOCHS: Scenario = Scenario { name: "three copies, four epochs", epochs: 4, frames: 1, ..THREE };
pub(super) const THREE_LATE: Scenario = Scenario { name: "three copies, late fragment", puts: &[A, B], ..THREE };
pub(super) const CONFLICTS_FRAMES: Scenario = Scenario { name: "conflicts, two frames", frames: 2, ..CONFLICTS };

impl Scenario {
    pub(super) fn first(&self) -> State {
        let members = if self.copies == 3 { 0b111 } else { 0b011 };
        let mut state = State {
            nodes: [Node { up: true, since: 1, ..Node::default() }; 3],
            slots: [Slot::default(); EPOCHS_MAX],
            latest: 1,
            full: members,
            tokens: [Token::default(); 2],
            granted: 0,
            answers: [Answer::Pending; 3],
            acks: [[0; EPOCHS_MAX]; 3],
            withdrawn: [false; 3],
            links: Default::default(),
            stray: None,
            was_ready: self.ready,
            crashes: 0,
        };
        state.slots[0] = Slot { primary: 0, members, full: members };
        if self.ready {
            state.answers[0] = Answer::Acknowledged;
            for (id, node) in state.nodes.iter_mut().enumerate().filter(|(id, _)| members & bit(*id) != 0) {
                node.content = Content::default().with(self.puts[0]);
                node.mark = true;
                node.answered = if id == 0 { members & !bit(0) } else { 0 };
            }
        }
        state
    }
}
