//! The file of a region in its directory, for any kind of keyspace: made, found again, and the superblock that
//! says which life it is in.
//!
//! *Invariants*: that a region is open is on its medium before anything of it is written or served ([`Life::begin`],
//! tests/power_loss/file.rs): where the medium is an ordinary file, the kernel might keep that page for long, and a power
//! loss would find a region that was closed in order.
//!
//! *On failure*: opening fails closed: a region of another keyspace, or one whose medium did not survive a restart of the
//! machine, is not served.

use crate::bytes::{Geometry, Superblock};
use crate::hot::{FlushPolicy, Region};
use crate::limits::SUPERBLOCK_AREA_BYTES;
use forebay_core::mutants::is_planted;
use forebay_core::{Error, Kind, Random, Result, SystemRandom, crc32c};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

const COPY_BYTES: u64 = SUPERBLOCK_AREA_BYTES as u64 / 2;

/// What a region holds, as people call it, and how its files are named.
pub struct Holds {
    /// What people call it: `store`, `ring`.
    pub name: &'static str,
    /// Name of the file with its keyspace.
    pub keyspace_file: &'static str,
    /// Name of the file with its region.
    pub region_file: &'static str,
    /// Files of keyspaces of another kind, with what each says: nothing is made beside them.
    pub others: &'static [(&'static str, &'static str)],
    /// What a restart of the machine over a medium that does not survive it may have cost, and what to do.
    pub after_restart: &'static str,
}

/// Makes the region and the keyspace file in `dir`, which is made if need be and holds none of the kind yet. No
/// other region has this `id`.
///
/// # Errors
/// `Invalid` for a directory that holds one, or a keyspace of another kind, or cannot be written; `Full` without space for the
/// region.
pub fn make(
    holds: &Holds,
    dir: &Path,
    text: &str,
    bytes: u64,
    region_dir: Option<&PathBuf>,
    flush: FlushPolicy,
    id: [u8; 16],
) -> Result<Region> {
    let invalid = |what: &str, error| Error::invalid(format!("{}: {what}", dir.display())).with_source(error);
    std::fs::create_dir_all(dir).map_err(|error| invalid("cannot make the directory", error))?;
    if let Some((file, other)) = holds.others.iter().find(|other| dir.join(other.0).symlink_metadata().is_ok()) {
        let (dir, name) = (dir.display(), holds.name);
        return Err(Error::invalid(format!("{dir}: holds {other} ({file}): a {name} takes a directory of its own")));
    }
    let path = dir.join(holds.region_file);
    if path.symlink_metadata().is_ok() && !Region::is_unfinished(&path) {
        return Err(Error::invalid(format!("{}: holds a {} already; open it instead", dir.display(), holds.name)));
    }
    // A creation that was cut off before its superblock left a file of zeros: nothing was ever acknowledged in it.
    let _ = std::fs::remove_file(&path);
    let region = make_region(dir, &path, &id, bytes, region_dir, flush)?;
    // The keyspace last: a directory without it is none of a store, so that a creation that is cut off can be repeated.
    let cannot_write = format!("cannot write {}", holds.keyspace_file);
    write_durably(dir, holds.keyspace_file, text).map_err(|error| invalid(&cannot_write, error))?;
    Ok(region)
}

/// Writes a file of a store's directory, so that it is there after a power loss as well, with all names beside it.
pub fn write_durably(dir: &Path, name: &str, text: &str) -> std::io::Result<()> {
    let mut file = File::create(dir.join(name))?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    // The name as well: a file whose directory was not synced may be gone after a power loss, bytes and all.
    File::open(dir)?.sync_all()
}

