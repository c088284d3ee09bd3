//! Limits on ports: the rates of frames from a port and to it, the number of its frames that are flooded, and that of
//! addresses which are learned from them.
//!
//! A frame is charged when it is looked up, and what it was charged is given back if it stays at its port, which
//! brings it again. Flooded frames are charged at each destination, once that is locked.

use super::Source;
use super::policing::Policing;
use crate::policy::PortPolicy;
use crate::rate::{RateLimit, Tokens};
use crate::topology::{Port, Topology};
use arrayvec::ArrayVec;
use ringway_frame::{BURST, Burst, add};
use ringway_switch::{FLOOD, Lookup, Mac, NO_PORT, PortId, RATE_FROM, RATE_TO, STORM, Station, Verdicts};

/// Which frames of a burst were charged, as masks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Charged {
    from: u64,
    to: u64,
    storm: u64,
}

fn policy(port: &Port) -> Option<&PortPolicy> {
    port.policy.as_deref()
}

fn rate_from(port: &Port) -> Option<&RateLimit> {
    policy(port)?.rate_from.as_ref()
}

/// The limit of the rate of frames to a port.
pub(super) fn rate_to(port: &Port) -> Option<&RateLimit> {
    rate_to_of(policy(port)?)
}

/// The limit of the rate of frames to a port with this policy.
pub(super) fn rate_to_of(policy: &PortPolicy) -> Option<&RateLimit> {
    policy.rate_to.as_ref()
}

fn storm(port: &Port) -> Option<&RateLimit> {
    policy(port)?.storm.as_ref()
}

fn learn_rate(port: &Port) -> Option<&RateLimit> {
    policy(port)?.learn_rate.as_ref()
}

/// The limit that a frame from `port` meets where it goes.
fn limit_of<'t>(topology: &'t Topology, port: &'t Port, verdict: PortId) -> Option<&'t RateLimit> {
    if verdict == FLOOD {
        return storm(port);
    }
    let to = if verdict < NO_PORT { topology.port(verdict)? } else { return None };
    // A frame for its own port is dropped.
    rate_to(to).filter(|_| !std::ptr::eq(port, to))
}

impl Policing {
    /// Bits of a frame as it arrived.
    fn bits(&self, burst: &Burst<'_>, frame: usize) -> u64 {
        8 * self.arrived_len(burst, frame)
    }

    /// What a frame costs where it goes, and the verdict on it if that is too much.
    fn cost(&self, burst: &Burst<'_>, frame: usize, verdict: PortId) -> (u64, PortId) {
        if verdict == FLOOD { (1, STORM) } else { (self.bits(burst, frame), RATE_TO) }
    }

    /// Frames of this burst have not used tokens of their port.
    pub(super) fn charge_nothing(&mut self) {
        self.charged = Charged::default();
    }

    /// Refuses frames that their port sends beyond its rate.
    pub(super) fn limit_from(
        &mut self,
        port: &Port,
        burst: &Burst<'_>,
        (now, verdicts): (u64, &mut Verdicts),
    ) {
        self.charge_nothing();
        let Some(limit) = rate_from(port) else { return };
        let mut tokens = limit.at(now);
        for frame in 0..burst.len().min(BURST) {
            if self.is_refused(frame) {
                continue;
            }
            match tokens.take(self.bits(burst, frame)) {
                true => self.charged.from |= 1 << frame,
                false => self.refuse(frame, RATE_FROM, verdicts),
            }
        }
    }

