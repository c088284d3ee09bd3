//! Distributes flows over member ports.

use crate::{
    Entry, Lookup, LookupContext, LookupFactory, LookupKind, Mac, NOWHERE, PortId, RESERVED, Verdicts,
};
use ringway_frame::{Burst, HEAD};
use ringway_wire::flow::Flow;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// `lookup = "hash"`.
pub const LOOKUP: LookupKind =
    LookupKind { name: "hash", open: |kind| Ok(Box::new(kind.settings::<Settings>()?)) };

/// Settings in the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Names of the member ports.
    pub members: Vec<String>,
    /// Name of the uplink port.
    pub uplink: String,
}

impl LookupFactory for Settings {
    fn make(&mut self, context: &LookupContext<'_>) -> Arc<dyn Lookup> {
        let members = self.members.iter().filter_map(|member| (context.port)(member)).collect();
        let hash = Hash::new(members, (context.port)(&self.uplink).unwrap_or(NOWHERE), context.hash);
        Arc::new(Hash { forward_reserved: context.forward_reserved, ..hash })
    }
}

/// A flow hash with a secret key.
#[derive(Clone, Copy, Debug)]
pub struct FlowHash(u64);

impl FlowHash {
    /// The hash with `key`, which must be random. Attack: a peer that knows `key` could direct all its flows
    /// to one queue.
    pub fn new(key: u64) -> FlowHash {
        FlowHash(key)
    }

    /// The hash of a frame's flow, the same for both directions.
    #[inline]
    pub fn of(self, head: &[u8; HEAD]) -> u32 {
        Flow::parse(head).map_or(0, |flow| (flow.symmetric_hash(self.0) >> 32) as u32)
    }

    /// The whole hash of a flow, the same for both directions.
    #[inline]
    pub fn wide(self, flow: &Flow) -> u64 {
        flow.symmetric_hash(self.0)
    }
}

/// A load balancer: frames from a member go to the uplink, all others to the member chosen by the hash of
/// their flow. A flow keeps its member while the set of members does not change.
#[derive(Debug)]
pub struct Hash {
    members: Vec<PortId>,
    uplink: PortId,
    hash: FlowHash,
    forward_reserved: bool,
}

impl Hash {
    /// Distributes to `members`.
    pub fn new(members: Vec<PortId>, uplink: PortId, hash: FlowHash) -> Hash {
        Hash { members, uplink, hash, forward_reserved: false }
    }
}

impl Lookup for Hash {
    fn lookup(&self, burst: &Burst<'_>, from: PortId, _now: u64, verdicts: &mut Verdicts) -> u32 {
        let members = &self.members;
        let to_uplink = members.contains(&from);
        for (index, verdict) in verdicts.iter_mut().enumerate().take(burst.len()) {
            let is_reserved = !self.forward_reserved && Mac::destination(burst.head(index)).is_reserved();
            *verdict = if is_reserved {
                RESERVED
            } else if to_uplink {
                self.uplink
            } else {
                // Scales the hash by a multiplication instead of a division.
                let scaled = (u64::from(self.hash.of(burst.head(index))) * members.len() as u64) >> 32;
                members.get(scaled as usize).copied().unwrap_or(NOWHERE)
            };
        }
        0
    }

    fn remove_port(&self, _port: PortId) {
        // The set of members is fixed; a change creates a new lookup.
    }

    fn entries(&self, _now: u64) -> Vec<Entry> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_frame::{BURST, Offload, Storage};
    use ringway_mem::Span;

    /// UDP over IPv4, with a distinct host and port per flow.
    fn frame(flow: u8, back: bool) -> [u8; 60] {
        let mut frame = [0; 60];
        frame[12..24].copy_from_slice(&[8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17]);
        let (near, far) = if back { (30, 26) } else { (26, 30) };
        frame[near..near + 4].copy_from_slice(&[10, 0, 0, flow]);
        frame[far..far + 4].copy_from_slice(&[10, 1, 1, 1]);
        let (near, far) = if back { (36, 34) } else { (34, 36) };
        frame[near..near + 2].copy_from_slice(&[100, flow]);
        frame[far..far + 2].copy_from_slice(&[0, 53]);
        frame
    }

    fn look_up(lookup: &Hash, from: PortId, frames: &[[u8; 60]]) -> Vec<PortId> {
        let mut storage = Storage::default();
        let mut burst = Burst::begin(&mut storage);
        for frame in frames {
            burst.push(Offload::default(), Span::of(frame)).unwrap();
        }
        let mut verdicts = [0; BURST];
        lookup.lookup(&burst, from, 0, &mut verdicts);
        verdicts[..frames.len()].to_vec()
    }

    #[test]
    fn flows_spread_over_the_members_and_back_to_the_uplink() {
        let lookup = Hash::new(vec![1, 2, 3, 4], 9, FlowHash::new(5));
        let forth: Vec<_> = (0..64).map(|flow| frame(flow, false)).collect();
        let members = look_up(&lookup, 9, &forth);
        assert!((1..5).all(|member| members.iter().filter(|&&found| found == member).count() > 4));
        let back: Vec<_> = (0..64).map(|flow| frame(flow, true)).collect();
        assert_eq!(look_up(&lookup, 9, &back), members, "both directions go to one member");
        assert_eq!(look_up(&lookup, 2, &back), [9; 64]);
        let empty = Hash::new(Vec::new(), 9, FlowHash::new(5));
        assert_eq!(look_up(&empty, 9, &forth), [NOWHERE; 64]);
    }

    #[test]
    fn frames_between_neighbours_are_not_forwarded_unless_asked() {
        let group = |last: u8| {
            let mut frame = [0; 60];
            frame[..6].copy_from_slice(&[1, 0x80, 0xc2, 0, 0, last]);
            frame
        };
        let frames = [group(0), group(1), group(0xf), group(0x10)];
        let lookup = Hash::new(vec![1], 9, FlowHash::new(5));
        assert_eq!(look_up(&lookup, 9, &frames), [RESERVED, RESERVED, RESERVED, 1]);
        assert_eq!(look_up(&lookup, 1, &frames), [RESERVED, RESERVED, RESERVED, 9]);
        let lookup = Hash { forward_reserved: true, ..lookup };
        assert_eq!(look_up(&lookup, 9, &frames), [1; 4]);
    }
}
