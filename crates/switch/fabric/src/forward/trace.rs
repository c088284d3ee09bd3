//! What forwarding would do with one frame, by the code that forwards, without sending it.

use super::destination::{Busy, Destination};
use super::drops::without_destination;
use super::features::Features;
use super::flows::Place;
use super::joining::joins;
use super::limits;
use super::policing::rewritten;
use super::tags::Retag;
use super::{Forwarder, MirrorPlace, MulticastTrace, mirror, queue_of};
use crate::forward::properties::Properties;
use crate::memory_access::Access;
use crate::topology::{Port, RxSlot, Target, Topology};
use ringway_frame::{Burst, Offload, Reason, Storage, TxQueue};
use ringway_mem::{Published, Span, Turn};
use ringway_port::offload::reassembly::is_segment;
use ringway_port::offload::{Completer, Outcome};
use ringway_switch::{
    BAD_OFFLOAD, FLOOD, FOREIGN, FlowHash, INVALID, ISOLATED, Learned, NOWHERE, PortId, RATE_FROM, RATE_TO,
    RESERVED, ROGUE, SPOOFED, STORM, Station, UNREADABLE, WRONG_VLAN,
};
use std::sync::Arc;

/// Destinations that are looked at. Attack: a frame that is flooded to 4096 ports, each of which must be locked, and
/// for each of which the frame must be completed.
pub(super) const COPIES: usize = 64;
/// Attempts to lock a destination, which another worker holds for the length of a burst.
const TRIES: usize = 10_000;

/// What would become of a frame.
#[derive(Debug, Default, PartialEq)]
pub struct Traced {
    /// What the lookup found.
    pub lookup: &'static str,
    /// What a learning switch would do with the source address.
    pub learned: Option<Learned>,
    /// The frame's VLAN, if a port of the switch has VLANs.
    pub vlan: Option<u16>,
    /// Whether its sender's addresses are allowed, or why not, if the port restricts them.
    pub sender: Option<&'static str>,
    /// Why it is dropped at the port where it enters.
    pub dropped: Option<Reason>,
    /// Whether the port's frames wait now.
    pub held: bool,
    /// A line for each step through flow tables.
    pub flows: Vec<String>,
    /// Its copies.
    pub copies: Vec<TracedCopy>,
    /// Number of destinations that were not looked at.
    pub omitted: usize,
    /// The ports that get copies as mirrors, and where these are made.
    pub mirrored: Vec<(PortId, MirrorPlace)>,
    /// What the switch knows of its group, if it is for one.
    pub multicast: Option<MulticastTrace>,
}

/// What would become of a frame at a destination.
#[derive(Debug, PartialEq)]
pub struct TracedCopy {
    /// The destination.
    pub port: PortId,
    /// The number of the queue there.
    pub queue: u32,
    /// What would happen.
    pub verdict: Verdict,
    /// What becomes of its VLAN tag.
    pub retag: Retag,
    /// The first frame that results, if the frame was completed for the destination, or has another tag there.
    pub completed: Option<(Vec<u8>, Offload)>,
    /// Number of frames that result.
    pub frames: usize,
    /// Whether it may be joined with segments of its flow.
    pub joins: bool,
}

/// What would happen to a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The destination gets it.
    Delivered,
    /// It is dropped.
    Dropped(Reason),
    /// It waits for room for at most so many nanoseconds.
    Waits(u64),
    /// Another worker had the destination locked all the time.
    Busy,
}

impl Forwarder {
    /// What [`Forwarder::serve`] would do now with a frame from `source`, if its switch knew the addresses in `learned`
    /// too. Nothing is sent, learned or counted.
    pub fn trace(
        &mut self,
        turn: &Turn<'_>,
        topology: &Topology,
        source: PortId,
        (frame, offload): (&[u8], Offload),
        learned: &[(Station, PortId)],
    ) -> Traced {
        let traced = self.trace_verdict(turn, topology, source, (frame, offload), learned);
        self.trace_flown((turn, topology), source, frame, traced)
    }

