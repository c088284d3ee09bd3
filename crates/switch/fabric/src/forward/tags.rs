//! VLANs of frames and their tags: in which VLAN a frame is that enters by a port, and what becomes of its tag where it
//! leaves by another one.

use crate::policy::{Mode, VlanRules};
use crate::topology::Port;
use ringway_frame::{Burst, HEAD, Offload};
use ringway_switch::vlan;

/// Length of the headers of a frame with one tag: the EtherType behind it is in its last two bytes.
pub(super) const TAGGED: u32 = 18;
/// EtherType of a tag.
const TAG: [u8; 2] = [0x81, 0];
/// EtherType of a service tag (IEEE 802.1Q, 9.5).
const SERVICE_TAG: [u8; 2] = [0x88, 0xa8];

/// What becomes of a frame's tag at a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retag {
    /// It is as it was.
    Keep,
    /// A tag of this VLAN and type is inserted.
    Insert(u16, TagType),
    /// The first tag, which has a priority only or is of another type, gets this VLAN and type.
    Set(u16, TagType),
    /// The tag is removed.
    Remove,
}

/// The type of a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TagType {
    /// That of most VLANs.
    Vlan,
    /// A service tag.
    Service,
}

impl TagType {
    fn ether_type(self) -> [u8; 2] {
        match self {
            TagType::Vlan => TAG,
            TagType::Service => SERVICE_TAG,
        }
    }

    /// A tag of a VLAN, with priority 0.
    pub(super) fn tag(self, vlan: u16) -> [u8; 4] {
        let ([first, second], [high, low]) = (self.ether_type(), vlan.to_be_bytes());
        [first, second, high, low]
    }
}

/// What a frame's first tag is for the switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum First {
    /// The frame has no tag.
    None,
    /// It has a priority only.
    Priority,
    /// It is that of the frame's VLAN.
    Own,
    /// It is a customer's, if there is one: the frame's VLAN is that of its port.
    Customer,
}

/// Changes the tag of a frame; returns by how many bytes it grew.
pub(super) fn rewrite(burst: &mut Burst<'_>, frame: usize, retag: Retag) -> Option<i8> {
    match retag {
        Retag::Keep => Some(0),
        Retag::Insert(vlan, of) => burst.insert_tag(frame, of.tag(vlan)).ok().map(|()| 4),
        Retag::Set(vlan, of) => {
            let [high, low] = vlan.to_be_bytes();
            let head = burst.head_mut(frame)?;
            [head[12], head[13]] = of.ether_type();
            (head[14], head[15]) = (head[14] & 0xf0 | high, low);
            Some(0)
        }
        Retag::Remove => burst.remove_tag(frame).ok().map(|()| -4),
    }
}

/// The VLAN of a frame in the form in which a port's peer sends or receives it, if the port carries that.
pub(super) fn vlan_of(port: &Port, head: &[u8; HEAD], len: u32) -> Option<u16> {
    admitted(port, head, len).map(|(vlan, _)| vlan)
}

/// The VLAN of a frame from a port, if it may enter, and what its first tag is.
pub(super) fn admitted(port: &Port, head: &[u8; HEAD], len: u32) -> Option<(u16, First)> {
    match vlan_rules(port) {
        None => Some(vlan(head).map_or((0, First::None), |vlan| (vlan, first_of(vlan)))),
        Some(rules) => arriving(rules, head, len),
    }
}

/// What the first tag is of a frame that has one with this number.
fn first_of(vlan: u16) -> First {
    if vlan == 0 { First::Priority } else { First::Own }
}

pub(super) fn vlan_rules(port: &Port) -> Option<&VlanRules> {
    port.policy.as_ref().and_then(|policy| policy.vlans.as_ref())
}

/// Whether a frame has a tag.
pub(super) fn has_tag(head: &[u8; HEAD]) -> bool {
    matches!([head[12], head[13]], TAG | SERVICE_TAG)
}

/// Whether another tag follows the first one.
fn has_second_tag(head: &[u8; HEAD]) -> bool {
    matches!([head[16], head[17]], TAG | SERVICE_TAG)
}

