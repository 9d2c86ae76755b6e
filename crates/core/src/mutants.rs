//! Faults that a build for the simulator has planted, of which a thread chooses one by name: each must be found.
//!
//! *Invariant*: without the feature `mutants` there is none, and the compiler leaves nothing of them.

#[cfg(feature = "mutants")]
thread_local! {
    static CHOSEN: std::cell::Cell<&'static str> = const { std::cell::Cell::new("") };
}

/// The planted faults, with what each does.
pub const MUTANTS: [(&str, &str); 9] = [
    ("ack-unfenced", "a put is answered before its record is durable"),
    ("decision-unfenced", "a decision is carried out before its record is durable"),
    ("stale-token", "a verdict is taken under a lease that is over"),
    ("boot-kept", "an opening does not raise the boot generation, so that tokens are given twice"),
    ("decided-forgotten", "a fragment of a decided event makes a new one"),
    ("lease-kept", "a lease that ran out is not taken back"),
    ("duplicate-uncounted", "the account has a repeated fragment as offered, and in no outcome"),
    ("close-unlogged", "the close of a run is not journaled"),
    ("lost-is-stored", "a client takes a put without an answer for stored"),
];

/// Plants a fault in what this thread does from now on; `""` takes it out.
#[cfg(feature = "mutants")]
pub fn plant(name: &'static str) {
    debug_assert!(name.is_empty() || MUTANTS.iter().any(|known| known.0 == name), "no mutant {name}");
    CHOSEN.set(name);
}

/// Whether this fault is planted.
#[inline]
#[cfg(feature = "mutants")]
pub fn is_planted(name: &str) -> bool {
    CHOSEN.get() == name
}

/// Whether this fault is planted: in this build none is.
#[inline(always)]
#[cfg(not(feature = "mutants"))]
pub const fn is_planted(_name: &str) -> bool {
    false
}
