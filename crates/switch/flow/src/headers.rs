//! The headers of a frame: read into a [`Key`], and changed by actions.
//!
//! They are a copy of the frame's first bytes with room in front for tags; what is behind them stays where it is. Field
//! by field they are read as Open vSwitch reads them: one tag, no IP header whose lengths are wrong, no ports in later
//! fragments.

mod edit;
mod parse;

use crate::key::{Key, place};

/// Bytes of a frame that are read at first: the headers of IPv4 without options, and of ARP, with a tag.
const FIRST: usize = 64;
/// Bytes of a frame of IPv6 that are read at first.
const FIRST_OF_IPV6: usize = 192;
/// Most bytes of a frame that are read: headers with options, extensions and neighbor discovery's options. A frame
/// whose headers end behind them is dropped. Attack: long extension headers, by which a guest passes filters of what is
/// behind them.
pub const LONGEST_HEADERS: usize = 512;
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
    l3: u16,
    /// The header behind it; 0: there is none that is valid.
    l4: u16,
    /// Whether the final destination is in a routing header, so that checksums do not have that of the IP header.
    is_routed: bool,
    /// Whether there are headers that were not read.
    is_cut: bool,
}

/// The headers of a frame.
#[derive(Debug)]
pub struct Headers {
    bytes: [u8; ROOM + LONGEST_HEADERS],
    start: u16,
    end: u16,
    /// Where a checksum is that is pending: it is that of the pseudo header only.
    pending: Option<u16>,
    layout: Layout,
}

const _: () = assert!(ROOM + LONGEST_HEADERS <= u16::MAX as usize);

impl Default for Headers {
    fn default() -> Headers {
        let (start, end) = (ROOM as u16, ROOM as u16);
        let layout = Layout::default();
        Headers { bytes: [0; ROOM + LONGEST_HEADERS], start, end, pending: None, layout }
    }
}

impl Clone for Headers {
    /// Copies the bytes that are there only: most of the room is for the longest ones.
    fn clone(&self) -> Headers {
        let &Headers { start, end, pending, layout, .. } = self;
        let mut bytes = [0; ROOM + LONGEST_HEADERS];
        bytes[..usize::from(end)].copy_from_slice(&self.bytes[..usize::from(end)]);
        Headers { bytes, start, end, pending, layout }
    }
}

/// The headers of a frame are longer than [`LONGEST_HEADERS`], or there are more than `ipv6::EXTENSIONS` of extensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the headers of the frame are too long or too many")]
pub struct TooLong;

impl Headers {
    /// Reads the first bytes of a frame of `len` bytes: `read` writes those from an offset on to a slice, and returns
    /// their number. `pending`: offset of a checksum that is pending, so that it is that of the pseudo header. Returns
    /// the key, whose port is `in_port`.
    ///
    /// # Errors
    /// There are headers that are not read.
    #[inline]
    pub fn read(
        &mut self,
        (len, pending): (u32, Option<u16>),
        in_port: u16,
        mut read: impl FnMut(usize, &mut [u8]) -> usize,
    ) -> Result<Key, TooLong> {
        let most = FIRST.min(len as usize);
        let mut count = read(0, &mut self.bytes[ROOM..ROOM + most]).min(most);
        let has_ipv6 = |at: usize| self.bytes[ROOM + at..ROOM + at + 2] == [0x86, 0xdd];
        if count == FIRST && (has_ipv6(ETHERNET - 2) || has_ipv6(ETHERNET + TAG - 2)) {
            let most = FIRST_OF_IPV6.min(len as usize);
            count += read(count, &mut self.bytes[ROOM + count..ROOM + most]).min(most - count);
        }
        self.pending = pending.map(|at| at.saturating_add(ROOM as u16));
        let mut key = Key::EMPTY;
        self.layout = parse::parse(&self.bytes[..ROOM + count], len as usize, &mut key);
        if self.layout.is_cut {
            let most = LONGEST_HEADERS.min(len as usize);
            count += read(count, &mut self.bytes[ROOM + count..ROOM + most]).min(most - count);
            key = Key::EMPTY;
            self.layout = parse::parse(&self.bytes[..ROOM + count], len as usize, &mut key);
        }
        (self.start, self.end) = (ROOM as u16, (ROOM + count) as u16);
        key.set(place::IN_PORT, in_port);
        if self.layout.is_cut { Err(TooLong) } else { Ok(key) }
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
        ROOM as i16 - self.start as i16
    }
}