    /// What would become of the copies that flows make of a frame, if they do, besides what is traced already.
    fn trace_flown(
        &mut self,
        (turn, topology): (&Turn<'_>, &Topology),
        source: PortId,
        frame: &[u8],
        mut traced: Traced,
    ) -> Traced {
        let Forwarder { copies: memory, hash, meter, features, .. } = self;
        let super::Copies { completer, retagged, .. } = memory;
        let Some(port) = topology.port(source) else { return traced };
        // Copies wait for nobody, as those of flooded frames.
        let mut preview = Preview { turn, port, is_flood: true, completer };
        for copy in features.flows.traced.drain(..) {
            meter.at(Access::of(copy.0));
            preview.flown((topology, *hash), copy, frame, (retagged, &mut traced));
        }
        meter.at(Access::NONE);
        traced
    }

    /// As [`Forwarder::trace`], but for the copies that flows make.
    fn trace_verdict(
        &mut self,
        turn: &Turn<'_>,
        topology: &Topology,
        source: PortId,
        (frame, offload): (&[u8], Offload),
        learned: &[(Station, PortId)],
    ) -> Traced {
        let mut traced = Traced { lookup: "nowhere", ..Traced::default() };
        let Some(port) = topology.port(source) else {
            return Traced { dropped: Some(Reason::NoPort), ..traced };
        };
        traced.held = port.held.is_some();
        let mut storage = Storage::new(1);
        let mut burst = one(&mut storage, frame, offload);
        traced.mirrored = mirror::preview_arriving((port, source), &burst);
        let (flooded, retag) =
            self.find((topology, port), source, &mut burst, (turn.now, learned), &mut traced);
        let Forwarder { verdicts, copies: memory, hash, meter, features, .. } = self;
        let Features { policing, scopes, .. } = features;
        let (properties, _) = Properties::of(&burst, verdicts);
        let verdict = verdicts[0];
        let is_flood = verdict == FLOOD;
        let single = [verdict];
        let to = if is_flood { flooded } else { &single };
        let len = burst.meta(0).len;
        if !is_flood && let Some(reason) = without_destination(topology, source, verdict, len) {
            return Traced { dropped: Some(reason), ..traced };
        }
        let mut preview = Preview { turn, port, is_flood, completer: &mut memory.completer };
        let bits = 8 * policing.arrived_len(&burst, 0);
        let is_to_group = traced.multicast.is_some();
        let gets = |member: PortId| member != source && (!is_to_group || scopes.has(0, member));
        for member in to.iter().filter(|member| gets(**member)) {
            let Some(to) = topology.port(*member) else { continue };
            let limit = limits::rate_to(to).filter(|_| is_flood && has_policies(&port.target));
            let is_beyond = limit.is_some_and(|limit| !limit.at(turn.now).has(bits));
            let mut form = Form { burst: &burst, properties, retag, is_beyond, topology };
            let copies;
            if is_flood && has_policies(&port.target) {
                let (passing, tags, changes) = policing.flooded(port, to, &burst, &[0]);
                let Some(tag) = tags.first() else { continue };
                if changes {
                    copies = rewritten(&mut memory.retagged, &burst, &passing, &tags);
                    form =
                        Form { burst: &copies, properties: Properties::of_all(&copies), retag: *tag, ..form };
                }
            }
            // Flooded frames go to the first queue.
            let queue = if is_flood { to.first } else { queue_of(to, || hash.of(burst.head(0))) };
            let Some(slot) = topology.rx.get(queue as usize) else { continue };
            if traced.copies.len() >= COPIES {
                traced.omitted += 1;
                continue;
            }
            meter.at(Access::of(slot.port));
            let copy = preview.at(slot, &form);
            if copy.verdict == Verdict::Delivered {
                // A link's queue is that of its other direction.
                let to = topology.port(slot.port).unwrap_or(to);
                traced.mirrored.extend(mirror::preview_leaving((to, *member), port, form.burst));
            }
            traced.copies.push(TracedCopy { queue: queue - to.first, ..copy });
        }
        if is_flood && traced.copies.is_empty() {
            traced.dropped = Some(Reason::NoPort);
        }
        meter.at(Access::NONE);
        traced
    }
}

/// A burst of a frame.
pub(super) fn one<'t>(storage: &'t mut Storage, frame: &'t [u8], offload: Offload) -> Burst<'t> {
    let mut burst = Burst::begin(storage);
    // A single frame fits.
    let _ = burst.push(offload, Span::of(frame));
    burst
}

impl Forwarder {
    /// The first part of a trace: looks up the only frame of the burst, and rewrites it for its destination. Returns
    /// the ports to which it is flooded, if it is, and what becomes of its tag at its only destination.
    fn find<'w>(
        &mut self,
        (topology, port): (&Topology, &'w Port),
        source: PortId,
        burst: &mut Burst<'_>,
        (now, learned): (u64, &[(Station, PortId)]),
        traced: &mut Traced,
    ) -> (&'w [PortId], Retag) {
        let Forwarder { verdicts, hash, features: Features { policing, scopes, flows, .. }, .. } = self;
        if let Target::Switch(switch) = &port.target
            && let Some(lookup) = switch.lookup.flows()
        {
            let place = Place { topology, switch, lookup, port, times: (*hash, now) };
            (verdicts[0], traced.flows) = flows.trace(&place, source, burst);
            traced.lookup = lookup_name(&port.target, verdicts[0]);
            return (&switch.members[..], Retag::Keep);
        }
        let mut retag = Retag::Keep;
        let flooded = match &port.target {
            Target::Switch(switch) if switch.has_policies => {
                (traced.sender, traced.learned) =
                    policing.preview(switch, (port, source), burst, (now, verdicts));
                if !policing.is_refused(0) {
                    traced.vlan = Some(policing.vlan(0));
                    verdicts[0] = with_learned(verdicts[0], burst, (traced.vlan, learned));
                    retag = policing.leave(topology, port, burst, (0, verdicts));
                    policing.preview_found(topology, port, burst, (now, verdicts));
                }
                &switch.members[..]
            }
            Target::Switch(switch) => {
                traced.learned = switch.lookup.preview(burst, source, now, verdicts);
                verdicts[0] = with_learned(verdicts[0], burst, (None, learned));
                &switch.members[..]
            }
            Target::Patch(peer) => {
                verdicts[0] = *peer;
                &[]
            }
            Target::Instances(ends) => {
                verdicts[0] = ends.preview(burst, *hash, now);
                &[]
            }
            Target::Nowhere => {
                verdicts[0] = NOWHERE;
                &[]
            }
        };
        traced.lookup = lookup_name(&port.target, verdicts[0]);
        if let Target::Switch(switch) = &port.target {
            let policed = has_policies(&port.target).then_some(&*policing);
            traced.multicast = scopes.preview(switch, (port, source), (burst, policed), (now, verdicts));
        }
        (flooded, retag)
    }
}

/// Whether it is a switch that has a port with policy.
fn has_policies(target: &Target) -> bool {
    matches!(target, Target::Switch(switch) if switch.has_policies && switch.lookup.flows().is_none())
}

/// The lookup's verdict on a frame, if the switch knew these addresses too.
fn with_learned(
    verdict: PortId,
    burst: &Burst<'_>,
    (vlan, learned): (Option<u16>, &[(Station, PortId)]),
) -> PortId {
    let to = Station::destination(burst.head(0));
    let to = vlan.map_or(to, |vlan| Station::new(to.mac(), vlan));
    let known = learned.iter().find(|(station, _)| *station == to && !to.mac().is_group());
    known.filter(|_| !matches!(verdict, INVALID | FOREIGN)).map_or(verdict, |(_, port)| *port)
}

/// What a lookup found for a frame.
pub(super) fn lookup_name(target: &Target, verdict: PortId) -> &'static str {
    match target {
        Target::Patch(_) => return "patch",
        Target::Instances(_) => return "instance",
        Target::Nowhere => return "nowhere",
        Target::Switch(switch) if switch.lookup.flows().is_some() => return "flow",
        Target::Switch(_) => {}
    }
    match verdict {
        FLOOD => "flooded",
        NOWHERE => "unknown",
        INVALID => "invalid",
        RESERVED => "reserved",
        FOREIGN => "foreign",
        WRONG_VLAN | ISOLATED | SPOOFED | ROGUE | UNREADABLE | BAD_OFFLOAD => "refused",
        RATE_FROM | RATE_TO | STORM => "limited",
        _ => "known",
    }
}

