//! Changes of masks, and what they leave of a run's masks.

use crate::events::{Mask, Until};
use forebay_core::{KeySchema, MaskRecord, Primary, Signature};

/// Ended masks that a run remembers, to show them.
const MASKS_ENDED_MAX: usize = 256;

/// A mask is set, or lifted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MaskChange {
    pub(crate) run: u64,
    pub(crate) source: Vec<u8>,
    pub(crate) set: bool,
    /// The first event that the change covers; `None` covers all that still wait, or all that still come.
    pub(crate) from: Option<Primary>,
    /// By the run's policy; otherwise by hand.
    pub(crate) automatic: bool,
    pub(crate) signature: Signature,
}

impl MaskChange {
    /// What the run's summary says of it.
    pub(crate) fn record(&self, schema: &KeySchema) -> MaskRecord {
        MaskRecord {
            source: schema.source_text(&self.source),
            masked: self.set,
            from: self.from.as_ref().map(|from| schema.text(from.as_bytes())),
            signature: self.signature.clone(),
        }
    }
}

/// Carries a change out on a run's masks.
pub(crate) fn apply_mask(masks: &mut Vec<Mask>, change: &MaskChange, now_ns: u64) {
    let open = |mask: &&Mask| mask.source == change.source && mask.until == Until::Open;
    if let Some(known) = masks.iter_mut().find(|mask| open(&&**mask)) {
        if change.set {
            // The wider of the two, and a person's word over the policy's.
            known.from = known.from.min(change.from);
            known.automatic &= change.automatic;
        } else {
            // Kept with its end: events of its time are complete by it also after a restart.
            known.until = change.from.map_or(Until::Arrival(now_ns), Until::Event);
        }
    } else if change.set {
        masks.push(Mask {
            source: change.source.clone(),
            from: change.from,
            until: Until::Open,
            automatic: change.automatic,
        });
    }
    debug_assert!(
        masks.iter().filter(open).count() <= usize::from(change.set),
        "a source has one mask in force, and none after it is lifted"
    );
    // Ended ones still cover the events of their time; a run that masks forever must not fill the log with them.
    let ended = masks.iter().filter(|mask| mask.until != Until::Open).count();
    if ended > MASKS_ENDED_MAX
        && let Some(oldest) = masks.iter().position(|mask| mask.until != Until::Open)
    {
        masks.remove(oldest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::KeySchema;

    #[test]
    fn lifting_a_mask_ends_it_for_what_comes() {
        let schema = KeySchema::run_event_source();
        let change = |set, event: Option<u64>| MaskChange {
            run: 1,
            source: vec![0, 0, 0, 7],
            set,
            from: event.map(|event| schema.primary(&[1, event]).unwrap()),
            automatic: false,
            signature: Signature::default(),
        };
        let mut masks = Vec::new();
        apply_mask(&mut masks, &change(true, Some(10)), 0);
        apply_mask(&mut masks, &change(true, Some(5)), 0);
        apply_mask(&mut masks, &change(false, Some(20)), 0);
        apply_mask(&mut masks, &change(false, None), 3);
        let covers =
            |event: u64| masks.iter().any(|mask| mask.covers(schema.primary(&[1, event]).unwrap().as_bytes(), 0));
        assert_eq!([4, 5, 19, 20].map(covers), [false, true, true, false]);
        for _ in 0..300 {
            apply_mask(&mut masks, &change(true, None), 0);
            apply_mask(&mut masks, &change(false, None), 1);
        }
        assert_eq!(masks.len(), MASKS_ENDED_MAX);
    }
}
