//! Policy on the ports of a switch, in the form in which workers read it.

use crate::antispoof::SenderRules;
use crate::rate::RateLimit;
use ringway_spec::{Policy, Rate, Vlans};
use ringway_switch::Mac;
use ringway_wire::MacAddress;
use std::sync::Arc;

/// The policy on a port.
#[derive(Debug)]
pub struct PortPolicy {
    /// Its VLANs, if it has some.
    pub vlans: Option<VlanRules>,
    /// Whether no frames pass between it and other isolated ports.
    pub is_isolated: bool,
    /// The addresses that its frames may be from, if not all.
    pub senders: Option<SenderRules>,
    /// The bits of frames from it.
    pub rate_from: Option<RateLimit>,
    /// The bits of frames to it.
    pub rate_to: Option<RateLimit>,
    /// The frames from it that are flooded.
    pub storm: Option<RateLimit>,
    /// The addresses that are learned from it.
    pub learn_rate: Option<RateLimit>,
}

impl PortPolicy {
    /// What a description says, if it says anything.
    pub fn of(policy: &Policy) -> Option<Arc<PortPolicy>> {
        let Policy { vlans, isolated, allow_mac, allow, rate_from, rate_to, storm, learn_rate, .. } = policy;
        let limit = |rate: &Rate| RateLimit::new(rate.bits, rate.burst_or_default().saturating_mul(8));
        let rules = PortPolicy {
            vlans: vlans.as_ref().map(VlanRules::of),
            is_isolated: *isolated,
            senders: SenderRules::of(*allow_mac, allow),
            rate_from: rate_from.as_ref().map(limit),
            rate_to: rate_to.as_ref().map(limit),
            // As many at once as in a second.
            storm: storm.map(|frames| RateLimit::new(frames, frames)),
            learn_rate: learn_rate.map(|addresses| RateLimit::new(addresses, addresses)),
        };
        (!policy.restricts_nothing()).then(|| Arc::new(rules))
    }

    /// Whether a station with this address may be behind the port, in this VLAN.
    pub fn may_send(&self, mac: &Mac, vlan: u16) -> bool {
        let carries = self.vlans.as_ref().is_none_or(|vlans| vlans.carries(vlan));
        carries && self.senders.as_ref().is_none_or(|senders| senders.may_be(MacAddress(mac.bytes())))
    }
}

/// A set of VLANs.
#[derive(Debug, PartialEq, Eq)]
pub struct VlanSet([u64; Vlans::COUNT as usize / 64]);

impl VlanSet {
    /// The VLANs of these ranges.
    pub fn of(ranges: impl Iterator<Item = (u16, u16)>) -> VlanSet {
        let mut bits = [0; Vlans::COUNT as usize / 64];
        for vlan in ranges.flat_map(|(first, last)| first..=last) {
            if let Some(word) = bits.get_mut(usize::from(vlan / 64)) {
                *word |= 1 << (vlan % 64);
            }
        }
        VlanSet(bits)
    }

    /// Whether a VLAN is in it.
    #[inline]
    pub fn has(&self, vlan: u16) -> bool {
        self.0.get(usize::from(vlan / 64)).is_some_and(|word| word >> (vlan % 64) & 1 != 0)
    }
}

/// The VLANs of a port.
#[derive(Debug, PartialEq, Eq)]
pub struct VlanRules {
    /// Those that pass.
    carried: VlanSet,
    /// The VLAN of frames without tags.
    untagged: Option<u16>,
    /// What tags its frames have.
    pub mode: Mode,
}

/// What tags the frames of a port have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// None.
    Access,
    /// Those of its VLANs (type 0x8100), except that of the native one.
    Trunk,
    /// The same with service tags (type 0x88a8).
    ServiceTrunk,
    /// Any: none of them is that of its VLAN.
    Customer,
}

impl VlanRules {
    /// The rules of a description.
    pub fn of(vlans: &Vlans) -> VlanRules {
        let (ranges, untagged) = match vlans {
            Vlans::Access(vlan) | Vlans::Customer(vlan) => (&[][..], Some(*vlan)),
            Vlans::Trunk { carried, native, .. } => (&carried[..], *native),
        };
        let own = untagged.map(|vlan| (vlan, vlan));
        let carried = VlanSet::of(ranges.iter().copied().chain(own));
        let mode = match vlans {
            Vlans::Access(_) => Mode::Access,
            Vlans::Customer(_) => Mode::Customer,
            Vlans::Trunk { service: false, .. } => Mode::Trunk,
            Vlans::Trunk { service: true, .. } => Mode::ServiceTrunk,
        };
        VlanRules { carried, untagged, mode }
    }

    /// Whether frames of a VLAN pass.
    #[inline]
    pub fn carries(&self, vlan: u16) -> bool {
        self.carried.has(vlan)
    }

    /// Whether frames of a VLAN leave without a tag.
    #[inline]
    pub fn is_untagged(&self, vlan: u16) -> bool {
        self.untagged == Some(vlan)
    }

    /// The VLAN of a frame that arrives with this number in its first tag, if it passes; not at a customer's port. 0 is
    /// a tag that has a priority only.
    #[inline]
    pub fn arriving(&self, tag: Option<u16>) -> Option<u16> {
        match tag {
            None | Some(0) => self.untagged,
            Some(vlan) => (self.mode != Mode::Access && self.carries(vlan)).then_some(vlan),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_without_policy_has_no_rules() {
        assert!(PortPolicy::of(&Policy::default()).is_none());
        let isolated = PortPolicy::of(&Policy { isolated: true, ..Policy::default() });
        assert!(isolated.is_some_and(|policy| policy.is_isolated && policy.vlans.is_none()));
    }

    #[test]
    fn an_access_port_has_frames_without_tags_only() {
        let access = VlanRules::of(&Vlans::Access(10));
        let arriving = [None, Some(0), Some(10), Some(11), Some(4095)].map(|tag| access.arriving(tag));
        assert_eq!(arriving, [Some(10), Some(10), None, None, None]);
        assert!(access.carries(10) && access.is_untagged(10) && !access.carries(0) && !access.carries(11));
    }

    #[test]
    fn a_trunk_has_its_vlans_and_its_native_one() {
        let carried = vec![(10, 10), (64, 130), (4094, 4094)];
        let trunk = VlanRules::of(&Vlans::Trunk { carried: carried.clone(), native: None, service: false });
        let passing: Vec<u16> = (0..5000).filter(|vlan| trunk.arriving(Some(*vlan)).is_some()).collect();
        let expected: Vec<u16> = carried.iter().flat_map(|(first, last)| *first..=*last).collect();
        assert_eq!((passing, trunk.arriving(None), trunk.arriving(Some(0))), (expected, None, None));
        let native =
            VlanRules::of(&Vlans::Trunk { carried: vec![(10, 10)], native: Some(1), service: false });
        assert_eq!(
            [None, Some(0), Some(1), Some(10)].map(|tag| native.arriving(tag)),
            [Some(1), Some(1), Some(1), Some(10)]
        );
        assert!(native.is_untagged(1) && !native.is_untagged(10));
    }
}