/// The frame in the form in which a destination gets it.
struct Form<'f, 'b> {
    burst: &'f Burst<'b>,
    properties: Properties,
    retag: Retag,
    /// Whether it exceeds the rate of frames to the destination, to which it is flooded.
    is_beyond: bool,
    topology: &'f Topology,
}

/// What would become of a frame at its destinations.
struct Preview<'l> {
    turn: &'l Turn<'l>,
    port: &'l Port,
    is_flood: bool,
    completer: &'l mut Completer,
}

impl Preview<'_> {
    /// What would become of a copy that flows make.
    fn flown(
        &mut self,
        (topology, hash): (&Topology, FlowHash),
        (member, bytes, offload): (PortId, Vec<u8>, Offload),
        frame: &[u8],
        (storage, traced): (&mut Storage, &mut Traced),
    ) {
        let Some(to) = topology.port(member) else { return };
        let burst = one(storage, &bytes, offload);
        let queue = queue_of(to, || hash.of(burst.head(0)));
        let Some(slot) = topology.rx.get(queue as usize) else { return };
        if traced.copies.len() >= COPIES {
            traced.omitted += 1;
            return;
        }
        let properties = Properties::of_all(&burst);
        let form = Form { burst: &burst, properties, retag: Retag::Keep, is_beyond: false, topology };
        let mut copy = self.at(slot, &form);
        if copy.verdict == Verdict::Delivered {
            let to = topology.port(slot.port).unwrap_or(to);
            traced.mirrored.extend(mirror::preview_leaving((to, member), self.port, &burst));
        }
        if bytes != frame && copy.completed.is_none() {
            copy.completed = Some(first_of(&burst));
        }
        traced.copies.push(TracedCopy { queue: queue - to.first, ..copy });
    }

    /// What would become of the frame at a destination. Room is reserved there, and not used.
    fn at(&mut self, slot: &Arc<RxSlot>, form: &Form<'_, '_>) -> TracedCopy {
        let Form { burst, properties, retag, is_beyond, topology } = form;
        let copy = |verdict| {
            let completed = (*retag != Retag::Keep).then(|| first_of(burst));
            let joins = false;
            TracedCopy { port: slot.port, queue: 0, verdict, retag: *retag, completed, frames: 1, joins }
        };
        let opened = (0..TRIES).find_map(|_| match Destination::new(slot, 0, self.turn) {
            Ok(opened) => Some(opened),
            Err(Busy) => {
                std::hint::spin_loop();
                None
            }
        });
        let (mut to, caps) = match opened {
            Some(Some(open)) => open,
            Some(None) => return copy(Verdict::Dropped(Reason::Down)),
            None => return copy(Verdict::Busy),
        };
        if *is_beyond {
            return copy(Verdict::Dropped(Reason::RateTo));
        }
        let full = if !self.is_flood && self.port.hold > 0 && !slot.wait_limit.is_over() {
            Verdict::Waits(self.port.hold)
        } else {
            Verdict::Dropped(Reason::Full)
        };
        if properties.suits(&caps) {
            to.reserve(self.turn, burst, &[0]);
            let joins = !self.is_flood && joins(topology, &to, &caps) && is_segment(burst, 0, &caps);
            let copy = copy(match to.queue.refusal(0) {
                _ if to.fits == 0 => full,
                Some(reason) => Verdict::Dropped(reason),
                None => Verdict::Delivered,
            });
            return TracedCopy { joins, ..copy };
        }
        let completed = self.completer.complete(burst, &[0], caps);
        let frames = match completed.outcomes.first() {
            Some(Outcome::Dropped(reason)) => return copy(Verdict::Dropped(*reason)),
            Some(Outcome::Frames(frames)) => usize::from(*frames),
            None => 0,
        };
        to.reserve(self.turn, &completed.burst, completed.names());
        let verdict = match to.queue.refusal(0) {
            _ if completed.whole(to.fits).inputs == 0 => full,
            Some(reason) => Verdict::Dropped(reason),
            None => Verdict::Delivered,
        };
        TracedCopy { completed: Some(first_of(&completed.burst)), frames, ..copy(verdict) }
    }
}

