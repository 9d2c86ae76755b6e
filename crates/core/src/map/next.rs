//! The next map: what becomes of a map by one event. Slots move only where they must.

use super::{ClusterMap, Group, KeyspaceMap, Layout, Member, Node, NodeState, SLOTS, Standing, Table};
use crate::{Error, Result};
use std::collections::BTreeMap;

/// What happens to a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A keyspace is added, spread evenly over the active nodes.
    Keyspace {
        /// Its name.
        name: String,
        /// Members of a slot.
        copies: u8,
        /// Fewest members that take puts.
        copies_min: u8,
        /// Last bits of primary keys that slots do not depend on.
        block: u8,
    },
    /// A node gets no slots of runs from `from_run` on. What it has of earlier runs stays there.
    TakeOut {
        /// The node.
        node: u16,
        /// First run without it.
        from_run: u64,
    },
    /// A node gets an even share of the slots from `from_run` on: a new node, or one that was taken out.
    Add {
        /// The node; its state is made active.
        node: Node,
        /// First run with it.
        from_run: u64,
    },
    /// A look-up table for runs from `from_run` on.
    Table {
        /// The keyspace.
        keyspace: String,
        /// First run that uses it.
        from_run: u64,
        /// Sources and their one or two nodes, see [`Table::new`].
        sources: Vec<(String, Vec<u16>)>,
    },
    /// A member is lost: in its slots the next full member leads, and another node joins. Slots without another full member
    /// wait for it, unchanged.
    MemberLost {
        /// The node.
        node: u16,
    },
    /// A node has all of the slots that it was joining.
    Full {
        /// The node.
        node: u16,
    },
}

impl ClusterMap {
    /// The map after a change, with the next epoch. It passes [`ClusterMap::succeeds`].
    ///
    /// # Errors
    /// `Invalid` where the change is not possible, with the reason.
    pub fn next_map(&self, change: &Change) -> Result<ClusterMap> {
        let Some(epoch) = self.epoch.checked_add(1) else {
            return Err(Error::invalid("the last epoch is reached: make a new cluster"));
        };
        let mut new = ClusterMap { epoch, ..self.clone() };
        match change {
            Change::Keyspace { name, copies, copies_min, block } => {
                if self.keyspaces.contains_key(name) {
                    return Err(Error::invalid(format!("keyspace `{name}` is in the map already")));
                }
                let layouts = vec![new.spread(*copies)?];
                let keyspace = KeyspaceMap {
                    copies: *copies,
                    copies_min: *copies_min,
                    block: *block,
                    layouts,
                    tables: Vec::new(),
                };
                new.keyspaces.insert(name.clone(), keyspace);
            }
            Change::TakeOut { node, from_run } => {
                new.node_mut(*node)?.state = NodeState::Draining;
                new.lay_out(*from_run, |shares, slots| shares.take_out(*node, slots))?;
            }
            Change::Add { node, from_run } => {
                let node = Node { state: NodeState::Active, ..node.clone() };
                let id = node.id;
                match new.nodes.iter_mut().find(|old| old.id == id) {
                    Some(old) => *old = node,
                    None => new.nodes.push(node),
                }
                new.nodes.sort_by_key(|node| node.id);
                new.lay_out(*from_run, |shares, slots| shares.add(id, slots))?;
            }
            Change::Table { keyspace, from_run, sources } => {
                let table = Table::new(*from_run, sources)?;
                let place = new.keyspaces.get_mut(keyspace);
                place.ok_or_else(|| Error::invalid(format!("no keyspace `{keyspace}` in the map")))?.tables.push(table);
            }
            Change::MemberLost { node } => {
                new.node_mut(*node)?.state = NodeState::Draining;
                new.change_groups(*node, |shares, group, copies| {
                    let next = group.full().find(|member| member.node != *node).map(|member| member.node);
                    let Some(next) = next.filter(|_| group.has(*node)) else { return false };
                    group.members.retain(|member| member.node != *node);
                    if let Some(at) = group.members.iter().position(|member| member.node == next) {
                        // A full primary that stays goes on leading: `next` is it.
                        group.members[..=at].rotate_right(1);
                    }
                    while group.members.len() < usize::from(copies) {
                        let Some(joiner) = shares.pick(group) else { break };
                        group.members.push(Member { node: joiner, since: epoch, standing: Standing::Joining });
                    }
                    group.since = epoch;
                    true
                })?;
            }
            Change::Full { node } => {
                new.node_mut(*node)?;
                new.change_groups(*node, |_, group, _| {
                    let joining = |member: &&mut Member| member.node == *node && member.standing == Standing::Joining;
                    group.members.iter_mut().find(joining).map(|member| member.standing = Standing::Full).is_some()
                })?;
            }
        }
        let new = ClusterMap::build(new.cluster, epoch, new.nodes, new.keyspaces)?;
        self.succeeds(&new, None)?;
        Ok(new)
    }

