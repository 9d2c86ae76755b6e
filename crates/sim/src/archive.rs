//! What movers do: claim containers, read what is accepted, and say that the archive has it; some never say so.

use crate::node::Life;
use crate::work::random;
use crate::world::World;
use forebay_core::{Claim, ClaimRequest, LiveState, MovedStore, Result, Sources};
use rand::RngExt;
use std::rc::Rc;
use std::time::Duration;
use tokio::time::{sleep, sleep_until};

/// Takes accepted events from all nodes to an archive, which is the books.
pub(crate) async fn archive(world: Rc<World>) {
    let mut random = random(&world, 400);
    let request = ClaimRequest {
        move_after: Duration::from_secs(15),
        duration: Duration::from_secs(8),
        ..ClaimRequest::default()
    };
    while !world.is_over() {
        sleep(Duration::from_millis(random.random_range(500..5000))).await;
        sleep_until(world.away_until.get()).await;
        for (place, life) in world.lives() {
            let Ok(Some(claim)) = life.store.claim(&request) else { continue };
            let read = read(&world, &life, &claim);
            let count = read.as_ref().map(Vec::len).map_err(|error| error.kind());
            world.note(format_args!("mover at node {place}: {} events, {:?} {count:?}", claim.events, claim.unit));
            // It dies with the claim, or writes for so long that it may be over.
            let Ok(read) = read else { continue };
            if random.random_bool(0.1) {
                continue;
            }
            sleep(Duration::from_millis(random.random_range(1..4000))).await;
            if !life.is_dead() {
                world.books.borrow_mut().archived(read);
                let proved = life.store.prove(&claim.token).map_err(|error| error.kind());
                if proved.is_ok() {
                    world.count(5);
                }
                world.note(format_args!("mover at node {place}: {proved:?}"));
            }
        }
    }
}

/// Reads what is claimed; answers its fragments.
fn read(world: &World, life: &Life, claim: &Claim) -> Result<Vec<(u64, u64, u64)>> {
    let (mut events, mut fragments) = (0, Vec::new());
    loop {
        let page = life.store.claimed(&claim.token, events)?;
        if page.is_empty() {
            return Ok(fragments);
        }
        events += page.len() as u64;
        for claimed in page.into_iter().filter(|claimed| claimed.event_fragments > 0) {
            let sources = claimed.sources.map_or(Sources::All, Sources::Only);
            // It may have been released meanwhile.
            let Some(event) = life.store.get_event(&claimed.primary, &sources)? else { continue };
            if !matches!(event.state, LiveState::Accepted | LiveState::Debug) && !life.is_dead() {
                let name = world.keyspace.schema.text(claimed.primary.as_bytes());
                world.check(Err(format!("{name}: a mover has claimed it, and it is {:?}", event.state)));
            }
            for fragment in event.fragments {
                let values = world.keyspace.schema.values(fragment.key().as_bytes());
                let of = (values[0], values[1], values[2]);
                if !life.is_dead() {
                    world.check(world.books.borrow().read(of, &fragment));
                }
                fragments.push(of);
            }
        }
    }
}