/// The first frame of a burst.
fn first_of(burst: &Burst<'_>) -> (Vec<u8>, Offload) {
    let meta = burst.meta(0);
    let mut first = vec![0; meta.len as usize];
    burst.read(0, 0, &mut first);
    (first, meta.offload)
}

/// A queue of a single frame, in our own memory.
pub struct OneFrame {
    // Published because of its lifetime: a burst borrows the bytes for its turn, not from the queue.
    frame: Published<Vec<u8>>,
    offload: Offload,
    is_sent: bool,
}

impl OneFrame {
    /// The most often that a source with it is served: a frame that is flooded to many ports needs several times.
    pub const SERVED: usize = 16;

    /// A queue of this frame.
    pub fn new(frame: Vec<u8>, offload: Offload) -> OneFrame {
        OneFrame { frame: Published::new(Arc::new(frame)), offload, is_sent: false }
    }
}

impl TxQueue for OneFrame {
    fn take<'t>(&mut self, turn: &'t Turn<'_>, burst: &mut Burst<'t>) {
        if !self.is_sent {
            // The burst is empty.
            let _ = burst.push(self.offload, Span::of(self.frame.read(turn)));
        }
    }

    fn release(&mut self, _turn: &Turn<'_>, frames: usize) {
        self.is_sent |= frames > 0;
    }

    fn arm(&mut self, _turn: &Turn<'_>) -> bool {
        true
    }

    fn disarm(&mut self, _turn: &Turn<'_>) {}
}