/// A new region for a store whose old one is gone. Its keyspace file is there. `id` is part of the name of a
/// file that lies elsewhere.
///
/// # Errors
/// `Full` without space for the region.
pub fn make_again(
    holds: &Holds,
    dir: &Path,
    bytes: u64,
    region_dir: Option<&PathBuf>,
    flush: FlushPolicy,
    id: [u8; 16],
) -> Result<Region> {
    let path = dir.join(holds.region_file);
    // A link that leads nowhere any more: a region in memory is gone with its machine, the link to it is on a disk.
    let _ = std::fs::remove_file(&path);
    make_region(dir, &path, &id, bytes, region_dir, flush)
}

fn make_region(
    dir: &Path,
    path: &Path,
    id: &[u8; 16],
    bytes: u64,
    region_dir: Option<&PathBuf>,
    flush: FlushPolicy,
) -> Result<Region> {
    let Some(elsewhere) = region_dir else { return Region::create(path, bytes, flush) };
    let name: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    let target = elsewhere.join(format!("forebay-{name}.fb"));
    let region = Region::create(&target, bytes, flush)?;
    let invalid = |error| Error::invalid(format!("{}: cannot link the region", dir.display())).with_source(error);
    std::os::unix::fs::symlink(&target, path).map_err(invalid)?;
    Ok(region)
}

/// The superblock of a region that has just been made; `devices` are those of the store's warm level.
pub fn first_life(region: &Region, id: [u8; 16], text: &str, geometry: Geometry, devices: u32) -> Superblock {
    Superblock {
        store: id,
        keyspace_crc: crc32c(text.as_bytes()),
        geometry,
        devices,
        boot: 1,
        revision: 0,
        clean: false,
        machine_boot: region.machine_boot(),
        lost_in: 0,
        member: None,
    }
}

/// The next life of a region.
pub struct Life {
    /// As [`Life::begin`] or [`Life::settle`] writes it.
    pub superblock: Superblock,
    /// The last life ended in order.
    pub was_clean: bool,
    /// What was not flushed may be lost: payloads are to be looked at.
    pub power_lost: bool,
    /// A copy of the superblock has an earlier format.
    is_earlier: bool,
}

impl Life {
    /// To be called before recovery, which may write. A region that was closed in order is durably marked as open. One that
    /// was not says so already, and keeps the machine's boot id of that life until recovery has looked at everything: were
    /// the opening cut off, the next one must still see that the machine restarted.
    ///
    /// # Errors
    /// `Corrupt` where the medium refuses the page.
    pub fn begin(&mut self, region: &Region) -> Result<()> {
        debug_assert!(!self.superblock.clean, "a life that begins as closed");
        if self.was_clean { self.write(region) } else { Ok(()) }
    }

    /// To be called where recovery refused: a region that was closed in order is marked as closed again, so that its account
    /// stays exact for an operator who accepts the loss.
    pub fn take_back(&mut self, region: &Region) {
        if self.was_clean {
            self.superblock.clean = true;
            // What recovery refused is the error to answer; a store that is not clean is only looked at more closely.
            let _ = write_superblock_durably(region, &mut self.superblock);
        }
    }

    /// To be called after recovery, before anything is served: the new boot generation is durable.
    ///
    /// # Errors
    /// `Corrupt` where the medium refuses the page.
    pub fn settle(&mut self, region: &Region) -> Result<()> {
        if self.was_clean { Ok(()) } else { self.write(region) }
    }

    fn write(&mut self, region: &Region) -> Result<()> {
        write_superblock_durably(region, &mut self.superblock)?;
        // Over both copies where the format changes: a build that knows only the earlier one would go on with that copy.
        if self.is_earlier { write_superblock_durably(region, &mut self.superblock) } else { Ok(()) }
    }
}

