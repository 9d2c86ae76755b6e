//! A layout: the members of each slot from a run on. Equal slots share one group.

use super::slot::SLOTS;
use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a member of a slot has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Standing {
    /// All that its membership acknowledged: it can lead.
    Full,
    /// It takes part in acknowledgements, and is still being filled.
    Joining,
}

/// A member of a slot; written `[node, since, "full"]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "(u16, u32, Standing)", into = "(u16, u32, Standing)")]
pub struct Member {
    /// Its node.
    pub node: u16,
    /// The epoch that made it a member.
    pub since: u32,
    /// Whether it can lead.
    pub standing: Standing,
}

impl From<(u16, u32, Standing)> for Member {
    fn from((node, since, standing): (u16, u32, Standing)) -> Member {
        Member { node, since, standing }
    }
}

impl From<Member> for (u16, u32, Standing) {
    fn from(member: Member) -> (u16, u32, Standing) {
        (member.node, member.since, member.standing)
    }
}

/// The members of slots that are alike. The first member leads.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// The epoch of the last change of the set of members, or of the first of them.
    pub since: u32,
    /// Members; the first is the home.
    pub members: Vec<Member>,
}

impl Group {
    /// Whether the node is a member.
    pub fn has(&self, node: u16) -> bool {
        self.members.iter().any(|member| member.node == node)
    }

    /// Members that can lead.
    pub fn full(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(|member| member.standing == Standing::Full)
    }
}

/// The members of all slots from a run on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    pub(super) from_run: u64,
    group_of: Vec<u16>,
    homes: Vec<u16>,
    groups: Vec<Group>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LayoutText {
    from_run: u64,
    slots: Vec<(u16, u16, Group)>,
}

impl Layout {
    /// A layout of the group of each slot, in order of the slots; `groups` has as many as there are slots.
    pub(super) fn of_slots(from_run: u64, slots: impl Iterator<Item = Group>) -> Result<Layout> {
        let mut layout =
            Layout { from_run, group_of: Vec::with_capacity(SLOTS), homes: Vec::new(), groups: Vec::new() };
        let mut numbers = BTreeMap::new();
        for group in slots {
            layout.push(group, 1, &mut numbers)?;
        }
        Ok(layout)
    }

    fn push(&mut self, group: Group, slots: usize, numbers: &mut BTreeMap<Group, u16>) -> Result<()> {
        // Numbers in the order of the first slot: equal layouts are equal in memory too.
        let number = match numbers.get(&group) {
            Some(&number) => number,
            None => {
                let first = self.group_of.len();
                let Some(home) = group.members.first().filter(|home| home.standing == Standing::Full) else {
                    return Err(Error::invalid(format!(
                        "layout from run {}, slot {first}: its first member is not full; let a full member lead",
                        self.from_run
                    )));
                };
                self.homes.push(home.node);
                self.groups.push(group.clone());
                numbers.insert(group, (self.groups.len() - 1) as u16);
                (self.groups.len() - 1) as u16
            }
        };
        self.group_of.resize(self.group_of.len() + slots, number);
        Ok(())
    }

    pub(super) fn from_text(text: LayoutText) -> Result<Layout> {
        let mut layout = Layout::of_slots(text.from_run, std::iter::empty())?;
        let mut numbers = BTreeMap::new();
        for (first, last, group) in text.slots {
            let next = layout.group_of.len();
            let wrong = match usize::from(first) {
                _ if usize::from(last) >= SLOTS || first > last => "are no slots: FIRST to LAST, at most 4095",
                at if at > next => "leave a hole before them: give all slots, in order",
                at if at < next => "overlap those before them: give each slot once, in order",
                _ => "",
            };
            if !wrong.is_empty() {
                return Err(Error::invalid(format!("layout from run {}: {first} to {last} {wrong}", text.from_run)));
            }
            layout.push(group, usize::from(last - first) + 1, &mut numbers)?;
        }
        if layout.group_of.len() != SLOTS {
            let (run, slots) = (text.from_run, layout.group_of.len());
            return Err(Error::invalid(format!(
                "layout from run {run}: ends before slot {slots}; give all up to 4095"
            )));
        }
        Ok(layout)
    }

    pub(super) fn to_text(&self) -> LayoutText {
        let mut slots: Vec<(u16, u16, Group)> = Vec::new();
        let mut first = 0;
        for run in self.group_of.chunk_by(|one, other| one == other) {
            let last = first + run.len() - 1;
            slots.push((first as u16, last as u16, self.groups[usize::from(run[0])].clone()));
            first = last + 1;
        }
        LayoutText { from_run: self.from_run, slots }
    }

    /// The first run that uses the layout.
    pub fn from_run(&self) -> u64 {
        self.from_run
    }

    /// The group of a slot.
    ///
    /// # Panics
    /// For a slot that does not exist.
    #[inline]
    pub fn group(&self, slot: u16) -> &Group {
        &self.groups[usize::from(self.group_of[usize::from(slot)])]
    }

    /// The node that leads a slot.
    ///
    /// # Panics
    /// For a slot that does not exist.
    #[inline]
    pub fn home(&self, slot: u16) -> u16 {
        self.homes[usize::from(self.group_of[usize::from(slot)])]
    }

    /// The group of each slot, in order of the slots.
    pub fn slots(&self) -> impl Iterator<Item = &Group> {
        self.group_of.iter().map(|&number| &self.groups[usize::from(number)])
    }

    /// The different groups, in order of their first slots.
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }
}
