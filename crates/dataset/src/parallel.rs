//! Work on all cores: threads that live as long as the call, so that a process may fork between two calls.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The answers of `work` for each item, in the order of the items.
pub(crate) fn map<T: Send, R: Send>(threads: usize, items: Vec<T>, work: impl Fn(T) -> R + Sync) -> Vec<R> {
    let threads = threads.min(items.len());
    if threads <= 1 {
        return items.into_iter().map(work).collect();
    }
    let slots: Vec<Mutex<(Option<T>, Option<R>)>> =
        items.into_iter().map(|item| Mutex::new((Some(item), None))).collect();
    let next = AtomicUsize::new(0);
    let run = || {
        // Each index is taken by one thread; the slot's lock hands over the item and the answer.
        while let Some(slot) = slots.get(next.fetch_add(1, Ordering::Relaxed)) {
            let item = slot.lock().ok().and_then(|mut slot| slot.0.take());
            let answer = item.map(&work);
            if let Ok(mut slot) = slot.lock() {
                slot.1 = answer;
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(run);
        }
        run();
    });
    slots.into_iter().filter_map(|slot| slot.into_inner().ok().and_then(|slot| slot.1)).collect()
}

/// How many threads a call takes where the caller does not say.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

#[cfg(test)]
mod tests {
    #[test]
    fn answers_are_in_the_order_of_the_items() {
        for threads in [1, 4] {
            let squares = super::map(threads, (0..100_u64).collect(), |n| n * n);
            assert_eq!(squares, (0..100_u64).map(|n| n * n).collect::<Vec<_>>());
        }
    }
}
