//! The file of the map that a node of a cluster goes by.
//!
//! ```text
//! map ─▶ map.json.new, durable ─▶ renamed to map.json ─▶ superblock with its epoch, durable ─▶ in force
//! ```
//!
//! *Invariant*: nothing is done under a map before the superblock has its epoch, and the file is never of a lower one
//! (tests/cluster.rs).
//!
//! *On failure*: cut off before the rename, the earlier map is in force; after it, the next opening ends the adoption. The file
//! of a first adoption that was cut off counts for nothing: the superblock says that the store is no node of a cluster.

use crate::Store;
use crate::keyspace_file::REGION_FILE;
use forebay_core::map::{ClusterMap, Hex128, Seat};
use forebay_core::{Error, Result};
use forebay_media::bytes::{Membership, Superblock};
use forebay_media::hot::{FlushPolicy, Region};
use forebay_media::region_file::{read_superblock, write_durably};
use std::path::Path;
use std::sync::Arc;

const MAP_FILE: &str = "map.json";
const NEW_FILE: &str = "map.json.new";

/// What the map must admit the store as.
pub(crate) fn holding(superblock: &Superblock) -> (Hex128, u32) {
    (Hex128(u128::from_be_bytes(superblock.store)), superblock.lost_in)
}

impl Store {
    /// What a map must admit a store as that nobody has open: [`Store::holding`].
    ///
    /// # Errors
    /// `Invalid` where there is no store; `Unavailable` where another process has it.
    pub fn holding_of(dir: &Path) -> Result<(Hex128, u32)> {
        let region = Region::open(&dir.join(REGION_FILE), FlushPolicy::Auto)?;
        Ok(holding(&read_superblock(&region)?))
    }
}

/// What the superblock says of a node under its map.
pub(crate) fn membership(seat: &Seat) -> Membership {
    let mut cluster = [0; Membership::CLUSTER_BYTES];
    cluster.copy_from_slice(&seat.map().cluster().0.to_be_bytes()[..Membership::CLUSTER_BYTES]);
    Membership { epoch: seat.map().epoch(), node: seat.node(), cluster }
}

/// The seat of a store at its opening, by its superblock: the map of its directory, or `given` where it has none. The
/// superblock gets the epoch of an adoption that was cut off; `None` for a store outside of a cluster.
pub(crate) fn seat_of(
    dir: Option<&Path>,
    given: Option<&Arc<ClusterMap>>,
    superblock: &mut Superblock,
    keyspace: &str,
) -> Result<Option<Arc<Seat>>> {
    let Some(member) = superblock.member else { return Ok(None) };
    let map = match (dir, given) {
        (Some(dir), _) => Arc::new(read(dir)?),
        (None, Some(map)) => map.clone(),
        (None, None) => return Err(lacks(&format!("node {} of a cluster has no map", member.node))),
    };
    let seat = Seat::new(map, keyspace, holding(superblock))?;
    let now = membership(&seat);
    let refused = |what: String| Err(lacks(&what));
    if now.cluster != member.cluster || now.node != member.node {
        return refused(format!("{MAP_FILE} is not of the cluster that made this store node {}", member.node));
    }
    if now.epoch < member.epoch {
        return refused(format!("{MAP_FILE} has epoch {}, and this node went by epoch {}", now.epoch, member.epoch));
    }
    superblock.member = Some(now);
    Ok(Some(Arc::new(seat)))
}

/// The seat of a store whose region is gone: that of the map in its directory, if there is one.
pub(crate) fn seat_without_region(
    dir: &Path,
    superblock: &mut Superblock,
    keyspace: &str,
) -> Result<Option<Arc<Seat>>> {
    if !dir.join(MAP_FILE).exists() {
        return Ok(None);
    }
    let seat = Seat::new(Arc::new(read(dir)?), keyspace, holding(superblock))?;
    superblock.member = Some(membership(&seat));
    Ok(Some(Arc::new(seat)))
}

fn lacks(what: &str) -> Error {
    Error::corrupt(format!("{what}: put the present map of the cluster there, as {MAP_FILE}, and open it again"))
}

fn read(dir: &Path) -> Result<ClusterMap> {
    let path = dir.join(MAP_FILE);
    let text = std::fs::read_to_string(&path)
        .map_err(|error| lacks(&format!("{} cannot be read", path.display())).with_source(error))?;
    ClusterMap::from_json(&text).map_err(|error| lacks(&format!("{} is no map", path.display())).with_source(error))
}

/// Writes the map, so that it is there after a power loss as well.
///
/// # Errors
/// `Unavailable` where the directory cannot be written: the earlier file may be there, or this one.
pub(crate) fn write(dir: &Path, map: &ClusterMap) -> Result<()> {
    let written = write_durably(dir, NEW_FILE, &map.to_json()).and_then(|()| {
        std::fs::rename(dir.join(NEW_FILE), dir.join(MAP_FILE))?;
        std::fs::File::open(dir)?.sync_all()
    });
    written.map_err(|error| {
        Error::unavailable(format!("{}: cannot write {MAP_FILE}; try again", dir.display())).with_source(error)
    })
}
