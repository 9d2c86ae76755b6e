//! The first bytes of a region: what it is, how it is cut, which life it is in. Two copies alternate.
//!
//! ```text
//! magic 8 | format 4 | length 4 | store id 16 | keyspace crc 4 | key bytes 2 | primary bytes 2 | segment bytes 8
//! segments 4 | boot generation 4 | revision 4 | clean 1, zero 3 | machine boot id 36 | devices 4 | lost in 4
//! epoch 4 | node 2 | cluster 10 | crc 4
//! ```

use super::decision::Reader;
use crate::limits::{SEGMENT_HEADER_BYTES, SUPERBLOCK_AREA_BYTES};
use forebay_core::{Error, Result, crc32c};

/// How a region is cut. Fixed at creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes of one segment, header included.
    pub segment_bytes: u64,
    /// Segments after the superblock area.
    pub segments: u32,
    /// Bytes of a packed key.
    pub key_bytes: u16,
    /// Bytes of a packed primary key.
    pub primary_bytes: u16,
}

impl Geometry {
    /// Bytes of the whole region.
    pub fn region_bytes(&self) -> u64 {
        SUPERBLOCK_AREA_BYTES as u64 + u64::from(self.segments) * self.segment_bytes
    }

    /// Where a segment begins.
    #[inline]
    pub fn segment_offset(&self, segment: u32) -> u64 {
        SUPERBLOCK_AREA_BYTES as u64 + u64::from(segment) * self.segment_bytes
    }

    fn check(&self) -> Result<()> {
        let legal = self.segment_bytes > SEGMENT_HEADER_BYTES as u64
            && self.segment_bytes.is_multiple_of(SEGMENT_HEADER_BYTES as u64)
            && self.segment_bytes <= 1 << 37
            && (1..=1 << 24).contains(&self.segments)
            && (2..=forebay_core::limits::KEY_BYTES_MAX as u16).contains(&self.key_bytes)
            && (1..self.key_bytes).contains(&self.primary_bytes);
        if legal { Ok(()) } else { Err(Error::corrupt(format!("superblock with an impossible geometry: {self:?}"))) }
    }
}

/// What a region is and which life it is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Random identity of the store: part of every checksum seed.
    pub store: [u8; 16],
    /// CRC-32C of the keyspace file that belongs to the store.
    pub keyspace_crc: u32,
    /// How the region is cut.
    pub geometry: Geometry,
    /// Devices of the warm level that the store was made with; 0 where it has none. Each says on itself which of them it
    /// is, and of which store.
    pub devices: u32,
    /// Raised durably at each opening: part of every token.
    pub boot: u32,
    /// Counts the writes of the superblock; the higher valid copy is in force.
    pub revision: u32,
    /// The store was closed in order and flushed.
    pub clean: bool,
    /// The machine's boot id at the last opening: tells a restart of the process from one of the machine.
    pub machine_boot: [u8; 36],
    /// Boot generation at whose opening a loss was accepted last; 0 where none ever was. With the store's identity it tells what the
    /// store holds: after a loss it is no longer what a cluster's map admitted.
    pub lost_in: u32,
    /// What the store is in a cluster; `None` outside of one.
    pub member: Option<Membership>,
}

/// A store as a node of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Membership {
    /// Epoch of the last map that the node adopted; from 1 on.
    pub epoch: u32,
    /// Number of the node.
    pub node: u16,
    /// The first bytes of the cluster's identity: a map of another one is refused.
    pub cluster: [u8; Membership::CLUSTER_BYTES],
}

impl Membership {
    /// Bytes of a cluster's identity that the superblock has room for.
    pub const CLUSTER_BYTES: usize = 10;
}

const MAGIC: [u8; 8] = *b"FOREBAY\x01";

// Both copies fit, each in a page of its own; a ring keeps its note behind the superblock in the same page.
const _: () = assert!(Superblock::BYTES <= 1024 && 2 * 1024 <= SUPERBLOCK_AREA_BYTES);

