//! The headers of a frame: read into a [`Key`], and changed by actions.
//!
//! They are a copy of the frame's first bytes with room in front for tags; what is behind them stays where it is. Field
//! by field they are read as Open vSwitch reads them: one tag, no IP header whose lengths are wrong, no ports in later
//! fragments.

mod edit;
mod parse;

use crate::key::{Key, place};

/// Most bytes of a frame that are read: headers with options, extensions and neighbor discovery's options. A header
/// that ends behind them is not there for matches.
pub const READ: usize = 192;
/// Room for tags in front.
const ROOM: usize = 32;
/// Length of a tag.
const TAG: usize = 4;
/// Length of an Ethernet header.
const ETHERNET: usize = 14;

/// Where headers are in [`Headers`], and what they are.
#[derive(Clone, Copy, Debug, Default)]
struct Layout {
    /// Number of the tags that are known.
    tags: u8,
    /// The header of IP or ARP; 0: there is none that is valid.
    l3: u8,
    /// The header behind it; 0: there is none that is valid.
    l4: u8,
    /// Whether the final destination is in a routing header, so that checksums do not have that of the IP header.
    is_routed: bool,
}

/// The headers of a frame.
#[derive(Clone, Debug)]
pub struct Headers {
    bytes: [u8; ROOM + READ],
    start: u8,
    end: u8,
    /// Length of the whole frame.
    len: u32,
    /// Whether the checksum behind IP is that of the pseudo header only, since the rest of it is pending.
    is_partial: bool,
    layout: Layout,
}

const _: () = assert!(ROOM + READ <= u8::MAX as usize);

impl Default for Headers {
    fn default() -> Headers {
        let (start, end) = (ROOM as u8, ROOM as u8);
        let layout = Layout::default();
        Headers { bytes: [0; ROOM + READ], start, end, len: 0, is_partial: false, layout }
    }
}

impl Headers {
    /// Reads the first bytes of a frame of `len` bytes: `read` writes them to a slice, and returns their number.
    /// `is_partial`: its checksum behind IP is pending, so that it is that of the pseudo header. Returns the key, whose
    /// port is `in_port`.
    #[inline]
    pub fn read(
        &mut self,
        (len, is_partial): (u32, bool),
        in_port: u16,
        read: impl FnOnce(&mut [u8]) -> usize,
    ) -> Key {
        let most = READ.min(len as usize);
        let count = read(&mut self.bytes[ROOM..ROOM + most]).min(most);
        (self.start, self.end) = (ROOM as u8, (ROOM + count) as u8);
        (self.len, self.is_partial) = (len, is_partial);
        let mut key = Key::EMPTY;
        self.layout = parse::parse(&self.bytes[..ROOM + count], len as usize, &mut key);
        key.set(place::IN_PORT, in_port);
        key
    }

    /// The headers as they are now.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[usize::from(self.start)..usize::from(self.end)]
    }

    /// How many of the frame's bytes, as it arrived, they stand for.
    #[inline]
    pub fn replaces(&self) -> usize {
        usize::from(self.end) - ROOM
    }

    /// By how many bytes the frame has grown.
    #[inline]
    pub fn grown(&self) -> i16 {
        ROOM as i16 - i16::from(self.start)
    }
}
