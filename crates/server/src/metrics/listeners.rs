//! Connections by listener: open, taken, ended and refused, with the reason.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Listeners by name; the last takes every other one, so that the number of series is bounded.
pub(crate) const LISTENERS: [&str; 4] = ["native", "resp", "http", "other"];
/// Why connections end.
pub(crate) const ENDED: [&str; 8] = ["goodbye", "closed", "error", "deadline", "stopping", "limit", "token", "other"];
/// Why connections and logins are refused.
pub(crate) const REFUSED: [&str; 6] = ["limit", "token", "certificate", "right", "handshake", "other"];

/// Counts of all listeners.
#[derive(Debug, Default)]
pub(crate) struct Listeners {
    counts: [Counts; LISTENERS.len()],
}

/// Counts of one listener.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) taken: AtomicU64,
    pub(crate) ended: [AtomicU64; ENDED.len()],
    pub(crate) refused: [AtomicU64; REFUSED.len()],
}

fn place(names: &[&str], name: &str) -> usize {
    names.iter().position(|known| *known == name).unwrap_or(names.len() - 1)
}

impl Listeners {
    pub(crate) fn connected(&self, listener: &str) {
        self.counts[place(&LISTENERS, listener)].taken.fetch_add(1, Relaxed);
    }

    pub(crate) fn disconnected(&self, listener: &str, reason: &str) {
        self.counts[place(&LISTENERS, listener)].ended[place(&ENDED, reason)].fetch_add(1, Relaxed);
    }

    pub(crate) fn refused(&self, listener: &str, reason: &str) {
        self.counts[place(&LISTENERS, listener)].refused[place(&REFUSED, reason)].fetch_add(1, Relaxed);
    }

    /// Listeners by name with their counts; unknown ones only where there are any.
    pub(crate) fn each(&self) -> impl Iterator<Item = (&'static str, &Counts)> {
        LISTENERS.into_iter().zip(&self.counts).filter(|(name, counts)| *name != "other" || counts.any())
    }
}

impl Counts {
    /// Connections now. The ends are read first: what ends meanwhile still counts as open.
    pub(crate) fn open(&self) -> u64 {
        let ended: u64 = self.ended.iter().map(|count| count.load(Relaxed)).sum();
        self.taken.load(Relaxed).saturating_sub(ended)
    }

    fn any(&self) -> bool {
        self.taken.load(Relaxed) > 0 || self.refused.iter().any(|count| count.load(Relaxed) > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_names_have_one_place() {
        let listeners = Listeners::default();
        assert_eq!(listeners.each().count(), 3);
        listeners.connected("native");
        listeners.connected("native");
        listeners.disconnected("native", "goodbye");
        listeners.disconnected("native", "what nobody listed");
        listeners.refused("telnet", "unheard of");
        let all: Vec<_> = listeners.each().collect();
        assert_eq!(all.len(), 4);
        assert_eq!(all[0].1.open(), 0);
        assert_eq!(all[0].1.ended[ENDED.len() - 1].load(Relaxed), 1);
        assert_eq!(all[3].1.refused[REFUSED.len() - 1].load(Relaxed), 1);
    }
}
