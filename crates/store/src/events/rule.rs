//! The completeness rule of an event: the sources that its announcement, its class or its run names, less those that
//! are masked.

use super::event::RULE_OWN;
use crate::SourceState;
use forebay_core::{Completeness, Keyspace, Primary, RunConfig, Source};
use std::sync::Arc;

/// A completeness, ready to be asked on every arrival.
#[derive(Debug)]
pub(crate) struct Rule {
    pub(crate) completeness: Completeness,
    /// First code and number of sources where their codes are consecutive: membership is one subtraction.
    dense: Option<(u64, u64)>,
}

impl Rule {
    pub(crate) fn new(completeness: &Completeness) -> Rule {
        let mut dense = None;
        if let Completeness::Sources(sources) = completeness
            && let (Some(first), Some(last)) =
                (sources.first().and_then(|source| code(source)), sources.last().and_then(|source| code(source)))
            && last - first == sources.len() as u64 - 1
        {
            dense = Some((first, sources.len() as u64));
        }
        Rule { completeness: completeness.clone(), dense }
    }

    /// Whether completeness counts a fragment of this source.
    #[inline]
    pub(crate) fn counts(&self, rest: &[u8]) -> bool {
        let Completeness::Sources(sources) = &self.completeness else { return true };
        // The usual case, asked on every arrival.
        if let Some((first, len)) = self.dense {
            return code(rest).is_some_and(|code| code.wrapping_sub(first) < len);
        }
        sources.binary_search_by(|source| source.as_bytes().cmp(rest)).is_ok()
    }

    /// How many counted fragments complete an event; `None` where only a seal does.
    #[inline]
    pub(crate) fn wanted(&self) -> Option<usize> {
        match &self.completeness {
            Completeness::Sources(sources) => Some(sources.len()),
            Completeness::Count(count) => Some(*count as usize),
            Completeness::Seal => None,
        }
    }

    /// The sources that it names.
    pub(crate) fn sources(&self) -> &[Source] {
        match &self.completeness {
            Completeness::Sources(sources) => sources,
            _ => &[],
        }
    }

    /// The state of a source of which nothing is there.
    pub(crate) fn absent(&self, rest: &[u8], masked: bool) -> SourceState {
        match &self.completeness {
            Completeness::Sources(_) if !self.counts(rest) => SourceState::NotExpected,
            _ if masked => SourceState::Masked,
            Completeness::Sources(_) => SourceState::Missing,
            _ => SourceState::NotExpected,
        }
    }
}

/// A source as a number, where it has at most 8 bytes.
#[inline]
pub(crate) fn code(rest: &[u8]) -> Option<u64> {
    match *rest {
        // The width of most schemas, without a loop.
        [a, b, c, d] => Some(u64::from(u32::from_be_bytes([a, b, c, d]))),
        _ => (rest.len() <= 8).then(|| rest.iter().fold(0, |code, &byte| code << 8 | u64::from(byte))),
    }
}

/// The rules of a run: what its events wait for, and how long.
#[derive(Debug)]
pub(crate) struct RunPlan {
    pub(crate) config: RunConfig,
    pub(crate) within_ns: u64,
    pub(crate) grace_ns: u64,
    /// Stage in which its events begin.
    pub(crate) stage: u8,
    /// The run's own rule, then those of classes.
    pub(crate) rules: Vec<Rule>,
    /// Class code by rule, after the first.
    classes: Vec<u128>,
}

impl RunPlan {
    pub(crate) fn new(config: &RunConfig, keyspace: &Keyspace) -> Arc<RunPlan> {
        let nanoseconds = |duration: std::time::Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let code =
            |name: &String| keyspace.attributes.classes().iter().position(|class| class == name).unwrap_or(usize::MAX);
        // Asked by binary search on every arrival, and told from a dense list by its ends.
        let sorted = |completeness: &Completeness| match completeness {
            Completeness::Sources(sources) => sources.is_sorted_by(|one, next| one < next),
            _ => true,
        };
        debug_assert!(
            sorted(&config.completeness) && config.classes.iter().all(|class| sorted(&class.1)),
            "a list of sources is sorted and names each once"
        );
        debug_assert!(config.classes.len() < usize::from(RULE_OWN), "the number of a rule is never that of an own one");
        // One that a later configuration no longer has: the last one there is, as for events on their way.
        let last = keyspace.stages.len() as u8 - 1;
        let of_classes = config.classes.iter().map(|(_, completeness)| Rule::new(completeness));
        Arc::new(RunPlan {
            within_ns: nanoseconds(config.complete_within),
            grace_ns: nanoseconds(config.stop_grace),
            stage: config.stage.as_ref().map_or(0, |stage| keyspace.stage(stage).unwrap_or(last)),
            // The run's own first: an event without a class has rule 0, and needs no search.
            rules: std::iter::once(Rule::new(&config.completeness)).chain(of_classes).collect(),
            classes: config.classes.iter().map(|(name, _)| code(name) as u128).collect(),
            config: config.clone(),
        })
    }

