//! The switch: finds the destination of each frame.
//!
//! As in VALE, a burst is processed in two passes: a [`Lookup`] finds a port for each frame, then [`Sorter`]
//! makes one list per destination, in the order of the frames. As in mSwitch, the lookup is pluggable:
//! learning, static, hash, flow, or another implementation of the trait, each with a row in `lookups.rs`. All
//! workers share a lookup, so its state is atomic. Read this file first, then `learning.rs` and `table.rs`.

pub mod fixed;
mod flooding;
mod flow_key;
pub mod flows;
pub mod hash;
pub mod learning;
mod lookups;
pub mod snooping;
mod sorter;
mod spread;
mod station;
mod table;

pub use fixed::Static;
pub use flooding::Flooding;
pub use flow_key::flow_key;
pub use flows::{FlowLookup, FlowTables, PortNames, PortNumbers};
pub use hash::{FlowHash, Hash};
pub use learning::Learning;
pub use lookups::{LookupContext, LookupFactory, LookupKind, add_lookups, lookup};
pub use sorter::{List, Run, Sorter};
pub use spread::{INSTANCES, Spread, Tick};
pub use station::Station;
pub use table::{Entry, Learned, Table};

use ringway_frame::{BURST, Burst, HEAD};

/// Number of a port.
pub type PortId = u16;

/// Instead of a port: every port of the switch except the one that the frame came from.
pub const FLOOD: PortId = u16::MAX;
/// Instead of a port: the frame has no destination and is dropped.
pub const NOWHERE: PortId = u16::MAX - 1;
/// Instead of a port: the frame is invalid (its source is a group address) and is dropped.
pub const INVALID: PortId = u16::MAX - 2;
/// Instead of a port: the frame is one of a protocol between neighbours (IEEE 802.1Q, 8.6.3) and is dropped.
pub const RESERVED: PortId = u16::MAX - 3;
/// Instead of a port: the frame's source address is that of another port, which the switch refuses; it is dropped.
pub const FOREIGN: PortId = u16::MAX - 4;
/// Instead of a port: the frame's VLAN is not one of its port, or of its destination; it is dropped.
pub const WRONG_VLAN: PortId = u16::MAX - 5;
/// Instead of a port: the frame's port and its destination are both isolated; it is dropped.
pub const ISOLATED: PortId = u16::MAX - 6;
/// Instead of a port: the frame claims an address that its port may not use; it is dropped.
pub const SPOOFED: PortId = u16::MAX - 7;
/// Instead of a port: the frame is one of a router or of a DHCP server, which its port may not be; it is dropped.
pub const ROGUE: PortId = u16::MAX - 8;
/// Instead of a port: the frame's headers can't be read, so that its addresses are unknown; it is dropped.
pub const UNREADABLE: PortId = u16::MAX - 9;
/// Instead of a port: the frame's pending offloads would change what was checked; it is dropped.
pub const BAD_OFFLOAD: PortId = u16::MAX - 10;
/// Instead of a port: the frame's port has sent more than its rate; it is dropped.
pub const RATE_FROM: PortId = u16::MAX - 11;
/// Instead of a port: the frame's destination gets more than its rate; it is dropped.
pub const RATE_TO: PortId = u16::MAX - 12;
/// Instead of every port: the frame's port has sent too many frames that were flooded; it is dropped.
pub const STORM: PortId = u16::MAX - 13;
/// Instead of a port: no flow of the switch's tables sends the frame anywhere; it is dropped.
pub const NO_FLOW: PortId = u16::MAX - 14;
/// Instead of a port: the frame is beyond the rate of a meter of the switch's flows; it is dropped.
pub const METERED: PortId = u16::MAX - 15;
/// Instead of a port: the switch's flows have no end for the frame, or make too many copies; it is dropped.
pub const FLOW_LIMIT: PortId = u16::MAX - 16;
/// Instead of a port: the frame's headers are longer than those that flows are looked up by; it is dropped.
pub const LONG_HEADERS: PortId = u16::MAX - 17;
/// Instead of a port: the switch's flows have made the frame's copies, and nothing is left to do.
pub const FLOWN: PortId = u16::MAX - 18;
/// The least of the numbers that stand for no port.
pub const NO_PORT: PortId = FLOWN;
/// Limit of port numbers.
pub const PORTS: usize = 65_000;

const _: () = assert!(PORTS < NO_PORT as usize);

/// The verdicts on a burst, one per frame: a port's number, or one of those that stand for no port, such as [`FLOOD`].
pub type Verdicts = [PortId; BURST];

