//! Policy on ports: which frames a switch lets pass, in which VLANs they are, and their tags where they leave.
//! `antispoof` decides whether the addresses of their senders are right.
//!
//! Only switches that have a port with policy come here. A frame's VLAN is kept beside it while it is looked up, so
//! that a frame between two ports of one kind is not rewritten. For any other destination its tag is inserted, changed
//! or removed in the copy of its head.

use super::limits::Charged;
use super::tags::{First, Retag, admitted, has_tag, leaving, rewrite, vlan_rules};
use super::{ETHERNET, Source};
use crate::antispoof::{BEHIND_HEAD, DEEPEST, Refusal, SenderRules};
use crate::policy::PortPolicy;
use crate::topology::{Port, Switch, Topology};
use arrayvec::ArrayVec;
use ringway_frame::{BURST, Burst, HEAD, Meta, Storage, add};
use ringway_switch::{
    BAD_OFFLOAD, FrameVlans, ISOLATED, Learned, NO_PORT, NOWHERE, PortId, ROGUE, SPOOFED, UNREADABLE,
    Verdicts, WRONG_VLAN,
};

/// Frames by number.
pub(super) type Frames = ArrayVec<u16, BURST>;

/// Memory for what is looked at of the frames of a burst behind their heads.
pub(super) struct Pulled(Box<[[u8; BEHIND_HEAD]]>);

impl Default for Pulled {
    fn default() -> Pulled {
        Pulled(vec![[0; BEHIND_HEAD]; BURST].into_boxed_slice())
    }
}

/// A worker's state for policy, of one burst.
pub(super) struct Policing {
    /// The VLAN of each frame, and what its first tag is.
    vlans: [u16; BURST],
    firsts: [First; BURST],
    /// Frames that may not enter, as a mask.
    refused: u64,
    /// Frames from which nothing is learned, as a mask.
    pub(super) unlearned: u64,
    /// Bytes that were added to each frame, or removed.
    grown: [i8; BURST],
    pub(super) charged: Charged,
}

impl Default for Policing {
    fn default() -> Policing {
        Policing {
            vlans: [0; BURST],
            firsts: [First::None; BURST],
            refused: 0,
            unlearned: 0,
            grown: [0; BURST],
            charged: Charged::default(),
        }
    }
}

impl Policing {
    /// The VLAN of a frame.
    pub(super) fn vlan(&self, frame: usize) -> u16 {
        self.vlans.get(frame).copied().unwrap_or(0)
    }

    /// Whether a frame's first tag is a customer's.
    pub(super) fn has_customers_tag(&self, burst: &Burst<'_>, frame: usize) -> bool {
        self.firsts.get(frame) == Some(&First::Customer) && has_tag(burst.head(frame))
    }

    /// The bytes of the first `count` frames as they arrived, if they are so many now.
    pub(super) fn arrived(&self, bytes: u64, count: usize) -> u64 {
        let grown = self.grown.iter().take(count).map(|grown| i64::from(*grown));
        bytes.wrapping_sub_signed(grown.sum())
    }

    /// Decides which frames may enter by their VLANs.
    fn admit(&mut self, port: &Port, burst: &Burst<'_>, verdicts: &mut Verdicts) {
        (self.refused, self.grown) = (0, [0; BURST]);
        for frame in 0..burst.len().min(BURST) {
            let admitted = admitted(port, burst.head(frame), burst.meta(frame).len);
            (self.vlans[frame], self.firsts[frame]) = admitted.unwrap_or((0, First::None));
            if admitted.is_none() {
                self.refuse(frame, WRONG_VLAN, verdicts);
            }
        }
    }

    /// The length with which a frame arrived.
    pub(super) fn arrived_len(&self, burst: &Burst<'_>, frame: usize) -> u64 {
        let grown = self.grown.get(frame).copied().unwrap_or(0);
        u64::from(burst.meta(frame).len).wrapping_add_signed(-i64::from(grown))
    }