    /// The rule of a class.
    pub(crate) fn rule_of_class(&self, class: Option<u128>) -> u8 {
        let at = class.and_then(|class| self.classes.iter().position(|&known| known == class));
        at.map_or(0, |at| at as u8 + 1)
    }

    pub(crate) fn has_classes(&self) -> bool {
        !self.classes.is_empty()
    }
}

/// Where a mask ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// It is in force.
    Open,
    /// From this event on it is not.
    Event(Primary),
    /// Events that arrived since then (nanoseconds of this life) wait for the source again.
    Arrival(u64),
}

/// A source that events do not wait for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mask {
    pub(crate) source: Vec<u8>,
    /// The first event that it covers; `None` covers all that still wait.
    pub(crate) from: Option<Primary>,
    pub(crate) until: Until,
    /// Set by the run's policy, not by a person.
    pub(crate) automatic: bool,
}

impl Mask {
    pub(crate) fn covers(&self, primary: &[u8], arrival_ns: u64) -> bool {
        self.from.as_ref().is_none_or(|from| from.as_bytes() <= primary)
            && match &self.until {
                Until::Open => true,
                Until::Event(until) => primary < until.as_bytes(),
                Until::Arrival(until) => arrival_ns < *until,
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::{AttributeSchema, KeySchema};
    use std::time::Duration;

    #[test]
    fn source_lists_count_members_only() {
        let schema = KeySchema::run_event_source();
        for sources in [vec![3, 4, 5, 6], vec![3, 5, 9, 4_000_000_000]] {
            let list: Vec<Vec<u64>> = sources.iter().map(|&source| vec![source]).collect();
            let rule = Rule::new(&Completeness::sources(&schema, &list).unwrap());
            for source in [0_u32, 2, 3, 4, 5, 6, 7, 9, 4_000_000_000, u32::MAX] {
                assert_eq!(rule.counts(&source.to_be_bytes()), sources.contains(&u64::from(source)), "{source}");
            }
            assert_eq!(rule.wanted(), Some(4));
        }
    }

    #[test]
    fn classes_have_their_rules_and_masks_their_bounds() {
        let mut keyspace = Keyspace::events("rules", 1).opening_runs();
        keyspace.attributes = AttributeSchema::parse(&["class"], &["physics", "calib", "cosmic"]).unwrap();
        let mut config = RunConfig::new(Completeness::Count(5), Duration::from_secs(1));
        config.classes = vec![("calib".to_owned(), Completeness::Count(2))];
        let plan = RunPlan::new(&config, &keyspace);
        let wanted = |class| plan.rules[plan.rule_of_class(class) as usize].wanted();
        assert_eq!([None, Some(0), Some(1), Some(2)].map(wanted), [Some(5), Some(5), Some(2), Some(5)]);

        let schema = KeySchema::run_event_source();
        let event = |event| schema.primary(&[1, event]).unwrap();
        let mask = |until| Mask { source: vec![0; 4], from: Some(event(10)), until, automatic: false };
        let covers = |mask: &Mask, number, at| mask.covers(event(number).as_bytes(), at);
        assert_eq!([9, 10, 11].map(|number| covers(&mask(Until::Open), number, 0)), [false, true, true]);
        assert_eq!([10, 11, 12].map(|n| covers(&mask(Until::Event(event(12))), n, 0)), [true, true, false]);
        assert_eq!([4, 5].map(|at| covers(&mask(Until::Arrival(5)), 20, at)), [true, false]);
    }
}
