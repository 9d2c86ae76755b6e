//! The memory of the decided at a size that no sequence of calls reaches in reasonable time.

use crate::events::{Decided, DecidedForm, shard_of};
use crate::limits::{SHARD_BLOCK_BITS, SHARDS};
use forebay_core::{Error, Interval, IntervalSet, KeySchema, Result};

/// Heap bytes of the memory of the decided with `events` densely numbered events of one run (rounded up to 64), in the
/// store's own sets, one per shard, as they are after all of them were decided or the store was opened again. Blocks of
/// numbers that share a shard are entered whole: one by one a thousand million would take minutes.
///
/// # Errors
/// `Invalid` for a key that cannot be; `Internal` where the sets do not hold exactly what was entered.
pub fn decided_bytes(schema: &KeySchema, events: u64) -> Result<u64> {
    let form = DecidedForm::new(schema);
    let blocks = events.div_ceil(1 << SHARD_BLOCK_BITS);
    let mut values = vec![0; schema.primary_len()];
    let mut primary_of = |event| {
        if let Some(last) = values.last_mut() {
            *last = event;
        }
        schema.primary(&values)
    };
    let first = primary_of(0)?;
    let mut shards: Vec<Vec<Interval>> = vec![Vec::new(); SHARDS];
    for block in 0..blocks {
        let start = block << SHARD_BLOCK_BITS;
        let primary = primary_of(start)?;
        let shard = &mut shards[shard_of(form, primary.as_bytes())];
        match shard.last_mut() {
            Some(last) if last.start + u64::from(last.length) + 1 == start => last.length += 1 << SHARD_BLOCK_BITS,
            _ => shard.push(Interval { start, length: (1 << SHARD_BLOCK_BITS) - 1 }),
        }
    }
    let (mut held, mut bytes) = (0, 0);
    for intervals in shards {
        let mut decided = Decided::default();
        decided.set(form.split(first.as_bytes()).0, IntervalSet::from_intervals(intervals.into_iter())?);
        held += decided.len();
        bytes += decided.heap_bytes() as u64;
    }
    if held != blocks << SHARD_BLOCK_BITS {
        return Err(Error::internal(format!("{held} events are remembered, not {}", blocks << SHARD_BLOCK_BITS)));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_blocks_cost_what_single_events_do() {
        const EVENTS: u64 = 1 << 21;
        let schema = KeySchema::run_event_source();
        let form = DecidedForm::new(&schema);
        let mut shards: Vec<Decided> = (0..SHARDS).map(|_| Decided::default()).collect();
        for event in 0..EVENTS {
            let primary = schema.primary(&[0, event]).unwrap();
            shards[shard_of(form, primary.as_bytes())].insert(form, primary.as_bytes());
        }
        let single: usize = shards.iter().map(Decided::heap_bytes).sum();
        let whole = decided_bytes(&schema, EVENTS).unwrap();
        assert!((0.95..1.05).contains(&(whole as f64 / single as f64)), "{whole} and {single}");
        assert!(whole < EVENTS / 4, "{whole}");
    }
}