/// Reads the superblock for another life, in which keys have these widths (whole and primary, in bytes).
///
/// # Errors
/// `Invalid` for a region of another keyspace or version; `Corrupt` for one that cannot be read, or whose medium did not
/// survive a restart of the machine, unless that loss is accepted.
pub fn next_life(
    holds: &Holds,
    region: &Region,
    text: &str,
    widths: (usize, usize),
    accept_loss: bool,
) -> Result<Life> {
    let mut superblock = read_superblock(region)?;
    let is_earlier = [0, COPY_BYTES].into_iter().any(|at| Superblock::is_earlier(region.bytes(at, Superblock::BYTES)));
    if superblock.keyspace_crc != crc32c(text.as_bytes()) {
        return Err(Error::invalid(format!("{} is not the one that this region was made with", holds.keyspace_file)));
    }
    let found = (superblock.geometry.key_bytes as usize, superblock.geometry.primary_bytes as usize);
    if found != widths {
        return Err(Error::corrupt(format!("the superblock says keys of {found:?} bytes, the keyspace others")));
    }
    let here = region.machine_boot();
    let was_clean = superblock.clean;
    // The boot id of the machine, not the age of the file: a process that died left all its stores in the page cache, a
    // machine that restarted may have lost any of them.
    let restarted = superblock.machine_boot != here && !was_clean;
    if restarted && !region.is_persistent() && !accept_loss {
        return Err(Error::corrupt(format!(
            "the machine restarted while this {} was open, and its medium does not survive that: what is left may lack \
             acknowledged fragments{}",
            holds.name, holds.after_restart
        )));
    }
    let power_lost = !was_clean && (restarted || region.is_persistent());
    let next = superblock.boot.checked_add(1).ok_or_else(|| Error::corrupt("the last boot generation is used"))?;
    superblock.boot = if is_planted("boot-kept") { superblock.boot } else { next };
    if restarted && !region.is_persistent() {
        superblock.lost_in = superblock.boot;
    }
    superblock.clean = false;
    superblock.machine_boot = here;
    Ok(Life { superblock, was_clean, power_lost, is_earlier })
}

/// The valid superblock with the higher revision.
pub fn read_superblock(region: &Region) -> Result<Superblock> {
    let read = |copy: u64| Superblock::decode(region.bytes(copy * COPY_BYTES, Superblock::BYTES));
    let superblock = match (read(0), read(1)) {
        (Ok(a), Ok(b)) => {
            if a.revision >= b.revision {
                a
            } else {
                b
            }
        }
        (Ok(one), Err(_)) | (Err(_), Ok(one)) => one,
        // Both unreadable: the copy that says most about why.
        (Err(a), Err(b)) => return Err(if b.kind() == Kind::Invalid { a } else { b }),
    };
    let needed = superblock.geometry.region_bytes();
    // hugetlbfs rounds the file up to whole huge pages. Any other length is a file that was cut or put together by hand.
    let rounded = needed.next_multiple_of(2 << 20);
    // A simulated medium may be larger than its region.
    let fits = region.length() == needed || region.length() == rounded || !region.is_mapped();
    if !fits || region.length() < needed {
        return Err(Error::corrupt(format!("the region has {} bytes, its superblock wants {needed}", region.length())));
    }
    Ok(superblock)
}

/// Writes the superblock over its older copy, and waits until the medium has it.
///
/// # Errors
/// `Corrupt` where the medium refuses the page.
pub fn write_superblock_durably(region: &Region, superblock: &mut Superblock) -> Result<()> {
    write_superblock(region, superblock);
    region.sync_start(SUPERBLOCK_AREA_BYTES)
}

/// Writes the superblock over its older copy: durable once the medium's pages are.
pub fn write_superblock(region: &Region, superblock: &mut Superblock) {
    superblock.revision = superblock.revision.wrapping_add(1);
    // Over the older copy: a write that is torn leaves the one that was in force.
    let offset = u64::from(superblock.revision % 2) * COPY_BYTES;
    region.write(offset, &superblock.encode());
    region.flush(offset, Superblock::BYTES);
    region.fence();
}

/// 16 bytes that no other region has, from the operating system.
pub fn random_id() -> [u8; 16] {
    SystemRandom.id()
}
