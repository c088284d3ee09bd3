//! Spreads flows over member ports.

use crate::{Entry, Lookup, NOWHERE, PortId, Verdicts};
use ringway_frame::{Burst, HEAD};
use std::sync::RwLock;

/// A load balancer: frames from a member go to the uplink, all others to the member that their flow's hash names, so
/// that a flow stays with its member while the set of members stays.
#[derive(Debug)]
pub struct Hash {
    // Written only when a port comes or goes; a worker reads it once a burst.
    members: RwLock<Vec<PortId>>,
    uplink: PortId,
    hash: fn(&[u8; HEAD]) -> u32,
}

impl Hash {
    /// Spreads over `members` by `hash`, which gets a frame's first bytes and has the same answer for all of a flow.
    pub fn new(members: Vec<PortId>, uplink: PortId, hash: fn(&[u8; HEAD]) -> u32) -> Hash {
        Hash { members: RwLock::new(members), uplink, hash }
    }
}

impl Lookup for Hash {
    fn lookup(&self, burst: &Burst<'_>, from: PortId, _now: u64, verdicts: &mut Verdicts) {
        // A change under way: these frames are dropped rather than waited with.
        let members = self.members.try_read();
        let members = members.as_ref().map_or(&[][..], |members| members.as_slice());
        let inward = members.contains(&from);
        for (index, verdict) in verdicts.iter_mut().enumerate().take(burst.len()) {
            *verdict = if inward {
                self.uplink
            } else {
                // The upper bits of the product instead of a remainder: no division.
                let scaled = (u64::from((self.hash)(burst.head(index))) * members.len() as u64) >> 32;
                members.get(scaled as usize).copied().unwrap_or(NOWHERE)
            };
        }
    }

    fn forget(&self, port: PortId) {
        if let Ok(mut members) = self.members.write() {
            members.retain(|&member| member != port);
        }
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

    fn first_word(head: &[u8; HEAD]) -> u32 {
        u32::from_be_bytes([head[0], head[1], head[2], head[3]])
    }

    #[test]
    fn flows_spread_over_the_members_and_back_to_the_uplink() {
        let lookup = Hash::new(vec![1, 2, 3, 4], 9, first_word);
        let frames: Vec<[u8; 60]> = (0..4u8).map(|quarter| [quarter * 64; 60]).collect();
        let mut storage = Storage::default();
        let mut burst = Burst::begin(&mut storage);
        for frame in &frames {
            burst.push(Offload::default(), Span::of(frame)).unwrap();
        }
        let mut verdicts = [0; BURST];
        lookup.lookup(&burst, 9, 0, &mut verdicts);
        assert_eq!(verdicts[..4], [1, 2, 3, 4]);
        lookup.lookup(&burst, 2, 0, &mut verdicts);
        assert_eq!(verdicts[..4], [9; 4]);
        for port in 1..5 {
            lookup.forget(port);
        }
        lookup.lookup(&burst, 9, 0, &mut verdicts);
        assert_eq!(verdicts[..4], [NOWHERE; 4]);
    }
}
