//! Faults that a build for the simulator has planted, of which a thread chooses one by name: each must be found.
//!
//! *Invariant*: without the feature `mutants` there is none, and the compiler leaves nothing of them.

#[cfg(feature = "mutants")]
thread_local! {
    static CHOSEN: std::cell::Cell<&'static str> = const { std::cell::Cell::new("") };
}

/// The planted faults, with what each does; those of several nodes are found by several only.
pub const MUTANTS: [(&str, &str); 15] = [
    ("ack-unfenced", "a put is answered before its record is durable"),
    ("decision-unfenced", "a decision is carried out before its record is durable"),
    ("stale-token", "a verdict is taken under a lease that is over"),
    ("boot-kept", "an opening does not raise the boot generation, so that tokens are given twice"),
    ("decided-forgotten", "a fragment of a decided event makes a new one"),
    ("lease-kept", "a lease that ran out is not taken back"),
    ("duplicate-uncounted", "the account has a repeated fragment as offered, and in no outcome"),
    ("conflict-is-duplicate", "the account has other bytes under a taken key as a repeated fragment"),
    ("credit-kept", "a server sends answers for which its client has no room"),
    ("release-forgotten", "a release is answered, and the event stays"),
    ("close-unlogged", "the close of a run is not journaled"),
    ("lost-is-stored", "a client takes a put without an answer for stored"),
    ("moved-undurable", "what a device refused to make durable counts as moved there"),
    ("claim-is-proof", "a claim that ended without a proof counts as proved"),
    ("generation-kept", "a container is filled again without a new generation"),
];

/// The planted faults of a cluster, with what each does.
pub const CLUSTER_MUTANTS: [(&str, &str); 10] = [
    ("close-alone", "the home of a run closes it without asking the other nodes"),
    ("order-late", "a node does what its home has replaced, when an old connection brings it"),
    ("policy-alone", "each node of a cluster masks sources by what it has counted itself"),
    ("catch-up-skipped", "a node that was away counts as up without being told what it missed"),
    ("all-lead", "a node leads each event that is brought to it"),
    ("departure-lost", "names of what ended are forgotten where a holder did not take them"),
    ("telling-forgotten", "a holder takes its home's silence for an answer"),
    ("holder-is-home", "a client with an earlier map takes a holder's word for that of the home"),
    ("deadline-each", "each node that a call goes to has the whole time of the call"),
    ("late-forgotten", "a home takes what it refused as late when it is told again"),
];

/// Plants a fault in what this thread does from now on; `""` takes it out.
#[cfg(feature = "mutants")]
pub fn plant(name: &'static str) {
    debug_assert!(name.is_empty() || all().any(|known| known.0 == name), "no mutant {name}");
    CHOSEN.set(name);
}

/// All planted faults, with what each does.
pub fn all() -> impl Iterator<Item = &'static (&'static str, &'static str)> {
    MUTANTS.iter().chain(&CLUSTER_MUTANTS)
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
