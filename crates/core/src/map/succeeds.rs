//! Whether a node that has one map may adopt another.

use super::{ClusterMap, Group, KeyspaceMap, NodeState, Standing};
use crate::{Error, Result};
use std::collections::BTreeSet;

/// What another map is to the one that a node has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Succession {
    /// The same map.
    Same,
    /// A later one, to be adopted.
    Later,
}

impl ClusterMap {
    /// Whether a node that has this map may adopt `new`. `run_last` is the highest run that the node knows: runs up to it keep
    /// their layouts and tables, and later ones may get others; without it all that the map has are kept. Where epochs between the two are not known, a slot's members may all have changed in
    /// between; each of those steps was checked where it was made.
    ///
    /// # Errors
    /// `Fenced` for a lower epoch; `Conflict`, an alarm, for another map of the same epoch; `Invalid` for a map that breaks a
    /// rule, naming the place.
    pub fn succeeds(&self, new: &ClusterMap, run_last: Option<u64>) -> Result<Succession> {
        let (had, has) = (self.epoch, new.epoch);
        if self.cluster != new.cluster {
            let wrong = format!("the map is of cluster {:?}, this node of {:?}", new.cluster, self.cluster);
            return Err(Error::invalid(format!("{wrong}: connect it to its own cluster")));
        }
        if has < had {
            return Err(Error::fenced(format!("the map has epoch {has}, this node {had}: fetch the present map")));
        }
        if has == had {
            return if self.hash == new.hash {
                Ok(Succession::Same)
            } else {
                Err(Error::conflict(format!(
                    "ALARM: two maps of epoch {has} with the hashes {:?} and {:?}: give all nodes one map of a higher epoch",
                    self.hash, new.hash
                )))
            };
        }
        let refused = |what: String| Error::invalid(format!("map of epoch {has} refused: {what}"));
        for node in &self.nodes {
            let id = node.id;
            let what = match new.node(id) {
                None => "is not in it: keep its entry with the state gone, so that its number is not given again",
                Some(now) if now.name != node.name || now.holds != node.holds => {
                    "has another name or holding identity: admit it under another number"
                }
                Some(now) if node.state == NodeState::Gone && now.state != NodeState::Gone => {
                    "was gone and comes back: admit it under another number"
                }
                Some(_) => continue,
            };
            return Err(refused(format!("node {id} {what}")));
        }
        for (name, old) in &self.keyspaces {
            let now = new.keyspace(name).ok_or_else(|| refused(format!("keyspace `{name}` is not in it: keep it")))?;
            self.keyspace_succeeds(new, old, now, run_last)
                .map_err(|what| refused(format!("keyspace `{name}`: {what}")))?;
        }
        Ok(Succession::Later)
    }

    fn keyspace_succeeds(
        &self,
        new: &ClusterMap,
        old: &KeyspaceMap,
        now: &KeyspaceMap,
        run_last: Option<u64>,
    ) -> std::result::Result<(), String> {
        if old.block != now.block {
            return Err("block has changed, and with it the slots of events: keep it".into());
        }
        // What no run of this node has begun under may be taken back: another node may have a run that must stay where it is.
        let begun = |from_run: u64| run_last.is_none_or(|last| from_run <= last.max(1));
        let layouts = old.layouts.partition_point(|layout| begun(layout.from_run));
        let tables = old.tables.partition_point(|table| begun(table.from_run));
        if !now.tables.starts_with(&old.tables[..tables]) {
            return Err("an earlier table has changed: add a table for new runs".into());
        }
        if now.layouts.len() < layouts {
            return Err("a layout lacks: its runs have events".into());
        }
        let later = now.layouts[layouts..].iter().map(|layout| layout.from_run);
        for run in later.chain(now.tables[tables..].iter().map(|table| table.from_run)) {
            if run_last.is_some_and(|last| run <= last) {
                let last = run_last.unwrap_or_default();
                return Err(format!(
                    "a new layout or table begins at run {run}, and run {last} has begun: use a later run"
                ));
            }
        }
        for (before, after) in old.layouts[..layouts].iter().zip(&now.layouts) {
            let from_run = before.from_run;
            if from_run != after.from_run {
                return Err(format!("the layout from run {from_run} begins at run {} now: keep it", after.from_run));
            }
            // Many slots change alike: each pair of groups is looked at once.
            let mut seen = BTreeSet::new();
            for (slot, (before, after)) in before.slots().zip(after.slots()).enumerate() {
                if before != after && seen.insert((before, after)) {
                    self.group_succeeds(new, before, after)
                        .map_err(|what| format!("layout from run {from_run}, slot {slot}: {what}"))?;
                }
            }
        }
        Ok(())
    }

    fn group_succeeds(&self, new: &ClusterMap, old: &Group, now: &Group) -> std::result::Result<(), String> {
        let one_step = u64::from(new.epoch) == u64::from(self.epoch) + 1;
        if now.since < old.since {
            return Err(format!("since falls from {} to {}: it only rises", old.since, now.since));
        }
        let nodes = |group: &Group| group.members.iter().map(|member| member.node).collect::<BTreeSet<_>>();
        let changed = nodes(old) != nodes(now)
            || old.members[0].node != now.members[0].node
            || old.members.iter().any(|m| now.members.iter().any(|n| n.node == m.node && n.since != m.since));
        if changed && now.since <= self.epoch {
            return Err(format!("its members change and since stays {}: give it the map's epoch", now.since));
        }
        for member in &now.members {
            let node = member.node;
            match old.members.iter().find(|before| before.node == node) {
                Some(before) if before.since == member.since && before.standing < member.standing => {
                    // Full comes before joining.
                    return Err(format!("node {node} was full and is joining: it joins with a new since"));
                }
                Some(before) if before.since == member.since => {}
                _ if member.since <= self.epoch => {
                    return Err(format!("node {node} is a member since {}, and was none then", member.since));
                }
                _ if one_step && member.standing == Standing::Full && !self.all_gone(new, old) => {
                    return Err(format!("node {node} is new and full: it joins first"));
                }
                _ => {}
            }
        }
        let kept = |full: &super::Member| now.full().any(|other| other.node == full.node && other.since == full.since);
        if one_step && !old.full().any(kept) && !self.all_gone(new, old) {
            return Err("it loses its last full member: keep that one, or declare its node lost".into());
        }
        Ok(())
    }

    /// Whether an operator declared all full members lost.
    fn all_gone(&self, new: &ClusterMap, old: &Group) -> bool {
        old.full().all(|member| new.node(member.node).is_some_and(|node| node.state == NodeState::Gone))
    }
}
