//! The first frames of a connection: the identity of the client, and what each side takes.

use super::{WireReader, WireWriter};
use forebay_core::{Error, Result};

/// The client's hello.
#[derive(Clone, PartialEq, Eq)]
pub struct Hello {
    /// Features that it can do, as bits; none are given yet.
    pub features: u32,
    /// Bytes of answers that may be under way to it.
    pub window_bytes: u32,
    /// Its token; empty without one.
    pub token: Vec<u8>,
    /// The keyspace that it wants; empty where the server has one.
    pub keyspace: String,
    /// What it calls itself, for logs and lists.
    pub name: String,
}

/// Without the token: it is a secret.
impl std::fmt::Debug for Hello {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Hello({}, keyspace {}, window {})", self.name, self.keyspace, self.window_bytes)
    }
}

/// A node of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// The cluster.
    pub cluster: u128,
    /// The node's number.
    pub node: u16,
}

/// The server's hello.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// Features that both can do.
    pub features: u32,
    /// Bytes of requests that may be under way to the server: no frame is longer.
    pub window_bytes: u32,
    /// Boot generation of the store.
    pub boot: u32,
    /// How long a lease lasts without a heartbeat where none is asked for, in milliseconds.
    pub lease_ms: u32,
    /// The keyspace, as TOML.
    pub keyspace: String,
    /// Version of the server's software.
    pub version: String,
    /// The node that the server is. Without a cluster there is no byte of it.
    pub member: Option<Member>,
}

impl Hello {
    /// The meta.
    ///
    /// # Errors
    /// None for a token and names of a sensible length.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let mut out = WireWriter::new();
        out.u32(self.features);
        out.u32(self.window_bytes);
        out.long(&self.token)?;
        out.long(self.keyspace.as_bytes())?;
        out.long(self.name.as_bytes())?;
        Ok(out.finish())
    }

    /// From a meta. What follows is for later versions, and passed over.
    ///
    /// # Errors
    /// `Corrupt` for bytes that are none.
    pub fn decode(meta: &[u8]) -> Result<Hello> {
        let mut read = WireReader::new(meta);
        Ok(Hello {
            features: read.u32()?,
            window_bytes: read.u32()?,
            token: read.long()?.to_vec(),
            keyspace: read.text()?.to_owned(),
            name: read.text()?.to_owned(),
        })
    }
}

impl Welcome {
    /// The meta.
    ///
    /// # Errors
    /// None for a keyspace.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let mut out = WireWriter::new();
        out.u32(self.features);
        out.u32(self.window_bytes);
        out.u32(self.boot);
        out.u32(self.lease_ms);
        out.long(self.keyspace.as_bytes())?;
        out.long(self.version.as_bytes())?;
        if let Some(member) = self.member {
            out.u8(1);
            out.u64((member.cluster >> 64) as u64);
            out.u64(member.cluster as u64);
            out.u32(member.node.into());
        }
        Ok(out.finish())
    }

    /// From a meta. What follows is for later versions, and passed over.
    ///
    /// # Errors
    /// `Corrupt` for bytes that are none.
    pub fn decode(meta: &[u8]) -> Result<Welcome> {
        let mut read = WireReader::new(meta);
        Ok(Welcome {
            features: read.u32()?,
            window_bytes: read.u32()?,
            boot: read.u32()?,
            lease_ms: read.u32()?,
            keyspace: read.text()?.to_owned(),
            version: read.text()?.to_owned(),
            member: match read.is_empty() || read.u8()? != 1 {
                true => None,
                false => {
                    let cluster = u128::from(read.u64()?) << 64 | u128::from(read.u64()?);
                    let node = u16::try_from(read.u32()?);
                    Some(Member {
                        cluster,
                        node: node.map_err(|error| Error::corrupt("the number of a node").with_source(error))?,
                    })
                }
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_read_what_the_other_says() {
        let hello = Hello {
            features: 0,
            window_bytes: 1 << 20,
            token: b"secret".to_vec(),
            keyspace: "physics".to_owned(),
            name: "readout 7".to_owned(),
        };
        let mut meta = hello.encode().unwrap();
        assert!(!format!("{hello:?}").contains("secret"));
        assert_eq!(Hello::decode(&meta).unwrap(), hello);
        meta.push(9);
        assert_eq!(Hello::decode(&meta).unwrap(), hello);
        let welcome = Welcome {
            features: 0,
            window_bytes: 1 << 24,
            boot: 3,
            lease_ms: 10_000,
            keyspace: "name = 1".to_owned(),
            version: "0.1.0".to_owned(),
            member: None,
        };
        let alone = welcome.encode().unwrap();
        assert_eq!(Welcome::decode(&alone).unwrap(), welcome);
        let of_node = Welcome { member: Some(Member { cluster: 7 << 100, node: 513 }), ..welcome };
        let meta = of_node.encode().unwrap();
        assert_eq!(Welcome::decode(&meta).unwrap(), of_node);
        for end in (0..meta.len()).filter(|&end| end != alone.len()) {
            assert!(Welcome::decode(&meta[..end]).is_err(), "{end}");
        }
    }
}