    pub(super) fn refuse(&mut self, frame: usize, verdict: PortId, verdicts: &mut Verdicts) {
        self.refused |= 1 << frame;
        verdicts[frame] = verdict;
    }

    /// Decides which of the admitted frames may enter by the addresses of their senders.
    fn check_senders<'b>(
        &mut self,
        rules: &SenderRules,
        burst: &mut Burst<'b>,
        pulled: &'b mut Pulled,
        verdicts: &mut Verdicts,
    ) {
        let mut pulled = pulled.0.iter_mut();
        for frame in 0..burst.len().min(BURST) {
            if self.is_refused(frame) {
                continue;
            }
            let Meta { len, offload, .. } = burst.meta(frame);
            let mut checked = rules.check(burst.head(frame), len as usize, offload);
            if let (Err(Refusal::Beyond), Some(room)) = (checked, pulled.next()) {
                let (mut start, behind) = ([0; DEEPEST], burst.pull(frame, room));
                start[..HEAD].copy_from_slice(burst.head(frame));
                start[HEAD..HEAD + behind.len()].copy_from_slice(behind);
                checked = rules.check_start(&start[..HEAD + behind.len()], len as usize, offload);
            }
            if let Err(refusal) = checked {
                self.refuse(frame, verdict_on(refusal, len), verdicts);
            }
        }
    }

    /// As `check_senders`, of one frame that is traced; returns what is said of its sender.
    fn preview_sender(
        &mut self,
        port: &Port,
        burst: &Burst<'_>,
        verdicts: &mut Verdicts,
    ) -> Option<&'static str> {
        let rules = sender_rules(port).filter(|_| !self.is_refused(0))?;
        let (mut start, Meta { len, offload, .. }) = ([0; DEEPEST], burst.meta(0));
        let count = burst.read(0, 0, &mut start);
        let refusal = rules.check_start(&start[..count], len as usize, offload).err();
        if let Some(refusal) = refusal {
            self.refuse(0, verdict_on(refusal, len), verdicts);
        }
        Some(refusal.map_or("allowed", Refusal::text))
    }

    fn of_frames(&self) -> FrameVlans<'_> {
        FrameVlans { vlans: &self.vlans, refused: self.refused, unlearned: self.unlearned }
    }

    /// Looks up the destinations of the frames that may enter, and rewrites those that go to one port. The verdicts say
    /// why others don't pass.
    pub(super) fn look_up<'b>(
        &mut self,
        (topology, switch): (&Topology, &Switch),
        (port, source): (&Port, &Source),
        (burst, pulled): (&mut Burst<'b>, &'b mut Pulled),
        (now, verdicts): (u64, &mut Verdicts),
    ) -> &Policing {
        self.admit(port, burst, verdicts);
        if let Some(rules) = sender_rules(port) {
            self.check_senders(rules, burst, pulled, verdicts);
        }
        // Attack: a port that has another one answer, at the cost of that one's rates.
        match source.answers {
            None => self.limit_from(port, burst, (now, verdicts)),
            Some(_) => self.charge_nothing(),
        }
        self.limit_learning(&*switch.lookup, (port, source.port), burst, now);
        let moved = switch.lookup.lookup_in(burst, (source.port, now), &self.of_frames(), verdicts);
        if moved > 0 {
            add(&source.counters.moved, moved.into());
        }
        for frame in 0..burst.len() {
            self.leave(topology, port, burst, (frame, verdicts));
        }
        source.keep_to_asker(&mut verdicts[..burst.len()]);
        self.limit_found(topology, port, burst, (now, verdicts));
        self
    }

    /// As `look_up`, of one frame that is traced. Returns what is said of its sender, and what is learned.
    pub(super) fn preview(
        &mut self,
        switch: &Switch,
        (port, from): (&Port, PortId),
        burst: &Burst<'_>,
        (now, verdicts): (u64, &mut Verdicts),
    ) -> (Option<&'static str>, Option<Learned>) {
        self.admit(port, burst, verdicts);
        let sender = self.preview_sender(port, burst, verdicts);
        self.preview_from(port, burst, (now, verdicts));
        self.preview_learning(&*switch.lookup, (port, from), burst, now);
        (sender, switch.lookup.preview_in(burst, (from, now), &self.of_frames(), verdicts))
    }

    /// Whether a frame may not enter.
    pub(super) fn is_refused(&self, frame: usize) -> bool {
        self.refused >> frame & 1 != 0
    }

    /// Rewrites a frame for its only destination, or says why it does not pass. Returns what became of its tag.
    pub(super) fn leave(
        &mut self,
        topology: &Topology,
        port: &Port,
        burst: &mut Burst<'_>,
        (frame, verdicts): (usize, &mut Verdicts),
    ) -> Retag {
        let verdict = verdicts[frame];
        let to = if verdict < NO_PORT { topology.port(verdict) } else { None };
        let Some(to) = to else { return Retag::Keep };
        match self.passes(port, to, burst, frame) {
            Err(refusal) => verdicts[frame] = refusal,
            Ok(Retag::Keep) => {}
            Ok(retag) => match rewrite(burst, frame, retag) {
                Some(grown) => {
                    self.grown[frame] = grown;
                    return retag;
                }
                // It is shorter than the headers that it seems to have.
                None => verdicts[frame] = NOWHERE,
            },
        }
        Retag::Keep
    }

    /// What becomes of a frame's tag on the way to a port, or why it does not pass.
    fn passes(&self, from: &Port, to: &Port, burst: &Burst<'_>, frame: usize) -> Result<Retag, PortId> {
        if is_isolated(from) && is_isolated(to) {
            return Err(ISOLATED);
        }
        let Meta { len, offload, .. } = burst.meta(frame);
        let first = self.firsts.get(frame).copied().unwrap_or(First::None);
        let vlan = (self.vlan(frame), first);
        leaving(vlan_rules(to), vlan, burst.head(frame), (len, offload)).ok_or(WRONG_VLAN)
    }

    /// The frames of `frames` that pass to a port to which they are flooded, and whether any tag changes there.
    pub(super) fn flooded(
        &self,
        from: &Port,
        to: &Port,
        burst: &Burst<'_>,
        frames: &[u16],
    ) -> (Frames, ArrayVec<Retag, BURST>, bool) {
        let (mut passing, mut tags, mut changes) = (Frames::new(), ArrayVec::new(), false);
        for &frame in frames.iter().take(BURST) {
            if let Ok(retag) = self.passes(from, to, burst, usize::from(frame)) {
                changes |= retag != Retag::Keep;
                passing.push(frame);
                tags.push(retag);
            }
        }
        (passing, tags, changes)
    }

    /// Whether a flooded frame passes to a port.
    pub(super) fn is_passed(&self, from: &Port, to: &Port, burst: &Burst<'_>, frame: usize) -> bool {
        self.passes(from, to, burst, frame).is_ok()
    }
}

