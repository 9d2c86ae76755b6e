//! The extent of a test run: between two changes, before a change is taken, or as a proof that takes hours.
//!
//! The same tests make the same promises in each; what differs is how many random histories, cuts and seeds they try.

/// How much is checked; each contains the ones before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Extent {
    /// `--quick`.
    Quick,
    /// Without an option: what CI runs.
    Usual,
    /// `--long`.
    Long,
}

impl Extent {
    /// Which commands have a step that begins here.
    pub(crate) fn within(self) -> &'static str {
        match self {
            Extent::Quick => "--quick, usual, --long",
            Extent::Usual => "usual, --long",
            Extent::Long => "--long",
        }
    }

    /// How long it takes from nothing, on two processors of the machines that figures are from.
    pub(crate) fn takes(self) -> &'static str {
        match self {
            Extent::Quick => "about 10 min",
            Extent::Usual => "20 to 40 min",
            Extent::Long => "hours",
        }
    }

    /// Seconds for each fuzz target.
    pub(crate) fn fuzz_seconds(self) -> u64 {
        match self {
            Extent::Quick | Extent::Usual => 4,
            Extent::Long => 600,
        }
    }

    /// Variables that random tests read; without one, the number in the test applies.
    pub(crate) fn variables(self) -> Vec<(&'static str, String)> {
        let set: &[(&str, u64)] = match self {
            Extent::Quick => &[
                ("FOREBAY_CRASH_ROUNDS", 6),
                ("FOREBAY_MODEL_OPERATIONS", 1500),
                ("FOREBAY_NETWORK_SECONDS", 1),
                ("FOREBAY_POWER_STEPS", 150),
            ],
            // The tests have the default numbers.
            Extent::Usual => &[],
            Extent::Long => &[
                ("FOREBAY_CLOSE_ROUNDS", 100),
                ("FOREBAY_DECISIONS_LIVES", 100),
                ("FOREBAY_DECISIONS_SEEDS", 20),
                ("FOREBAY_MODEL_OPERATIONS", 100_000),
                ("FOREBAY_NETWORK_SECONDS", 120),
                // More than exist: all of them.
                ("FOREBAY_POWER_STEPS", 10_000_000),
                ("FOREBAY_SESSION_ROUNDS", 500),
            ],
        };
        // A value that the caller has set wins.
        let free = set.iter().filter(|(name, _)| std::env::var_os(name).is_none());
        free.map(|&(name, value)| (name, value.to_string())).collect()
    }
}