/// The VLAN of a frame that arrives at a port with VLANs, if it passes, and what its first tag is.
///
/// Attack: VLAN hopping. A tag with the number 0 before another tag would be removed where the frame leaves without a
/// tag, and the next switch would take the other tag for the frame's VLAN. A switch that knows only tags of one type
/// takes a frame with one of the other type for one without a tag.
fn arriving(rules: &VlanRules, head: &[u8; HEAD], len: u32) -> Option<(u16, First)> {
    if rules.mode == Mode::Customer {
        return rules.arriving(None).map(|vlan| (vlan, First::Customer));
    }
    let kind = [head[12], head[13]];
    let other = if tag_type(rules) == TagType::Service { TAG } else { SERVICE_TAG };
    if len >= 14 && kind == other {
        return None;
    }
    let tag = vlan(head).filter(|_| kind != other);
    if tag.is_some() && (len < TAGGED || tag == Some(0) && has_second_tag(head)) {
        return None;
    }
    rules.arriving(tag).map(|vlan| (vlan, tag.map_or(First::None, first_of)))
}

/// The type of the tags of a port's VLANs.
fn tag_type(rules: &VlanRules) -> TagType {
    if rules.mode == Mode::ServiceTrunk { TagType::Service } else { TagType::Vlan }
}

/// What becomes of the tag of a frame of a VLAN where it leaves by a port with these rules, if it passes.
pub(super) fn leaving(
    rules: Option<&VlanRules>,
    of_frame: (u16, First),
    head: &[u8; HEAD],
    (len, offload): (u32, Offload),
) -> Option<Retag> {
    let retag = retag(rules, of_frame, head)?;
    // A frame that ends within its tag is passed as it is, or not at all.
    let is_whole = len >= TAGGED || !matches!(retag, Retag::Set(..) | Retag::Remove);
    // Attack: a checksum that begins before the end of the tag, which would be written behind the frame.
    let is_behind = !offload.needs_checksum() || u32::from(offload.csum_start) >= TAGGED;
    (is_whole && (is_behind || retag != Retag::Remove)).then_some(retag)
}

