//! Events as monitors see them.

use super::{WireFragment, WireReader, WireWriter};
use forebay_core::{Attributes, Key, Keyspace, Primary, Result, SourceStates};

/// An event that was sampled; the payloads of its fragments follow in the same order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WireSample {
    /// The event's name.
    pub primary: Primary,
    /// Its state, in a word.
    pub state: String,
    /// Stage of the selection, by name.
    pub stage: String,
    /// Attributes.
    pub attributes: Attributes,
    /// Fragments in key order.
    pub fragments: Vec<(Key, WireFragment)>,
    /// The state of each of its sources.
    pub sources: SourceStates,
    /// Fragments that were left out.
    pub left_out: u32,
    /// Fragments of the whole event.
    pub event_fragments: u32,
    /// Payload bytes of the whole event.
    pub event_bytes: u64,
}

impl WireSample {
    /// Appends the sample.
    ///
    /// # Errors
    /// None for an event of the keyspace.
    pub fn encode(&self, out: &mut WireWriter, keyspace: &Keyspace) -> Result<()> {
        out.short(self.primary.as_bytes())?;
        out.long(self.state.as_bytes())?;
        out.long(self.stage.as_bytes())?;
        out.attributes(&self.attributes, &keyspace.attributes)?;
        out.fragments(&self.fragments)?;
        out.long(self.sources.packed())?;
        out.u32(self.left_out);
        out.u32(self.event_fragments);
        out.u64(self.event_bytes);
        Ok(())
    }

    /// A sample of the keyspace.
    ///
    /// # Errors
    /// `Corrupt` for bytes that are none, `Invalid` for keys of another schema.
    pub fn decode(read: &mut WireReader<'_>, keyspace: &Keyspace) -> Result<WireSample> {
        Ok(WireSample {
            primary: read.primary(&keyspace.schema)?,
            state: read.text()?.to_owned(),
            stage: read.text()?.to_owned(),
            attributes: read.attributes(&keyspace.attributes)?,
            fragments: read.fragments(&keyspace.schema)?,
            sources: SourceStates::from_packed(read.long()?, keyspace.schema.rest_bytes())?,
            left_out: read.u32()?,
            event_fragments: read.u32()?,
            event_bytes: read.u64()?,
        })
    }
}