/// Copies of frames, rewritten for one of the ports to which they are flooded. Only their heads are copied.
pub(super) fn rewritten<'s>(
    storage: &'s mut Storage,
    burst: &Burst<'s>,
    frames: &[u16],
    tags: &[Retag],
) -> Burst<'s> {
    let mut copies = Burst::begin(storage);
    for (number, (frame, retag)) in frames.iter().zip(tags).enumerate() {
        if copies.push_from(burst, usize::from(*frame)).is_err() {
            break;
        }
        // Frames that can't be rewritten did not pass.
        rewrite(&mut copies, number, *retag);
    }
    copies
}

fn sender_rules(port: &Port) -> Option<&SenderRules> {
    port.policy.as_ref().and_then(|policy| policy.senders.as_ref())
}

/// The verdict on a frame of `len` bytes that is refused.
fn verdict_on(refusal: Refusal, len: u32) -> PortId {
    match refusal {
        _ if len < ETHERNET => NOWHERE,
        Refusal::Spoofed(_) => SPOOFED,
        Refusal::Rogue(_) => ROGUE,
        Refusal::Unreadable(_) | Refusal::Beyond => UNREADABLE,
        Refusal::Offload(_) => BAD_OFFLOAD,
    }
}

/// Whether a port exchanges no frames with others that are isolated.
pub(super) fn is_isolated(port: &Port) -> bool {
    port.policy.as_deref().is_some_and(|policy: &PortPolicy| policy.is_isolated)
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::Served;
    use super::super::tests::{Bench, frame};
    use crate::antispoof::tests as antispoof;
    use proptest::prelude::*;
    use ringway_frame::Reason;
    use ringway_spec::{Policy, Vlans};

    pub(in super::super) fn access(vlan: u16) -> Policy {
        Policy { vlans: Some(Vlans::Access(vlan)), ..Policy::default() }
    }

    pub(in super::super) fn trunk(carried: &[u16], native: Option<u16>) -> Policy {
        let carried = carried.iter().map(|vlan| (*vlan, *vlan)).collect();
        Policy { vlans: Some(Vlans::Trunk { carried, native, service: false }), ..Policy::default() }
    }

    pub(in super::super) fn customer(vlan: u16) -> Policy {
        Policy { vlans: Some(Vlans::Customer(vlan)), ..Policy::default() }
    }

    pub(in super::super) fn service_trunk(carried: &[u16], native: Option<u16>) -> Policy {
        let carried = carried.iter().map(|vlan| (*vlan, *vlan)).collect();
        Policy { vlans: Some(Vlans::Trunk { carried, native, service: true }), ..Policy::default() }
    }

    fn isolated() -> Policy {
        Policy { isolated: true, ..Policy::default() }
    }

    /// A frame with tags: EtherType and number of each.
    pub(in super::super) fn tagged(to: u8, from: u8, tags: &[(u16, u16)], len: usize) -> &'static [u8] {
        let plain = frame(to, from, len);
        let tags = tags.iter().flat_map(|(kind, vlan)| [kind.to_be_bytes(), vlan.to_be_bytes()]).flatten();
        let tagged: Vec<u8> = plain[..12].iter().copied().chain(tags).chain(plain[12..].to_vec()).collect();
        Box::leak(tagged.into_boxed_slice())
    }

    /// What the ports get of a frame, and why it is dropped.
    fn send(bench: &mut Bench, port: usize, bytes: &'static [u8]) -> (Vec<Vec<Vec<u8>>>, Vec<Reason>) {
        let before = bench.all_counters();
        bench.send(port, &[bytes]);
        assert_eq!(bench.serve(port), Served::Moved(1));
        let drops = bench.drops_since(&before).into_iter().map(|(_, reason)| reason).collect();
        (bench.ports().map(|port| bench.got(port)).collect(), drops)
    }

    /// The ports that get a frame, and in which form.
    pub(in super::super) fn got(
        bench: &mut Bench,
        port: usize,
        bytes: &'static [u8],
    ) -> Vec<(usize, Vec<u8>)> {
        let (got, _) = send(bench, port, bytes);
        got.into_iter()
            .enumerate()
            .flat_map(|(port, frames)| frames.into_iter().map(move |f| (port, f)))
            .collect()
    }

    pub(in super::super) fn dropped(bench: &mut Bench, port: usize, bytes: &'static [u8]) -> Vec<Reason> {
        let (got, drops) = send(bench, port, bytes);
        assert!(got.iter().all(Vec::is_empty), "{got:x?}");
        drops
    }

    pub(in super::super) const Q: u16 = 0x8100;
    pub(in super::super) const AD: u16 = 0x88a8;

    #[test]
    fn access_ports_of_a_vlan_and_trunks_get_its_frames_in_their_forms() {
        let mut bench = Bench::new(5);
        // Two VLANs, a trunk of both, and a port without policy.
        bench.set_policies(&[access(10), access(10), access(20), trunk(&[10, 20], None), Policy::default()]);
        for len in [14, 60, 61, 64, 1514] {
            let (plain, with_tag) = (frame(0xff, 0, len), tagged(0xff, 0, &[(Q, 10)], len));
            let expected = [(1, plain.to_vec()), (3, with_tag.to_vec()), (4, with_tag.to_vec())];
            assert_eq!(got(&mut bench, 0, plain), expected, "{len}");
            // From the trunk to one port, whose tag is removed.
            let back = tagged(0, 3, &[(Q, 10)], len);
            assert_eq!(got(&mut bench, 3, back), [(0, frame(0, 3, len).to_vec())]);
            let on = got(&mut bench, 0, frame(3, 0, len));
            assert_eq!(on, [(3, tagged(3, 0, &[(Q, 10)], len).to_vec())]);
            // A frame with a priority only leaves without its tag, or with the VLAN in it.
            let priority = tagged(3, 0, &[(Q, 0xa000)], len);
            assert_eq!(got(&mut bench, 0, priority), [(3, tagged(3, 0, &[(Q, 0xa00a)], len).to_vec())]);
        }
        assert_eq!(got(&mut bench, 2, frame(0xff, 2, 60)).len(), 2, "VLAN 20");
        let mut bench = Bench::new(2);
        bench.set_policies(&[access(10), access(10)]);
        let priority = tagged(0xff, 0, &[(Q, 0xa000)], 60);
        assert_eq!(got(&mut bench, 0, priority), [(1, frame(0xff, 0, 60).to_vec())]);
    }

    #[test]
    fn a_service_tag_does_not_pass_where_vlans_are_restricted() {
        let mut bench = Bench::new(3);
        bench.set_policies(&[trunk(&[10], None), access(10), Policy::default()]);
        for number in [0, 10, 20] {
            let with_tag = tagged(0xff, 0, &[(AD, number)], 60);
            assert_eq!(dropped(&mut bench, 0, with_tag), [Reason::WrongVlan]);
            assert_eq!(dropped(&mut bench, 1, with_tag), [Reason::WrongVlan]);
        }
        // From a port without policy, one with a priority only gets the VLAN in a tag of the usual type.
        bench.set_policies(&[trunk(&[10], None), access(10), trunk(&[10, 20], Some(10))]);
        let priority = tagged(0xff, 2, &[(Q, 0)], 60);
        let forms = [(0, tagged(0xff, 2, &[(Q, 10)], 60).to_vec()), (1, frame(0xff, 2, 60).to_vec())];
        assert_eq!(got(&mut bench, 2, priority), forms);
    }

    #[test]
    fn a_native_vlan_has_no_tag_on_its_trunk() {
        let mut bench = Bench::new(3);
        bench.set_policies(&[trunk(&[10], Some(1)), access(1), access(10)]);
        assert_eq!(got(&mut bench, 0, frame(0xff, 0, 60)), [(1, frame(0xff, 0, 60).to_vec())]);
        assert_eq!(got(&mut bench, 0, tagged(0xff, 0, &[(Q, 1)], 60)), [(1, frame(0xff, 0, 60).to_vec())]);
        assert_eq!(got(&mut bench, 1, frame(0xff, 1, 60)), [(0, frame(0xff, 1, 60).to_vec())]);
        let tag = [(Q, 10)];
        assert_eq!(got(&mut bench, 2, frame(0xff, 2, 60)), [(0, tagged(0xff, 2, &tag, 60).to_vec())]);
    }

    #[test]
    fn frames_of_other_vlans_are_dropped_and_teach_nothing() {
        let mut bench = Bench::new(3);
        bench.set_policies(&[access(10), trunk(&[10, 20], None), access(20)]);
        let own_and_others = [(Q, 10), (Q, 20), (Q, 4095), (AD, 20), (AD, 10), (Q, 0x1000 | 20)];
        for tag in own_and_others {
            assert_eq!(dropped(&mut bench, 0, tagged(0xff, 9, &[tag], 60)), [Reason::WrongVlan], "{tag:x?}");
        }
        for frame in [frame(0xff, 9, 60), tagged(0xff, 9, &[(Q, 30)], 60), tagged(0xff, 9, &[(Q, 4095)], 60)]
        {
            assert_eq!(dropped(&mut bench, 1, frame), [Reason::WrongVlan]);
        }
        assert_eq!(bench.known(), 0);
        // A station that is known in VLAN 10 only is not reached from VLAN 20.
        got(&mut bench, 0, frame(0xff, 0, 60));
        assert_eq!(got(&mut bench, 2, frame(0, 2, 60)), [(1, tagged(0, 2, &[(Q, 20)], 60).to_vec())]);
    }

    /// Attack: VLAN hopping by a second tag, which would be the first one where the frame leaves.
    #[test]
    fn a_second_tag_never_becomes_the_first() {
        let mut bench = Bench::new(4);
        bench.set_policies(&[access(1), trunk(&[20], Some(1)), trunk(&[1, 20], None), access(1)]);
        bench.teach_vlans();
        for inner in [(Q, 20), (AD, 20)] {
            for outer in [(Q, 0), (AD, 0), (Q, 1), (AD, 1), (Q, 20)] {
                for to in [0xff, 1, 3] {
                    let reasons = dropped(&mut bench, 0, tagged(to, 0, &[outer, inner], 60));
                    assert_eq!(reasons, [Reason::WrongVlan], "{outer:x?}");
                }
            }
            // From a trunk such a frame passes to trunks that leave the first tag where it is.
            let double = tagged(0xff, 2, &[(Q, 1), inner], 60);
            assert_eq!(dropped(&mut bench, 2, double), [Reason::NoPort]);
            let double = tagged(3, 2, &[(Q, 1), inner], 60);
            assert_eq!(dropped(&mut bench, 2, double), [Reason::WrongVlan]);
            let double = tagged(0xff, 2, &[(Q, 20), inner], 60);
            assert_eq!(got(&mut bench, 2, double), [(1, double.to_vec())]);
        }
    }

    #[test]
    fn a_frame_that_ends_within_its_tag_does_not_pass() {
        let mut bench = Bench::new(3);
        bench.set_policies(&[access(10), trunk(&[10], None), Policy::default()]);
        for len in 14..18 {
            let frame: &'static [u8] = &tagged(0xff, 9, &[(Q, 10)], 60)[..len];
            assert_eq!(dropped(&mut bench, 1, frame), [Reason::WrongVlan]);
            assert_eq!(dropped(&mut bench, 0, frame), [Reason::WrongVlan]);
            // VLAN 10 or 0, by what is there of the tag; it passes at most as it is.
            let forms = got(&mut bench, 2, frame);
            assert!(forms.iter().all(|(_, form)| form == frame), "{forms:x?}");
        }
        for len in 0..14 {
            assert_eq!(dropped(&mut bench, 0, frame(1, 9, len)), [Reason::Short]);
        }
    }

    #[test]
    fn isolated_ports_reach_only_those_that_are_not() {
        let mut bench = Bench::new(3);
        bench.set_policies(&[isolated(), isolated(), Policy::default()]);
        let (plain, back) = (frame(0xff, 0, 60), frame(0xff, 2, 60));
        assert_eq!(got(&mut bench, 0, plain), [(2, plain.to_vec())]);
        assert_eq!(got(&mut bench, 1, frame(0xff, 1, 60)).len(), 1);
        assert_eq!(got(&mut bench, 2, back), [(0, back.to_vec()), (1, back.to_vec())]);
        assert_eq!(dropped(&mut bench, 0, frame(1, 0, 60)), [Reason::Isolated]);
        assert_eq!(got(&mut bench, 0, frame(2, 0, 60)).len(), 1);
        bench.set_policies(&[isolated(), isolated(), isolated()]);
        assert_eq!(dropped(&mut bench, 0, plain), [Reason::NoPort]);
        bench.set_policies(&[Policy::default(), isolated(), isolated()]);
        assert_eq!(got(&mut bench, 0, frame(1, 0, 60)).len(), 1, "the policy changed");
    }

    /// Port 0 may use the addresses of `antispoof`'s tests only; the others are in a VLAN, with a tag and without.
    fn guarded() -> Bench {
        let mut bench = Bench::new(4);
        bench.set_policies(&[antispoof::policy(), Policy::default(), access(10), trunk(&[10], Some(20))]);
        bench
    }

    #[test]
    fn what_a_hostile_guest_sends_is_dropped_and_teaches_nothing() {
        let mut bench = guarded();
        for (what, bytes, reason) in antispoof::hostile() {
            let drops = dropped(&mut bench, 0, bytes.leak());
            assert_eq!(drops.iter().map(|reason| reason.name()).collect::<Vec<_>>(), [reason], "{what}");
        }
        assert_eq!(bench.known(), 0);
        for len in 0..14 {
            assert_eq!(dropped(&mut bench, 0, frame(0xff, 0, len)), [Reason::Short]);
        }
        for (what, bytes) in antispoof::honest() {
            let bytes: &'static [u8] = bytes.leak();
            assert_eq!(got(&mut bench, 0, bytes), [(1, bytes.to_vec())], "{what}");
        }
        assert_eq!(bench.known(), 1);
        // Other ports send what they like.
        let (_, spoofed, _) = antispoof::hostile().swap_remove(0);
        assert_eq!(got(&mut bench, 1, spoofed.leak()).len(), 1);
    }

    proptest! {
        #[test]
        fn what_others_get_is_harmless(sent in prop::collection::vec(antispoof::frames(), 1..20)) {
            let mut bench = guarded();
            for (bytes, offload) in sent {
                bench.change(0, |peer| peer.offload = offload);
                bench.send(0, &[bytes.leak()]);
                while bench.serve(0) != Served::Idle {}
                for port in 1..4 {
                    for frame in bench.got(port) {
                        prop_assert!(!antispoof::is_harmful(&frame), "{port} {offload:?} {frame:02x?}");
                    }
                }
            }
        }

        #[test]
        fn each_frame_of_a_burst_has_its_vlan_and_its_bytes_are_counted_as_sent(
            frames in prop::collection::vec((0u8..5, prop_oneof![Just(10u16), Just(20)], 14usize..90), 1..80),
        ) {
            let mut bench = Bench::new(5);
            let ports = [trunk(&[10, 20], None), access(10), access(20), trunk(&[10], Some(20)), access(10)];
            bench.set_policies(&ports);
            bench.teach_vlans();
            let before = bench.all_counters();
            let bytes = |bench: &Bench| {
                bench.counters(0).tx_bytes.load(std::sync::atomic::Ordering::Relaxed)
            };
            let sent_before = bytes(&bench);
            let sent: Vec<_> =
                frames.iter().map(|(to, vlan, len)| tagged(*to, 0, &[(Q, *vlan)], *len)).collect();
            bench.send(0, &sent);
            while bench.serve(0) != Served::Idle {}
            prop_assert_eq!(bytes(&bench) - sent_before, sent.iter().map(|f| f.len() as u64).sum::<u64>());
            for port in 1..5usize {
                let expected = frames.iter().filter(|(to, vlan, _)| {
                    // Stations are known in one VLAN, and flooded in the other; the sender's own in both.
                    let carried: &[u16] = [&[10, 20][..], &[10], &[20], &[10, 20], &[10]][port];
                    let known = [10, 10, 20, 20, 10][usize::from(*to)];
                    let is_there = known != *vlan || usize::from(*to) == port;
                    *to != 0 && is_there && carried.contains(vlan)
                });
                let expected: Vec<Vec<u8>> = expected
                    .map(|(to, vlan, len)| match (port, vlan) {
                        (3, 10) => tagged(*to, 0, &[(Q, 10)], *len).to_vec(),
                        _ => frame(*to, 0, *len).to_vec(),
                    })
                    .collect();
                prop_assert_eq!(bench.got(port), expected, "port {}", port);
            }
            let hairpins = bench.drops_since(&before).iter().filter(|(_, r)| *r == Reason::Hairpin).count();
            prop_assert_eq!(hairpins, frames.iter().filter(|(to, ..)| *to == 0).count());
        }
    }
}