impl Superblock {
    /// Bytes of one copy that mean something; the copies are 4096 bytes apart.
    pub const BYTES: usize = 128;

    /// Version of the region's format: any change of its bytes raises it.
    pub const FORMAT: u32 = 5;
    /// That of a node of a cluster: a build that knows no maps would serve what is another node's.
    pub const FORMAT_MEMBER: u32 = 6;
    /// The oldest version that is read: what it has means the same today.
    const FORMAT_MIN: u32 = 3;

    /// Whether these are the bytes of an earlier format: a build that knows no other would take them, and nothing else.
    pub fn is_earlier(bytes: &[u8]) -> bool {
        let format = |bytes: &[u8; 12]| u32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]);
        bytes.first_chunk().is_some_and(|head: &[u8; 12]| head[..8] == MAGIC && format(head) < Self::FORMAT)
    }

    /// The superblock as bytes.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut out = [0; Self::BYTES];
        out[..8].copy_from_slice(&MAGIC);
        let format = if self.member.is_some() { Self::FORMAT_MEMBER } else { Self::FORMAT };
        out[8..12].copy_from_slice(&format.to_le_bytes());
        out[12..16].copy_from_slice(&(Self::BYTES as u32).to_le_bytes());
        out[16..32].copy_from_slice(&self.store);
        out[32..36].copy_from_slice(&self.keyspace_crc.to_le_bytes());
        out[36..38].copy_from_slice(&self.geometry.key_bytes.to_le_bytes());
        out[38..40].copy_from_slice(&self.geometry.primary_bytes.to_le_bytes());
        out[40..48].copy_from_slice(&self.geometry.segment_bytes.to_le_bytes());
        out[48..52].copy_from_slice(&self.geometry.segments.to_le_bytes());
        out[52..56].copy_from_slice(&self.boot.to_le_bytes());
        out[56..60].copy_from_slice(&self.revision.to_le_bytes());
        out[60] = u8::from(self.clean);
        out[64..100].copy_from_slice(&self.machine_boot);
        out[100..104].copy_from_slice(&self.devices.to_le_bytes());
        out[104..108].copy_from_slice(&self.lost_in.to_le_bytes());
        if let Some(member) = self.member {
            out[108..112].copy_from_slice(&member.epoch.to_le_bytes());
            out[112..114].copy_from_slice(&member.node.to_le_bytes());
            out[114..124].copy_from_slice(&member.cluster);
        }
        let crc = crc32c(&out[..124]);
        out[124..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Reads one copy.
    ///
    /// # Errors
    /// `Invalid` where it is not a Forebay region or one of another format version; `Corrupt` where it does not verify.
    pub fn decode(bytes: &[u8]) -> Result<Superblock> {
        let bytes = bytes.get(..Self::BYTES).ok_or_else(|| Error::corrupt("superblock: file too short"))?;
        let mut reader = Reader(bytes);
        let magic = reader.bytes(8)?;
        let format = reader.u32()?;
        // Magic and version before the checksum: a file that is foreign or of another version is not a damaged one.
        if magic != MAGIC {
            return Err(Error::invalid("not a Forebay region: the magic bytes are missing"));
        }
        if !(Self::FORMAT_MIN..=Self::FORMAT_MEMBER).contains(&format) {
            let whose = if format > Self::FORMAT_MEMBER { "a later" } else { "an earlier" };
            return Err(Error::invalid(format!(
                "region of format version {format}, which {whose} version of forebay wrote; forebay {} reads {} to {} and \
                 converts no other: open it with that version, release or remove what it holds there, close it, then make a \
                 new one",
                env!("CARGO_PKG_VERSION"),
                Self::FORMAT_MIN,
                Self::FORMAT_MEMBER
            )));
        }
        if crc32c(&bytes[..124]) != u32::from_le_bytes([bytes[124], bytes[125], bytes[126], bytes[127]]) {
            return Err(Error::corrupt("superblock: checksum does not match"));
        }
        // Written for people with a hex editor; this version has one length.
        let _length = reader.u32()?;
        let mut store = [0; 16];
        store.copy_from_slice(reader.bytes(16)?);
        let keyspace_crc = reader.u32()?;
        let widths = reader.u32()?;
        let segment_bytes = reader.u64()?;
        let segments = reader.u32()?;
        let (boot, revision, clean) = (reader.u32()?, reader.u32()?, reader.u32()? & 1 == 1);
        let mut machine_boot = [0; 36];
        machine_boot.copy_from_slice(reader.bytes(36)?);
        let (devices, lost_in) = (reader.u32()?, reader.u32()?);
        let (epoch, node) = (reader.u32()?, reader.bytes(2)?);
        let mut cluster = [0; Membership::CLUSTER_BYTES];
        cluster.copy_from_slice(reader.bytes(Membership::CLUSTER_BYTES)?);
        let member = Membership { epoch, node: u16::from_le_bytes([node[0], node[1]]), cluster };
        let member = (format == Self::FORMAT_MEMBER).then_some(member);
        let geometry =
            Geometry { segment_bytes, segments, key_bytes: widths as u16, primary_bytes: (widths >> 16) as u16 };
        // A checksum proves that these bytes were written, not that a version without a defect wrote them: sizes that cannot
        // be would lead to accesses outside of the mapping.
        geometry.check()?;
        Ok(Superblock { store, keyspace_crc, geometry, devices, boot, revision, clean, machine_boot, lost_in, member })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::Kind;

    fn sample() -> Superblock {
        Superblock {
            store: [9; 16],
            keyspace_crc: 77,
            geometry: Geometry { segment_bytes: 1 << 20, segments: 64, key_bytes: 16, primary_bytes: 12 },
            devices: 2,
            boot: 3,
            revision: 5,
            clean: true,
            machine_boot: [b'x'; 36],
            lost_in: 2,
            member: None,
        }
    }

    #[test]
    fn round_trip_and_every_bit_matters() {
        let mut bytes = sample().encode();
        assert_eq!(Superblock::decode(&bytes).unwrap(), sample());
        for bit in 0..Superblock::BYTES * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(Superblock::decode(&bytes).is_err(), "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        let member = Some(Membership { epoch: 41, node: 0x0102, cluster: *b"0123456789" });
        let bytes = Superblock { member, ..sample() }.encode();
        assert_eq!((bytes[8], Superblock::decode(&bytes).unwrap().member), (6, member));
        assert!(!Superblock::is_earlier(&bytes));
    }

    #[test]
    fn an_earlier_format_is_read_and_found() {
        let mut bytes = sample().encode();
        assert!(!Superblock::is_earlier(&bytes) && !Superblock::is_earlier(&[0; 128]));
        bytes[8] = 3;
        let crc = crc32c(&bytes[..124]);
        bytes[124..].copy_from_slice(&crc.to_le_bytes());
        assert!(Superblock::is_earlier(&bytes));
        assert_eq!(Superblock::decode(&bytes).unwrap(), sample());
    }

    #[test]
    fn says_whether_it_is_foreign_another_version_or_broken() {
        let kind = |bytes: &[u8]| Superblock::decode(bytes).unwrap_err().kind();
        let mut bytes = sample().encode();
        assert_eq!(kind(&[0; 128]), Kind::Invalid);
        assert_eq!(kind(&bytes[..100]), Kind::Corrupt);
        bytes[8] = 2;
        assert_eq!(kind(&bytes), Kind::Invalid);
        let message = Superblock::decode(&bytes).unwrap_err().message().to_owned();
        let words = ["version 2, which an earlier version", "reads 3 to 6", "open it with that version"];
        assert!(words.iter().all(|word| message.contains(word)), "{message}");
        bytes[8] = 7;
        let message = Superblock::decode(&bytes).unwrap_err().message().to_owned();
        assert!(message.contains("version 7, which a later version"), "{message}");
        let mut impossible = sample();
        impossible.geometry.segments = 0;
        assert_eq!(kind(&impossible.encode()), Kind::Corrupt);
    }
}
