//! Leases go on while they are held: one thread extends all of a client's, a batch at a time.
//!
//! *On failure*: a lease that cannot be extended runs out at the server, and its verdict is `Fenced`; one whose holder
//! dies with its process comes back by itself.

use crate::client::Inner;
use crate::machine::Machine;
use crate::pool::{Calls, Pool};
use forebay_core::{Call, Primary, Token};
use forebay_wire::{WireExtend, WireReader};
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Most leases of one frame.
const BATCH: usize = 1024;

struct Held {
    primary: Primary,
    time: Duration,
    due: Instant,
}

#[derive(Default)]
struct Leases {
    held: BTreeMap<Token, Held>,
    is_over: bool,
}

/// The leases of a client, and the thread that extends them.
pub(crate) struct Heartbeat {
    leases: Arc<(Mutex<Leases>, Condvar)>,
    machine: Arc<dyn Machine>,
}

impl Heartbeat {
    pub(crate) fn start(client: Weak<Inner>, machine: &Arc<dyn Machine>) -> Heartbeat {
        let leases = Arc::<(Mutex<Leases>, Condvar)>::default();
        let (seen, time) = (leases.clone(), machine.clone());
        // Without the thread leases just run out, which their holders are told.
        let _ =
            std::thread::Builder::new().name("forebay leases".to_owned()).spawn(move || run(&client, &seen, &*time));
        Heartbeat { leases, machine: machine.clone() }
    }

    /// This lease is held from now on.
    pub(crate) fn hold(&self, primary: Primary, token: Token, time: Duration) {
        let mut leases = self.leases.0.lock();
        let first = leases.held.is_empty();
        // After a third: two extensions may be lost before the lease runs out.
        leases.held.insert(token, Held { primary, time, due: self.machine.now() + time / 3 });
        drop(leases);
        // The thread sleeps without a deadline only while nothing is held; otherwise it wakes for the earliest lease
        // and finds this one.
        if first {
            self.leases.1.notify_one();
        }
    }

    /// It is not any more.
    pub(crate) fn let_go(&self, token: &Token) {
        self.leases.0.lock().held.remove(token);
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        self.leases.0.lock().is_over = true;
        self.leases.1.notify_one();
    }
}

fn run(client: &Weak<Inner>, leases: &(Mutex<Leases>, Condvar), machine: &dyn Machine) {
    loop {
        let batch = {
            let mut known = leases.0.lock();
            if known.is_over {
                return;
            }
            let now = machine.now();
            let batch: Vec<WireExtend> = known
                .held
                .iter_mut()
                .filter(|(_, held)| held.due <= now)
                .take(BATCH)
                .map(|(token, held)| {
                    // Set before the answer: a server that is away is asked again in a third of the time, not in a
                    // loop.
                    held.due = now + held.time / 3;
                    WireExtend { primary: held.primary, token: *token, duration: held.time }
                })
                .collect();
            if batch.is_empty() {
                match known.held.values().map(|held| held.due).min() {
                    Some(due) => {
                        machine.block_at_most(due).map(|most| leases.1.wait_for(&mut known, most));
                    }
                    None => leases.1.wait(&mut known),
                }
                continue;
            }
            batch
        };
        // Weak, and held for one batch only: the thread must not keep a client alive that its users have dropped.
        // Without the lock: an extension waits for the server, and verdicts must not wait for it.
        let Some(inner) = client.upgrade() else { return };
        let gone = extend(&inner.pool, &batch);
        let mut known = leases.0.lock();
        for lease in gone {
            // The lease is over at the server. Its holder learns of it from its verdict, which is `Fenced`.
            known.held.remove(&lease.token);
        }
    }
}

/// Extends leases; those that cannot be any more.
fn extend(pool: &Pool, batch: &[WireExtend]) -> Vec<WireExtend> {
    let Ok(meta) = WireExtend::encode_all(batch) else { return batch.to_vec() };
    let read = |read: &mut WireReader<'_>| read.list(1, |read| read.outcome(|_| Ok(())));
    let answer = Calls::new(pool, None).ask(Call::Extend, Duration::ZERO, &meta, read);
    match answer {
        Ok((outcomes, _)) => batch.iter().zip(outcomes).filter(|(_, one)| one.is_err()).map(|(one, _)| *one).collect(),
        // The server is away: they are tried again when they are due.
        Err(_) => Vec::new(),
    }
}