    fn node_mut(&mut self, id: u16) -> Result<&mut Node> {
        let node = self.nodes.iter_mut().find(|node| node.id == id && node.state != NodeState::Gone);
        node.ok_or_else(|| Error::invalid(format!("no node {id} in the map, or it is gone")))
    }

    /// A first layout: slots in equal ranges; neighbours in a ring over the domains share them.
    fn spread(&self, copies: u8) -> Result<Layout> {
        let mut turns: BTreeMap<&str, usize> = BTreeMap::new();
        let mut ring = Vec::new();
        for node in self.nodes.iter().filter(|node| node.state == NodeState::Active) {
            let turn = turns.entry(&node.domain).or_default();
            ring.push((*turn, &node.domain[..], node.id));
            *turn += 1;
        }
        ring.sort_unstable();
        if ring.len() < usize::from(copies) {
            return Err(Error::invalid(format!("{} active nodes for {copies} copies: add nodes", ring.len())));
        }
        let group = |slot: usize| {
            let first = slot * ring.len() / SLOTS;
            let around = || (0..ring.len()).map(|step| ring[(first + step) % ring.len()]);
            let mut chosen: Vec<(usize, &str, u16)> = Vec::new();
            // Nodes of other domains first, then any.
            for apart in [true, false] {
                for node in around() {
                    let taken = chosen.iter().any(|other| other.2 == node.2 || (apart && other.1 == node.1));
                    if chosen.len() < usize::from(copies) && !taken {
                        chosen.push(node);
                    }
                }
            }
            let full =
                |&(_, _, node): &(usize, &str, u16)| Member { node, since: self.epoch, standing: Standing::Full };
            Group { since: self.epoch, members: chosen.iter().map(full).collect() }
        };
        Layout::of_slots(0, (0..SLOTS).map(group))
    }