    /// Drops frames beyond the rates of their destinations, and those that would be flooded beyond their port's limit.
    pub(super) fn limit_found(
        &mut self,
        topology: &Topology,
        port: &Port,
        burst: &Burst<'_>,
        (now, verdicts): (u64, &mut Verdicts),
    ) {
        // Frames of a burst mostly have the same destination, whose limit stays locked; only one is at a time.
        let mut last: Option<(PortId, Option<Tokens<'_>>)> = None;
        for (frame, verdict) in verdicts.iter_mut().enumerate().take(burst.len()) {
            let found = *verdict;
            if last.as_ref().is_none_or(|(of, _)| *of != found) {
                drop(last.take());
                last = Some((found, limit_of(topology, port, found).map(|limit| limit.at(now))));
            }
            let Some((_, Some(tokens))) = &mut last else { continue };
            let (cost, beyond) = self.cost(burst, frame, found);
            let charged = if found == FLOOD { &mut self.charged.storm } else { &mut self.charged.to };
            match tokens.take(cost) {
                true => *charged |= 1 << frame,
                false => *verdict = beyond,
            }
        }
    }

    /// The station that a frame is from.
    fn station(&self, burst: &Burst<'_>, frame: usize) -> Station {
        let [_, _, _, _, _, _, a, b, c, d, e, f, ..] = *burst.head(frame);
        Station::new(Mac::new([a, b, c, d, e, f]), self.vlan(frame))
    }

    /// Decides from which frames nothing is learned, since that would be too many addresses.
    pub(super) fn limit_learning(
        &mut self,
        lookup: &dyn Lookup,
        (port, from): (&Port, PortId),
        burst: &Burst<'_>,
        now: u64,
    ) {
        self.unlearned = 0;
        let Some(limit) = learn_rate(port) else { return };
        let mut tokens = limit.at(now);
        // The stations of this burst, and whether they are too many. Most frames have the last one.
        let mut decided: ArrayVec<(Station, bool), BURST> = ArrayVec::new();
        for frame in 0..burst.len().min(BURST) {
            let station = self.station(burst, frame);
            // Nothing is learned from a group's address.
            if self.is_refused(frame) || station.mac().is_group() {
                continue;
            }
            let before =
                decided.iter().rev().find(|(known, _)| *known == station).map(|(_, is_beyond)| *is_beyond);
            let is_beyond = before.unwrap_or_else(|| {
                let is_beyond = !lookup.knows(station, from) && !tokens.take(1);
                decided.push((station, is_beyond));
                is_beyond
            });
            self.unlearned |= u64::from(is_beyond) << frame;
        }
    }

    /// As `limit_learning`, of a frame that is traced: nothing is charged.
    pub(super) fn preview_learning(
        &mut self,
        lookup: &dyn Lookup,
        (port, from): (&Port, PortId),
        burst: &Burst<'_>,
        now: u64,
    ) {
        let is_beyond = learn_rate(port)
            .is_some_and(|limit| !lookup.knows(self.station(burst, 0), from) && !limit.at(now).has(1));
        self.unlearned = u64::from(is_beyond && !self.is_refused(0));
    }

    /// Called once the frames before `first` have left: gives back what the others were charged, since they stay.
    pub(super) fn settle(
        &self,
        topology: &Topology,
        (port, source): (&Port, &Source),
        burst: &Burst<'_>,
        (now, verdicts): (u64, &Verdicts),
        first: usize,
    ) {
        if self.unlearned != 0 {
            let gone = u64::MAX.checked_shl(first as u32).map_or(u64::MAX, |stay| !stay);
            add(&source.counters.unlearned, (self.unlearned & gone).count_ones().into());
        }
        let Charged { from, to, storm } = self.charged;
        if from | to | storm == 0 {
            return;
        }
        for (frame, verdict) in verdicts.iter().enumerate().take(burst.len()).skip(first) {
            let was_charged = |mask: u64| mask >> frame & 1 != 0;
            if let Some(limit) = rate_from(port).filter(|_| was_charged(from)) {
                limit.at(now).give_back(self.bits(burst, frame));
            }
            if let Some(limit) = limit_of(topology, port, *verdict).filter(|_| was_charged(to | storm)) {
                limit.at(now).give_back(self.cost(burst, frame, *verdict).0);
            }
        }
    }

    /// As `limit_from`, of a frame that is traced: nothing is charged.
    pub(super) fn preview_from(
        &mut self,
        port: &Port,
        burst: &Burst<'_>,
        (now, verdicts): (u64, &mut Verdicts),
    ) {
        let bits = self.bits(burst, 0);
        if !self.is_refused(0) && rate_from(port).is_some_and(|limit| !limit.at(now).has(bits)) {
            self.refuse(0, RATE_FROM, verdicts);
        }
    }

    /// As `limit_found`, of a frame that is traced: nothing is charged.
    pub(super) fn preview_found(
        &self,
        topology: &Topology,
        port: &Port,
        burst: &Burst<'_>,
        (now, verdicts): (u64, &mut Verdicts),
    ) {
        let (cost, beyond) = self.cost(burst, 0, verdicts[0]);
        if limit_of(topology, port, verdicts[0]).is_some_and(|limit| !limit.at(now).has(cost)) {
            verdicts[0] = beyond;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Served;
    use super::super::tests::{Bench, frame};
    use proptest::prelude::*;
    use ringway_frame::{Offload, Reason};
    use ringway_spec::{Policy, Rate};

    const SECOND: u64 = 1_000_000_000;

    /// So many bytes a second, and at once.
    fn rate(bytes: u64, burst: u64) -> Option<Rate> {
        Some(Rate { bits: 8 * bytes, burst: Some(burst) })
    }

    fn serve(bench: &mut Bench, port: usize) {
        while matches!(bench.serve(port), Served::Moved(_)) {}
    }

    /// How many frames of a length a port gets of `count`, and why the others are dropped.
    fn sent(bench: &mut Bench, (from, to): (usize, usize), len: usize, count: usize) -> (usize, Vec<Reason>) {
        let before = bench.all_counters();
        let station = if to == 9 { 0xff } else { to as u8 };
        bench.send(from, &vec![frame(station, from as u8, len); count]);
        serve(bench, from);
        let mut reasons: Vec<Reason> =
            bench.drops_since(&before).into_iter().map(|(_, reason)| reason).collect();
        reasons.dedup();
        (bench.got(if to == 9 { 1 } else { to }).len(), reasons)
    }

    #[test]
    fn frames_from_a_port_pass_at_its_rate() {
        let mut bench = Bench::new(3);
        bench.teach();
        bench.set_policies(&[
            Policy { rate_from: rate(1_000, 5_000), ..Policy::default() },
            Policy::default(),
            Policy::default(),
        ]);
        assert_eq!(sent(&mut bench, (0, 1), 1_000, 100), (5, vec![Reason::RateFrom]));
        assert_eq!(sent(&mut bench, (1, 0), 1_000, 100), (100, vec![]), "the other direction has no limit");
        bench.now += SECOND - 1;
        assert_eq!(sent(&mut bench, (0, 1), 1_000, 1), (0, vec![Reason::RateFrom]));
        bench.now += 1;
        assert_eq!(sent(&mut bench, (0, 1), 1_000, 2), (1, vec![Reason::RateFrom]));
        bench.now += SECOND;
        // One that is too long leaves what is there to others.
        assert_eq!(sent(&mut bench, (0, 1), 1_001, 1), (0, vec![Reason::RateFrom]));
        assert_eq!(sent(&mut bench, (0, 1), 500, 2), (2, vec![]));
        bench.now += 100 * SECOND;
        assert_eq!(
            sent(&mut bench, (0, 2), 1_000, 100),
            (5, vec![Reason::RateFrom]),
            "no more than the burst"
        );
    }

    #[test]
    fn a_frame_with_pending_segmentation_counts_its_bytes() {
        let mut bench = Bench::new(2);
        bench.teach();
        bench.set_policies(&[
            Policy { rate_from: rate(1_000, 70_000), ..Policy::default() },
            Policy::default(),
        ]);
        let text = "tcp,dl_dst=02:00:00:00:00:01,dl_src=02:00:00:00:00:00,nw_src=10.0.0.1,len=60054";
        let long = ringway_wire::fields::Described::parse(text).unwrap().frame.leak();
        let offload = Offload { gso_type: 1, gso_size: 1_460, ..Offload::checksum(34, 16) };
        bench.change(0, |peer| peer.offload = offload);
        for (frames, reason) in [(42, 0), (0, 1)] {
            let before = bench.all_counters();
            bench.send(0, &[long]);
            serve(&mut bench, 0);
            assert_eq!((bench.got(1).len(), bench.drops_since(&before).len()), (frames, reason));
        }
        bench.now += 50 * SECOND;
        bench.send(0, &[long]);
        serve(&mut bench, 0);
        assert_eq!(bench.got(1).len(), 0, "54 bytes are missing yet");
        bench.now += SECOND;
        bench.send(0, &[long]);
        serve(&mut bench, 0);
        assert_eq!(bench.got(1).len(), 42);
    }

    #[test]
    fn frames_to_a_port_pass_at_its_rate_and_flooded_ones_too() {
        let mut bench = Bench::new(3);
        bench.teach();
        bench.set_policies(&[
            Policy::default(),
            Policy { rate_to: rate(1_000, 3_000), ..Policy::default() },
            Policy::default(),
        ]);
        assert_eq!(sent(&mut bench, (0, 1), 1_000, 2), (2, vec![]));
        assert_eq!(sent(&mut bench, (2, 1), 1_000, 2), (1, vec![Reason::RateTo]), "all senders share it");
        assert_eq!(sent(&mut bench, (1, 0), 1_000, 9), (9, vec![]));
        bench.got(2);
        bench.now += SECOND;
        assert_eq!(sent(&mut bench, (0, 9), 1_000, 3), (1, vec![Reason::RateTo]));
        assert_eq!(bench.got(2).len(), 3, "others get all");
    }

    #[test]
    fn flooded_frames_are_limited_and_others_are_not() {
        let mut bench = Bench::new(3);
        bench.teach();
        bench.set_policies(&[
            Policy { storm: Some(3), ..Policy::default() },
            Policy::default(),
            Policy::default(),
        ]);
        assert_eq!(sent(&mut bench, (0, 9), 60, 5), (3, vec![Reason::Storm]));
        assert_eq!(sent(&mut bench, (0, 1), 60, 5), (5, vec![]));
        let before = bench.all_counters();
        bench.send(0, &[frame(7, 0, 60)]);
        serve(&mut bench, 0);
        assert_eq!(bench.drops_since(&before), [(0, Reason::Storm)], "an unknown station");
        bench.now += SECOND / 3 + 1;
        assert_eq!(sent(&mut bench, (0, 9), 60, 2), (1, vec![Reason::Storm]));
        assert_eq!(sent(&mut bench, (1, 9), 60, 50), (0, vec![]), "its own port gets none");
        assert_eq!(bench.got(0).len(), 50);
    }

    #[test]
    fn addresses_are_learned_at_a_rate_and_frames_pass_all_the_same() {
        let mut bench = Bench::new(2);
        bench.set_policies(&[Policy { learn_rate: Some(3), ..Policy::default() }, Policy::default()]);
        let unlearned =
            |bench: &Bench| bench.counters(0).unlearned.load(std::sync::atomic::Ordering::Relaxed);
        // Two of each station, in one burst.
        let frames: Vec<_> = (10..30).map(|number| frame(0xff, 10 + number % 10, 60)).collect();
        bench.send(0, &frames);
        serve(&mut bench, 0);
        assert_eq!((bench.got(1).len(), bench.known(), unlearned(&bench)), (20, 3, 14));
        // Those that are known cost nothing.
        bench.now += SECOND / 3 + 1;
        bench.send(0, &[frame(0xff, 10, 60), frame(0xff, 11, 60), frame(0xff, 20, 60), frame(0xff, 21, 60)]);
        serve(&mut bench, 0);
        assert_eq!((bench.got(1).len(), bench.known(), unlearned(&bench)), (4, 4, 15));
        // Frames to one that is not known are flooded.
        bench.send(1, &[frame(21, 1, 60)]);
        serve(&mut bench, 1);
        assert_eq!((bench.got(0).len(), unlearned(&bench)), (1, 15));
        // A frame that waits is counted when it leaves.
        bench.set_room(1, 0);
        bench.send(0, &[frame(1, 22, 60)]);
        (0..3).for_each(|_| assert_eq!(bench.serve(0), Served::Waiting));
        assert_eq!(unlearned(&bench), 15);
        bench.set_room(1, 1);
        serve(&mut bench, 0);
        assert_eq!((bench.got(1).len(), unlearned(&bench)), (1, 16));
    }

    #[test]
    fn a_frame_that_waits_is_charged_once() {
        let mut bench = Bench::new(2);
        bench.teach();
        let both = Policy { rate_from: rate(1, 2_000), rate_to: rate(1, 2_000), ..Policy::default() };
        bench.set_policies(&[both.clone(), both]);
        bench.set_room(1, 1);
        bench.send(0, &[frame(1, 0, 1_000); 3]);
        assert_eq!(bench.serve(0), Served::Moved(1));
        for _ in 0..10 {
            assert_eq!(bench.serve(0), Served::Waiting);
        }
        bench.set_room(1, 100);
        serve(&mut bench, 0);
        assert_eq!(bench.got(1).len(), 2);
    }

    proptest! {
        #[test]
        fn over_any_time_no_more_passes_than_the_rate_and_the_burst(
            steps in prop::collection::vec(
                (0u64..SECOND, 0usize..4, 14usize..1_500, 0usize..80, 0usize..90),
                1..40,
            ),
        ) {
            let (bytes, burst) = (10_000, 4_000);
            let mut bench = Bench::new(3);
            bench.teach();
            let limit = rate(bytes, burst);
            let limited = Policy { rate_from: limit, rate_to: limit, ..Policy::default() };
            bench.set_policies(&[limited.clone(), limited, Policy::default()]);
            let (begin, mut out, mut most) = (bench.now, 0u64, 0u64);
            for (time, to, len, count, room) in steps {
                bench.now += time;
                bench.set_room(1, room);
                let station = if to == 3 { 0xff } else { to as u8 };
                bench.send(0, &vec![frame(station, 0, len); count]);
                serve(&mut bench, 0);
                out += bench.got(1).iter().map(|frame| frame.len() as u64).sum::<u64>();
                most = burst + (bench.now - begin) * bytes / SECOND;
                prop_assert!(out <= most, "{out} of {most}");
            }
            prop_assert!(out <= most);
        }
    }
}