#[cfg(test)]
mod tests {
    use super::super::Served;
    use super::super::tests::{Bench, frame};
    use super::*;
    use crate::antispoof::tests as antispoof;
    use crate::topology::Switch;
    use proptest::prelude::*;
    use ringway_spec::{Policy, Rate, Vlans};
    use ringway_switch::{FlowHash, Hash, Lookup, Mac, Static};

    /// What a trace of a frame says: the ports that get it, and where it is dropped and why.
    fn predicted(traced: &Traced, source: usize) -> (Vec<usize>, Vec<(usize, Reason)>) {
        let copies = || traced.copies.iter().map(|copy| (usize::from(copy.port), copy.verdict));
        let got = copies().filter(|(_, verdict)| *verdict == Verdict::Delivered).map(|(port, _)| port);
        let dropped = copies().filter_map(|(port, verdict)| match verdict {
            Verdict::Dropped(reason) => Some((port, reason)),
            // No room comes in this test.
            Verdict::Waits(_) => Some((port, Reason::Full)),
            _ => None,
        });
        (got.collect(), traced.dropped.map(|reason| (source, reason)).into_iter().chain(dropped).collect())
    }

    /// Policies on a port, with VLANs 1 and 2.
    fn policies() -> impl Strategy<Value = Policy> {
        let native = prop_oneof![Just(None), (1u16..3).prop_map(Some)];
        let trunk = (prop::collection::vec(1u16..3, 0..2), native, any::<bool>()).prop_map(
            |(carried, native, service)| {
                let carried = carried.into_iter().map(|vlan| (vlan, vlan)).collect();
                Vlans::Trunk { carried, native, service }
            },
        );
        let vlans = prop_oneof![
            2 => Just(None),
            1 => (1u16..3).prop_map(|vlan| Some(Vlans::Access(vlan))),
            1 => trunk.prop_map(Some),
            1 => (1u16..3).prop_map(|vlan| Some(Vlans::Customer(vlan))),
        ];
        let rate =
            || prop::option::weighted(0.2, (1u64..5_000).prop_map(|bits| Rate { bits, burst: Some(200) }));
        let limits =
            (rate(), rate(), prop::option::weighted(0.2, 1u64..3), prop::option::weighted(0.2, Just(1)));
        (vlans, prop::bool::weighted(0.3), prop::bool::weighted(0.3), limits).prop_map(
            |(vlans, isolated, guarded, (rate_from, rate_to, storm, learn_rate))| {
                let base = if guarded { antispoof::policy() } else { Policy::default() };
                Policy { vlans, isolated, rate_from, rate_to, storm, learn_rate, ..base }
            },
        )
    }

    /// Four ports on a switch with each lookup, or in two patches.
    fn bench_of(kind: usize) -> Bench {
        let mac = |station: u8| Mac::new([2, 0, 0, 0, 0, station]);
        let lookup: Arc<dyn Lookup> = match kind {
            0 => return Bench::new(4),
            1 => Arc::new(Static::new(&[(mac(0), 0), (mac(1), 1), (mac(5), 3)], 8, 1).0),
            2 => Arc::new(Hash::new(vec![1, 2, 3], 0, FlowHash::new(7))),
            _ => return Bench::with(4, |port| Target::Patch(port ^ 1)),
        };
        let switch =
            Arc::new(Switch { lookup, members: (0..4).collect(), has_policies: false, snooping: None });
        Bench::with(4, |_| Target::Switch(switch.clone()))
    }