/// Finds the destination ports of frames.
pub trait Lookup: Send + Sync {
    /// Finds the destination of each frame of `burst`, which arrived at `from`. `now` is in nanoseconds. Returns the
    /// number of addresses that the frames came from although they were known at other ports.
    fn lookup(&self, burst: &Burst<'_>, from: PortId, now: u64, verdicts: &mut Verdicts) -> u32;

    /// As [`Lookup::lookup`] of frames with VLANs of their own, for which a lookup without addresses does the same.
    /// `at`: where and when they arrived.
    fn lookup_in(
        &self,
        burst: &Burst<'_>,
        at: (PortId, u64),
        vlans: &FrameVlans<'_>,
        verdicts: &mut Verdicts,
    ) -> u32 {
        let before = *verdicts;
        let moved = self.lookup(burst, at.0, at.1, verdicts);
        vlans.keep_refused(&before, verdicts);
        moved
    }

    /// As [`Lookup::lookup_in`] of a burst of one frame, without a change of what is known. Returns what would become
    /// of the frame's source address, if the lookup learns addresses.
    fn preview_in(
        &self,
        burst: &Burst<'_>,
        at: (PortId, u64),
        vlans: &FrameVlans<'_>,
        verdicts: &mut Verdicts,
    ) -> Option<Learned> {
        // A lookup that learns nothing changes nothing.
        self.lookup_in(burst, at, vlans, verdicts);
        None
    }

    /// As [`Lookup::lookup`] of a burst of one frame, without a change of what is known.
    fn preview(&self, burst: &Burst<'_>, from: PortId, now: u64, verdicts: &mut Verdicts) -> Option<Learned> {
        let vlans = [vlan(burst.head(0)).unwrap_or(0)];
        self.preview_in(burst, (from, now), &FrameVlans { vlans: &vlans, refused: 0, unlearned: 0 }, verdicts)
    }

    /// Whether a frame from a station at a port would teach nothing, since it is known there, or nothing is learned.
    fn knows(&self, _station: Station, _port: PortId) -> bool {
        true
    }

    /// Removes a port's addresses, so that no frame is sent there any more.
    fn remove_port(&self, port: PortId);

    /// Removes the addresses that were learned from the frames of a port, since its peer is gone.
    fn forget_port(&self, _port: PortId) {}

    /// Removes an address that was learned, in every VLAN.
    fn forget(&self, _mac: Mac) {}

    /// How often the addresses have changed that are learned from frames.
    fn changes(&self) -> u64 {
        0
    }

    /// Learns an address that another process had learned, if this lookup learns any.
    fn restore(&self, _mac: Mac, _vlan: u16, _port: PortId, _now: u64) {}

    /// The known addresses.
    fn entries(&self, now: u64) -> Vec<Entry>;

    /// The flow tables that decide instead, and make copies of frames, if there are some.
    fn flows(&self) -> Option<&FlowLookup> {
        None
    }
}

/// The VLANs of a burst's frames, where ports have VLANs: a frame's tag does not say it alone.
#[derive(Clone, Copy, Debug)]
pub struct FrameVlans<'v> {
    /// The number of each frame's VLAN.
    pub vlans: &'v [u16],
    /// The frames that are dropped in any case, as a mask. Nothing is learned from them, and their verdicts stay.
    pub refused: u64,
    /// The frames from which nothing is learned, as a mask.
    pub unlearned: u64,
}

const _: () = assert!(BURST <= 64);

impl FrameVlans<'_> {
    /// Gives refused frames the verdicts that they had before.
    pub fn keep_refused(&self, before: &Verdicts, verdicts: &mut Verdicts) {
        let mut refused = self.refused;
        while refused != 0 {
            let index = refused.trailing_zeros() as usize;
            if let (Some(verdict), Some(before)) = (verdicts.get_mut(index), before.get(index)) {
                *verdict = *before;
            }
            refused &= refused - 1;
        }
    }
}

/// The number in a frame's first VLAN tag: IEEE 802.1Q's, or that of outer tags.
#[inline]
pub fn vlan(head: &[u8; HEAD]) -> Option<u16> {
    station::Begin::of(head).is_tagged().then(|| station::vlan_of(head))
}

/// Eight bytes of a frame at `offset`, in one load.
#[inline]
fn word(head: &[u8; HEAD], offset: usize) -> u64 {
    head[offset..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// A MAC address in the low 48 bits, in little-endian order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mac(u64);

impl Mac {
    const MASK: u64 = (1 << 48) - 1;

    /// The address with these bytes, in wire order.
    pub fn new(bytes: [u8; 6]) -> Mac {
        let [a, b, c, d, e, f] = bytes;
        Mac(u64::from_le_bytes([a, b, c, d, e, f, 0, 0]))
    }

    /// The bytes in wire order.
    pub fn bytes(self) -> [u8; 6] {
        let [a, b, c, d, e, f, ..] = self.0.to_le_bytes();
        [a, b, c, d, e, f]
    }

    #[inline]
    fn destination(head: &[u8; HEAD]) -> Mac {
        Mac(word(head, 0) & Mac::MASK)
    }

    /// Whether this is an address of protocols between neighbours, 01:80:C2:00:00:00 to 01:80:C2:00:00:0F, which a
    /// bridge does not forward (IEEE 802.1Q, 8.6.3): PAUSE, LACP, LLDP, spanning tree.
    #[inline]
    pub fn is_reserved(self) -> bool {
        self.0 & !(0xf << 40) == 0x00_00_c2_80_01
    }

    /// Whether this is a group address (multicast or broadcast).
    #[inline]
    pub fn is_group(self) -> bool {
        self.0 & 1 != 0
    }
}

impl core::fmt::Display for Mac {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        ringway_wire::MacAddress(self.bytes()).fmt(out)
    }
}
