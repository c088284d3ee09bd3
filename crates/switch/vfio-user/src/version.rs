//! Negotiation of the version and of capabilities.

use crate::codec::{CodecError, split};
use crate::header::{DESCRIPTORS, TRANSFER, command};
use serde::{Deserialize, Serialize};

/// The version that both ends speak: later minor versions of the client are answered with this one.
pub(crate) const MAJOR: u16 = 0;
pub(crate) const MINOR: u16 = 0;
/// Bytes of a page, the unit of mappings.
pub(crate) const PAGE: u64 = 4096;

/// Capabilities of one end. Absent ones have the protocol's default values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Capabilities {
    /// Number of descriptors that it receives with one message.
    pub max_msg_fds: u64,
    /// Number of bytes that one message may read or write.
    pub max_data_xfer_size: u64,
    /// Page sizes of mappings, as a bit mask.
    pub pgsizes: u64,
    /// Number of mappings at a time.
    pub max_dma_maps: u64,
    /// Whether it knows `REGION_WRITE_MULTI`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub write_multiple: bool,
}

impl Default for Capabilities {
    fn default() -> Capabilities {
        Capabilities {
            max_msg_fds: 1,
            max_data_xfer_size: 1 << 20,
            pgsizes: PAGE,
            max_dma_maps: 65535,
            write_multiple: false,
        }
    }
}

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Data {
    capabilities: Capabilities,
}

impl Capabilities {
    /// The capabilities of this implementation.
    pub(crate) fn ours(max_dma_maps: u32, write_multiple: bool) -> Capabilities {
        Capabilities {
            max_msg_fds: DESCRIPTORS as u64,
            max_data_xfer_size: TRANSFER as u64,
            pgsizes: PAGE,
            max_dma_maps: max_dma_maps.into(),
            write_multiple,
        }
    }

    /// Decodes a version and its data, which may be absent. Other members are ignored. Attack: the payload's
    /// limit bounds the text, and the parser does not recurse into ignored members.
    pub(crate) fn decode(payload: &[u8]) -> Result<(u16, u16, Capabilities), CodecError> {
        let ([major, minor], text) = split::<[u16; 2]>(command::VERSION, payload)?;
        let wrong = CodecError::Field { command: command::VERSION, field: "set of capabilities" };
        let data = match text {
            [] => Data::default(),
            [text @ .., 0] => serde_json::from_slice(text).map_err(|_| wrong)?,
            _ => return Err(wrong),
        };
        Ok((major, minor, data.capabilities))
    }

    /// The text that follows a version, with its final zero.
    pub(crate) fn encode(self) -> Vec<u8> {
        let mut text = serde_json::to_vec(&Data { capabilities: self }).unwrap_or_default();
        text.push(0);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(text: &[u8]) -> Result<Capabilities, CodecError> {
        let mut payload = vec![0, 0, 1, 0];
        payload.extend_from_slice(text);
        let (major, _, capabilities) = Capabilities::decode(&payload)?;
        assert_eq!(major, 0);
        Ok(capabilities)
    }

    #[test]
    fn absent_members_have_the_protocols_defaults() {
        for text in
            [&b""[..], b"{}\0", b"{\"capabilities\": {}}\0", b"{\"other\": [1, {}], \"capabilities\":{}}\0"]
        {
            assert_eq!(decode(text).unwrap(), Capabilities::default());
        }
        let some =
            decode(b"{\"capabilities\":{\"max_msg_fds\":16,\"migration\":{\"pgsize\":4096}}}\0").unwrap();
        assert_eq!(some, Capabilities { max_msg_fds: 16, ..Capabilities::default() });
    }

    #[test]
    fn capabilities_round_trip() {
        for write_multiple in [false, true] {
            let ours = Capabilities::ours(512, write_multiple);
            assert_eq!(decode(&ours.encode()).unwrap(), ours);
        }
    }

    #[test]
    fn malformed_capabilities_are_refused() {
        let deep = [b"[".repeat(4000), vec![0]].concat();
        let ignored = [b"{\"x\":".to_vec(), b"[".repeat(4000), vec![0]].concat();
        let texts: [&[u8]; 9] = [
            b"\0",
            b"{}",
            b"{}\0\0",
            b"{\"capabilities\":7}\0",
            b"{\"capabilities\":{\"max_msg_fds\":-1}}\0",
            b"{\"capabilities\":{\"max_msg_fds\":1e99}}\0",
            b"{\"capabilities\":{\"write_multiple\":1}}\0",
            &deep,
            &ignored,
        ];
        for text in texts {
            assert!(
                matches!(decode(text), Err(CodecError::Field { .. })),
                "{}",
                String::from_utf8_lossy(text)
            );
        }
        assert!(matches!(Capabilities::decode(&[0; 3]), Err(CodecError::Size { .. })));
    }
}