fn retag(rules: Option<&VlanRules>, (of_frame, first): (u16, First), head: &[u8; HEAD]) -> Option<Retag> {
    let own_type = if [head[12], head[13]] == SERVICE_TAG { TagType::Service } else { TagType::Vlan };
    let Some(rules) = rules else {
        // All VLANs leave with tags, and frames without one as they are.
        return Some(match first {
            _ if of_frame == 0 => Retag::Keep,
            First::None => Retag::Insert(of_frame, TagType::Vlan),
            First::Customer => Retag::Insert(of_frame, TagType::Service),
            First::Priority => Retag::Set(of_frame, own_type),
            First::Own => Retag::Keep,
        });
    };
    if !rules.carries(of_frame) {
        return None;
    }
    let tags = tag_type(rules);
    match (first, rules.is_untagged(of_frame)) {
        (First::None, true) => Some(Retag::Keep),
        // The customer's own tags are behind the one that is removed.
        (First::Customer, true) if rules.mode == Mode::Customer => Some(Retag::Keep),
        (First::Priority | First::Own, true) if rules.mode == Mode::Customer => Some(Retag::Remove),
        // Attack: VLAN hopping, as above, by two tags of which the first is that of a VLAN that leaves without tags;
        // or by a customer's tag.
        (First::Customer, true) => (!has_tag(head)).then_some(Retag::Keep),
        (First::Priority | First::Own, true) => (!has_second_tag(head)).then_some(Retag::Remove),
        (First::None | First::Customer, false) => Some(Retag::Insert(of_frame, tags)),
        (First::Own, false) if own_type == tags => Some(Retag::Keep),
        (First::Priority | First::Own, false) => Some(Retag::Set(of_frame, tags)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::policing::tests::{
        AD, Q, access, customer, dropped, got, service_trunk, tagged, trunk,
    };
    use super::super::tests::{Bench, frame};
    use super::*;
    use proptest::prelude::*;
    use ringway_frame::Reason;
    use ringway_spec::{Policy, Vlans};

    #[test]
    fn a_customers_tags_are_behind_a_service_tag_on_trunks() {
        let mut bench = Bench::new(5);
        let ports = [
            customer(100),
            service_trunk(&[100, 200], None),
            customer(100),
            trunk(&[100], None),
            Policy::default(),
        ];
        bench.set_policies(&ports);
        let all_tags: [&[(u16, u16)]; 6] =
            [&[], &[(Q, 7)], &[(Q, 0)], &[(AD, 7), (Q, 8)], &[(Q, 7), (Q, 8)], &[(Q, 0), (Q, 4095)]];
        for tags in all_tags {
            for len in [14, 46, 60, 64, 1500] {
                let sent = tagged(0xff, 0, tags, len);
                let with = |kind| tagged(0xff, 0, &[&[(kind, 100)], tags].concat(), len).to_vec();
                let forms = [(1, with(AD)), (2, sent.to_vec()), (3, with(Q)), (4, with(AD))];
                assert_eq!(got(&mut bench, 0, sent), forms, "{tags:x?}, {len}");
                let back = tagged(0xff, 1, &[&[(AD, 100)], tags].concat(), len);
                let plain = tagged(0xff, 1, tags, len).to_vec();
                let [first, second] = [0, 2].map(|port| (port, plain.clone()));
                let on_trunk = tagged(0xff, 1, &[&[(Q, 100)], tags].concat(), len).to_vec();
                let forms = [first, second, (3, on_trunk), (4, back.to_vec())];
                assert_eq!(got(&mut bench, 1, back), forms, "{tags:x?}, {len}");
            }
        }
        // Stations are known by the outer VLAN only.
        got(&mut bench, 0, tagged(0xff, 9, &[(Q, 7)], 60));
        let known = got(&mut bench, 2, tagged(9, 2, &[(Q, 8)], 60));
        assert_eq!(known, [(0, tagged(9, 2, &[(Q, 8)], 60).to_vec())]);
        let other = got(&mut bench, 1, tagged(9, 1, &[(AD, 200), (Q, 7)], 60));
        assert_eq!(other.iter().map(|(port, _)| *port).collect::<Vec<_>>(), [4], "another service VLAN");
    }

    #[test]
    fn trunks_have_tags_of_one_type() {
        let mut bench = Bench::new(3);
        bench.set_policies(&[service_trunk(&[10], Some(20)), trunk(&[10], Some(20)), access(20)]);
        for tag in [(Q, 10), (Q, 20), (Q, 0), (AD, 30), (AD, 4095)] {
            assert_eq!(dropped(&mut bench, 0, tagged(0xff, 0, &[tag], 60)), [Reason::WrongVlan], "{tag:x?}");
        }
        for (from, [own, other]) in [(0, [AD, Q]), (1, [Q, AD])] {
            let form = tagged(0xff, 9, &[(other, 10)], 60).to_vec();
            assert_eq!(got(&mut bench, from, tagged(0xff, 9, &[(own, 10)], 60)), [(1 - from, form)]);
            let untagged = got(&mut bench, from, tagged(0xff, 9, &[(own, 0)], 60));
            assert_eq!(untagged[0], (1 - from, frame(0xff, 9, 60).to_vec()), "the native VLAN");
        }
    }

    /// Attack: VLAN hopping by a customer's tag, where its service VLAN leaves without a tag.
    #[test]
    fn a_customers_tag_never_becomes_that_of_a_vlan() {
        let mut bench = Bench::new(4);
        bench.set_policies(&[customer(100), trunk(&[7], Some(100)), access(100), access(7)]);
        bench.teach_vlans();
        for tags in [&[(Q, 7)][..], &[(AD, 7)], &[(Q, 0), (Q, 7)], &[(Q, 100)]] {
            for to in [0xff, 1, 2, 3] {
                let bytes = tagged(to, 0, tags, 60);
                let before = bench.all_counters();
                assert_eq!(got(&mut bench, 0, bytes), [], "{tags:x?}");
                assert_eq!(bench.drops_since(&before).len(), 1);
            }
        }
        assert_eq!(got(&mut bench, 0, frame(0xff, 0, 60)).len(), 2, "without tags it is in the VLAN");
        // Two tags from a trunk reach no access port.
        bench.set_policies(&[customer(100), service_trunk(&[100], None), access(100), access(7)]);
        let double = tagged(0xff, 1, &[(AD, 100), (Q, 7)], 60);
        assert_eq!(got(&mut bench, 1, double), [(0, tagged(0xff, 1, &[(Q, 7)], 60).to_vec())]);
    }

    #[test]
    fn offloads_of_a_frame_with_two_tags_are_completed() {
        let mut bench = Bench::new(2);
        bench.set_policies(&[customer(100), service_trunk(&[100], None)]);
        let text =
            "tcp,dl_dst=02:00:00:00:00:01,dl_src=02:00:00:00:00:00,dl_vlan=7,nw_src=10.0.0.1,len=20058";
        let long: &'static [u8] = ringway_wire::fields::Described::parse(text).unwrap().frame.leak();
        let offload = Offload { gso_type: 1, gso_size: 1_460, ..Offload::checksum(38, 16) };
        bench.change(0, |peer| peer.offload = offload);
        let segments = got(&mut bench, 0, long);
        assert_eq!(segments.len(), 14);
        for (_, segment) in &segments {
            assert_eq!(segment[12..22], [0x88, 0xa8, 0, 100, 0x81, 0, 0, 7, 8, 0]);
            assert!(segment.len() <= 1_460 + 62);
            let mut sum = ringway_wire::Sum::new();
            sum.add(&segment[22 + 12..22 + 20]);
            sum.add(&[0, 6]);
            sum.add(&u16::try_from(segment.len() - 42).unwrap().to_be_bytes());
            sum.add(&segment[42..]);
            assert_eq!(sum.finish(), 0, "TCP's checksum");
        }
    }

    /// Attack: the receiver would sum or write behind the frame, which ends 4 bytes earlier without its tag.
    #[test]
    fn a_checksum_that_begins_within_the_tag_does_not_lose_it() {
        let mut tagged = [0; HEAD];
        tagged[12..16].copy_from_slice(&[0x81, 0, 0, 10]);
        for (start, passes) in [(0, false), (3, false), (14, false), (17, false), (18, true), (34, true)] {
            let frame = (60, Offload::checksum(start, 6));
            let rules = VlanRules::of(&Vlans::Access(10));
            assert_eq!(leaving(Some(&rules), (10, First::Own), &tagged, frame).is_some(), passes, "{start}");
        }
    }

    proptest! {
        /// Two switches with a trunk between them: whatever a customer sends comes out at the other end as it was,
        /// and at no port of another VLAN.
        #[test]
        fn a_customers_frames_pass_unchanged(
            tags in prop::collection::vec((prop::sample::select(vec![Q, AD, 0x9100]), any::<u16>()), 0..4),
            len in 14usize..200, service: bool, is_known: bool,
        ) {
            let vlans = Vlans::Trunk { carried: vec![(100, 100), (200, 200)], native: None, service };
            let trunk = Policy { vlans: Some(vlans), ..Policy::default() };
            let (mut near, mut far) = (Bench::new(4), Bench::new(4));
            for bench in [&mut near, &mut far] {
                bench.set_policies(&[customer(100), trunk.clone(), customer(200), access(100)]);
            }
            if is_known {
                got(&mut near, 1, tagged(0xff, 5, &[(if service { AD } else { Q }, 100)], 60));
                got(&mut far, 0, frame(0xff, 5, 60));
            }
            let sent = tagged(5, 6, &tags, len);
            let between = got(&mut near, 0, sent);
            let on_trunk = between.iter().find(|(port, _)| *port == 1).map(|(_, bytes)| bytes.clone());
            let Some(on_trunk) = on_trunk else { return Err(TestCaseError::fail("it passes")) };
            prop_assert_eq!(on_trunk.len(), sent.len() + 4);
            let came = got(&mut far, 1, on_trunk.leak());
            prop_assert!(came.contains(&(0, sent.to_vec())), "{:x?}", came);
            let is_tagged = tags.first().is_some_and(|(kind, _)| *kind != 0x9100);
            for (port, _) in between.iter().chain(&came) {
                prop_assert!(*port != 2 && (*port != 3 || !is_tagged), "{}", port);
            }
        }
    }
}