    /// Adds a layout to every keyspace: the last one, changed.
    fn lay_out(
        &mut self,
        from_run: u64,
        mut change: impl FnMut(&mut Shares<'_>, &mut [Group]) -> Result<()>,
    ) -> Result<()> {
        let mut keyspaces = std::mem::take(&mut self.keyspaces);
        for keyspace in keyspaces.values_mut() {
            let Some(last) = keyspace.layouts.last() else { continue };
            let mut slots: Vec<Group> = last.slots().cloned().collect();
            // No run of the new layout has begun: who joins lacks nothing.
            for member in slots.iter_mut().flat_map(|group| &mut group.members) {
                member.standing = Standing::Full;
            }
            let mut shares = Shares::new(self, slots.iter());
            // Copies that lacked for want of nodes.
            for group in &mut slots {
                while group.members.len() < usize::from(keyspace.copies) {
                    let Some(node) = shares.pick(group) else { break };
                    group.members.push(Member { node, since: self.epoch, standing: Standing::Full });
                    group.since = self.epoch;
                }
            }
            change(&mut shares, &mut slots)?;
            keyspace.layouts.push(Layout::of_slots(from_run, slots.into_iter())?);
        }
        self.keyspaces = keyspaces;
        Ok(())
    }

    /// Changes the groups of a node in all layouts. An error if `change` did nothing anywhere.
    fn change_groups(
        &mut self,
        node: u16,
        mut change: impl FnMut(&mut Shares<'_>, &mut Group, u8) -> bool,
    ) -> Result<()> {
        let mut keyspaces = std::mem::take(&mut self.keyspaces);
        let mut any = false;
        for keyspace in keyspaces.values_mut() {
            for layout in &mut keyspace.layouts {
                let mut slots: Vec<Group> = layout.slots().cloned().collect();
                let mut shares = Shares::new(self, layout.slots());
                for group in slots.iter_mut().filter(|group| group.has(node)) {
                    any |= change(&mut shares, group, keyspace.copies);
                }
                *layout = Layout::of_slots(layout.from_run, slots.into_iter())?;
            }
        }
        self.keyspaces = keyspaces;
        if any {
            return Ok(());
        }
        Err(Error::invalid(format!("node {node} has no slot that this can change: its slots wait for it")))
    }
}

/// How many slots of a layout each active node has.
struct Shares<'a> {
    map: &'a ClusterMap,
    counts: BTreeMap<u16, usize>,
    floor: usize,
    last: Option<u16>,
}

impl<'a> Shares<'a> {
    fn new<'b>(map: &'a ClusterMap, slots: impl Iterator<Item = &'b Group>) -> Shares<'a> {
        let active = map.nodes.iter().filter(|node| node.state == NodeState::Active);
        let mut counts: BTreeMap<u16, usize> = active.map(|node| (node.id, 0)).collect();
        let mut all = 0;
        for member in slots.flat_map(|group| &group.members) {
            all += 1;
            if let Some(count) = counts.get_mut(&member.node) {
                *count += 1;
            }
        }
        let floor = all / counts.len().max(1);
        Shares { map, counts, floor, last: None }
    }

    /// Whether a node shares a failure domain with a member of the group, other than `but`.
    fn near(&self, group: &Group, node: u16, but: Option<u16>) -> bool {
        let domain = |id: u16| self.map.node(id).map(|node| &node.domain);
        group.members.iter().any(|member| Some(member.node) != but && domain(member.node) == domain(node))
    }

    /// Picks the next member of a group, in another domain if there is one: the node of the last pick until it has its share, so
    /// that neighbours stay together, else the one with the fewest slots.
    fn pick(&mut self, group: &Group) -> Option<u16> {
        let fits = self.counts.iter().filter(|&(&node, _)| !group.has(node));
        let rank = |node: u16, count: usize| {
            let last = count < self.floor && Some(node) == self.last;
            (self.near(group, node, None), !last, count, node)
        };
        let node = fits.map(|(&node, &count)| rank(node, count)).min()?.3;
        *self.counts.entry(node).or_default() += 1;
        self.last = Some(node);
        Some(node)
    }

    fn take_out(&mut self, node: u16, slots: &mut [Group]) -> Result<()> {
        let epoch = self.map.epoch;
        for group in slots.iter_mut().filter(|group| group.has(node)) {
            let copies = group.members.len();
            group.members.retain(|member| member.node != node);
            match self.pick(group) {
                Some(node) => group.members.push(Member { node, since: epoch, standing: Standing::Full }),
                None if copies > 1 => {}
                None => return Err(Error::invalid(format!("node {node} is the last active one: add another first"))),
            }
            group.since = epoch;
        }
        Ok(())
    }

    fn add(&mut self, node: u16, slots: &mut [Group]) -> Result<()> {
        let epoch = self.map.epoch;
        loop {
            let own = self.counts.get(&node).copied().unwrap_or_default();
            let Some((&from, &most)) = self.counts.iter().max_by_key(|&(_, &count)| count) else { return Ok(()) };
            if most <= own + 1 {
                return Ok(());
            }
            let fits = slots.iter().enumerate().filter(|(_, group)| group.has(from) && !group.has(node));
            let best = fits.min_by_key(|(at, group)| (self.near(group, node, Some(from)), *at)).map(|(at, _)| at);
            let Some(at) = best else { return Ok(()) };
            let group = &mut slots[at];
            group.since = epoch;
            for member in group.members.iter_mut().filter(|member| member.node == from) {
                *member = Member { node, since: epoch, standing: Standing::Full };
            }
            *self.counts.entry(from).or_default() -= 1;
            self.counts.insert(node, own + 1);
        }
    }
}