    proptest! {
        #[test]
        fn a_trace_is_what_happens(
            kind in 0usize..4,
            known in prop::collection::vec((0u8..4, 0u8..6), 0..12),
            steps in prop::collection::vec(
                (
                    0usize..4, (prop_oneof![0u8..6, Just(0xff)], 0u8..6, 0usize..200, 0u8..12),
                    [0usize..3, 0..3, 0..3, 0..3], [0u8..8, 0..8, 0..8, 0..8], 0u64..4_000_000_000,
                    prop::option::weighted(0.3, antispoof::frames()),
                ),
                1..20,
            ),
            hold in prop_oneof![Just(0), Just(100_000)],
            policies in prop::collection::vec(policies(), 4),
        ) {
            let mut bench = bench_of(kind);
            bench.set_hold(hold);
            bench.set_policies(&policies);
            for (port, station) in known {
                bench.send(port.into(), &[frame(0xff, station, 60)]);
                bench.serve(port.into());
            }
            for (port, (to, from, len, odd), rooms, away, time, other) in steps {
                for receiver in 0..4 {
                    bench.got(receiver);
                    bench.set_room(receiver, rooms[receiver]);
                    bench.change(receiver, |peer| peer.set_away(away[receiver] == 0));
                }
                bench.now += time;
                let mut bytes = frame(to, from, len).to_vec();
                if len >= 14 {
                    match odd {
                        // A group as source, a reserved destination, a tag.
                        0 => bytes[6] |= 1,
                        1 => bytes[..6].copy_from_slice(&[1, 0x80, 0xc2, 0, 0, 3]),
                        2 => bytes[12..14].copy_from_slice(&[0x81, 0]),
                        3..7 if len >= 22 => bytes[12..16].copy_from_slice(&[0x81, 0, 0xa0, odd - 3]),
                        7 if len >= 22 => {
                            bytes[12..20].copy_from_slice(&[0x81, 0, 0, from % 3, 0x81, 0, 0, 2]);
                        }
                        _ => {}
                    }
                }
                bytes = other.map_or(bytes, |(frame, _)| frame);
                let before = bench.all_counters();
                let traced = bench.trace(port, &bytes);
                prop_assert_eq!(&bench.trace(port, &bytes), &traced, "a trace changes nothing");
                prop_assert_eq!(&bench.all_counters(), &before, "a trace counts nothing");
                prop_assert!((0..4).all(|receiver| bench.got(receiver).is_empty()));
                let (got, dropped) = predicted(&traced, port);
                let form = |receiver: usize| {
                    let copy = traced.copies.iter().find(|copy| usize::from(copy.port) == receiver);
                    let completed = copy.and_then(|copy| copy.completed.as_ref());
                    completed.map_or_else(|| bytes.clone(), |(first, _)| first.clone())
                };
                bench.send(port, &[Box::leak(bytes.clone().into_boxed_slice())]);
                for _ in 0..4 {
                    if bench.serve(port) != Served::Waiting {
                        break;
                    }
                    bench.now += hold;
                }
                let receives = |receiver: &usize| bench.got(*receiver) == [form(*receiver)];
                prop_assert_eq!((0..4).filter(receives).collect::<Vec<_>>(), got, "{:?}", traced);
                let mut counted = bench.drops_since(&before);
                let mut expected: Vec<(usize, Reason)> = dropped;
                counted.sort_by_key(|(port, reason)| (*port, *reason as usize));
                expected.sort_by_key(|(port, reason)| (*port, *reason as usize));
                prop_assert_eq!(counted, expected, "{:?}", traced);
            }
        }
    }

    #[test]
    fn a_frame_with_offloads_is_completed_in_a_trace() {
        let mut bench = Bench::new(2);
        bench.teach();
        let text = "tcp,dl_dst=02:00:00:00:00:01,dl_src=02:00:00:00:00:00,nw_src=10.0.0.1,len=3054";
        let bytes = ringway_wire::fields::Described::parse(text).unwrap().frame;
        let offload = Offload { gso_type: 1, gso_size: 1460, ..Offload::checksum(34, 16) };
        let traced = bench.trace_with(0, &bytes, offload);
        let copy = &traced.copies[0];
        assert_eq!((copy.verdict, copy.frames, traced.lookup), (Verdict::Delivered, 3, "known"));
        assert_eq!(
            copy.completed.as_ref().map(|(first, offload)| (first.len(), offload.is_done())),
            Some((1514, true))
        );
        let broken = Offload { gso_type: 1, gso_size: 1460, ..Offload::checksum(34, 6) };
        assert_eq!(
            bench.trace_with(0, &bytes, broken).copies[0].verdict,
            Verdict::Dropped(Reason::BadOffload)
        );
    }

    #[test]
    fn an_injected_frame_passes_as_others_do() {
        let mut bench = Bench::new(3);
        bench.teach();
        assert!(bench.inject(0, frame(1, 0, 60)) && bench.got(1) == [frame(1, 0, 60)]);
        bench.set_room(1, 0);
        assert!(!bench.inject(0, frame(1, 0, 60)), "it would wait");
        assert!(bench.inject(0, frame(0, 0, 60)), "it is dropped and counted");
        assert_eq!(bench.counters(0).tx_frames.load(std::sync::atomic::Ordering::Relaxed), 3);
    }
}
