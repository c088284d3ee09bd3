//! Answers to frames that are too long for the port that they are for, so that their senders find the path's MTU.
//!
//! An answer is from the address that the packet was for, and enters the fabric at that port, whose VLANs and rules for
//! senders hold for it. It uses none of that port's rates, and goes to the port of the packet's sender or nowhere.

use super::trace::OneFrame;
use super::{Delivery, Forwarder, Served, Source};
use crate::topology::Topology;
use ringway_frame::{CountersRef, Offload, add};
use ringway_mem::Turn;
use ringway_port::too_big::{LONGEST, answer_for_port};
use ringway_switch::PortId;

/// Answers that wait for the end of a burst, each with the port where it enters, and that of the sender.
pub(super) type Answers = Vec<([PortId; 2], Vec<u8>)>;

impl Delivery<'_, '_, '_> {
    /// Answers a frame that is longer than `largest` bytes, the most that `port` takes, of which `framing` are no
    /// packet's.
    #[cold]
    pub(super) fn answer_long(&self, port: PortId, frame: usize, [largest, framing]: [u32; 2]) {
        let now = self.turn.now;
        let Some(answered) = self.source.answered.due(self.burst.head(frame), now) else { return };
        let mut head = [0; LONGEST];
        let len = (self.burst.meta(frame).len as usize).min(LONGEST);
        let read = self.burst.read(frame, 0, &mut head[..len]);
        if let Some(answer) = answer_for_port(&head[..read], largest as usize, framing as usize) {
            add(&self.source.counters.tx_place.answered, 1);
            answered.set(now.max(1));
            self.decided.answers.borrow_mut().push(([port, self.source.port], answer));
        }
    }
}

impl Forwarder {
    /// Sends the answers. An answer to one is never sent (RFC 1122, 3.2.2; RFC 4443, 2.4).
    #[cold]
    pub(super) fn send_answers(&mut self, turn: &Turn<'_>, topology: &Topology) {
        for ([port, sender], answer) in std::mem::take(self.features.answers.get_mut()) {
            let queue = Box::new(OneFrame::new(answer, Offload::default()));
            // The counters of the port's own queue may be another worker's.
            let mut source = Source::new(queue, port, 0, CountersRef::private());
            source.answers = Some(sender);
            // One that finds no room is lost: its sender sends the packet again.
            let _ = (0..OneFrame::SERVED)
                .any(|_| !matches!(self.serve(turn, topology, &mut source), Served::Waiting));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::capture::tests::{buffer, settings};
    use super::super::tests::{Bench, frame};
    use super::*;
    use ringway_frame::Reason;
    use ringway_port::too_big::{EVERY, SENDERS};
    use ringway_spec::{Policy, Vlans};
    use ringway_wire::fields::Described;
    use ringway_wire::pcapng::Direction;
    use std::sync::atomic::Ordering::Relaxed;

    /// A packet of so many bytes from port 0 to port 1.
    fn packet(what: &str, len: usize) -> &'static [u8] {
        let text = format!("{what},dl_dst=02:00:00:00:00:01,dl_src=02:00:00:00:00:00,len={len}");
        let mut frame = Described::parse(&text).unwrap().frame;
        if frame[12..14] == [8, 0] {
            // DF, and the header's checksum with it.
            frame[20] |= 0x40;
            let sum = u16::from_be_bytes([frame[24], frame[25]]);
            let (less, borrows) = sum.overflowing_sub(0x4000);
            frame[24..26].copy_from_slice(&(less - u16::from(borrows)).to_be_bytes());
        }
        frame.leak()
    }

    fn serve(bench: &mut Bench, port: usize) {
        while matches!(bench.serve(port), Served::Moved(_)) {}
    }

    #[test]
    fn a_frame_that_is_too_long_for_its_port_is_answered() {
        let mut bench = Bench::new(3);
        bench.teach();
        let v4 = packet("tcp,nw_src=10.0.0.1,nw_dst=10.0.0.2", 9_500);
        let v6 = packet("tcp6,ipv6_src=fd00::1,ipv6_dst=fd00::2", 9_500);
        for (sent, at, mtu) in [(v4, 14 + 20 + 6, 2), (v6, 14 + 40 + 4, 4)] {
            bench.now += EVERY;
            let before = bench.all_counters();
            // The second one comes too soon.
            bench.send(0, &[sent, frame(1, 0, 60), sent]);
            serve(&mut bench, 0);
            assert_eq!(bench.drops_since(&before), [(1, Reason::Long), (1, Reason::Long)]);
            assert_eq!(bench.got(1).len(), 1);
            let got = bench.got(0);
            assert_eq!(got.len(), 1);
            assert_eq!((&got[0][..6], &got[0][6..12]), (&sent[6..12], &sent[..6]));
            let told = &got[0][at..at + mtu];
            assert_eq!(u16::from_be_bytes([told[mtu - 2], told[mtu - 1]]), 9_000 - 22);
            assert!(bench.got(2).is_empty());
        }
    }

    /// The MTU of which an answer to a packet of IPv4 tells.
    fn told(answer: &[u8]) -> u16 {
        u16::from_be_bytes([answer[40], answer[41]])
    }

    #[test]
    fn one_sender_does_not_keep_another_from_being_answered() {
        let mut bench = Bench::new(3);
        bench.teach();
        let of = |host: u8| packet(&format!("tcp,nw_src=10.0.0.{host},nw_dst=10.0.0.9"), 9_500);
        let all: Vec<_> = (1..200).map(of).collect();
        // One sends all the time, many others once.
        for _ in 0..4 {
            bench.send(0, &[all[0]; 60]);
            serve(&mut bench, 0);
        }
        assert_eq!(bench.got(0).len(), 1);
        all.chunks(60).for_each(|some| {
            bench.send(0, some);
            serve(&mut bench, 0);
        });
        assert_eq!(bench.got(0).len(), SENDERS - 1, "as many as have places");
        assert_eq!(bench.counters(0).tx_place.answered.load(Relaxed), SENDERS as u64);
        bench.now += EVERY;
        bench.send(0, &[all[0]]);
        serve(&mut bench, 0);
        assert_eq!(bench.got(0).len(), 1);
    }

    #[test]
    fn what_precedes_a_packet_is_what_the_port_says() {
        for framing in [14 + 4, 14 + 8] {
            let mut bench = Bench::new(2);
            bench.teach();
            bench.change(1, |peer| peer.framing = Some(framing));
            bench.send(0, &[packet("tcp,nw_src=10.0.0.1,nw_dst=10.0.0.2", 9_500)]);
            serve(&mut bench, 0);
            assert_eq!(u32::from(told(&bench.got(0)[0])), 9_000 - framing);
        }
    }

    #[test]
    fn a_capture_does_not_show_answers_as_frames_of_the_destination() {
        let mut bench = Bench::new(3);
        bench.teach();
        let (point, mut reading) = buffer(1 << 20, &settings(""));
        bench.capture(&[point]);
        bench.send(0, &[packet("tcp,nw_src=10.0.0.1,nw_dst=10.0.0.2", 9_500)]);
        serve(&mut bench, 0);
        assert_eq!(bench.got(0).len(), 1);
        reading.read();
        let seen: Vec<_> = reading
            .frames
            .iter()
            .map(|(port, event, ..)| (*port, event.direction == Direction::Inbound, event.drop))
            .collect();
        let expected = [(0, true, None), (1, false, Some(Reason::Long)), (0, false, None)];
        assert_eq!(seen, expected, "the packet, that it was dropped, and the answer");
    }

    #[test]
    fn segments_that_are_too_long_are_answered_and_others_are_not() {
        let mut bench = Bench::new(2);
        bench.teach();
        let long = packet("tcp,nw_src=10.0.0.1,nw_dst=10.0.0.2", 30_000);
        let offload = |gso_size| Offload { gso_type: 1, gso_size, ..Offload::checksum(34, 16) };
        for (gso_size, answers) in [(8_946, 0), (8_947, 1)] {
            bench.now += EVERY;
            bench.change(0, |peer| peer.offload = offload(gso_size));
            bench.send(0, &[long]);
            serve(&mut bench, 0);
            assert_eq!(bench.got(0).len(), answers, "segments of {gso_size} bytes");
        }
        bench.change(0, |peer| peer.offload = Offload::default());
        // Without DF; no IP at all.
        let mut may_be_cut = long.to_vec();
        may_be_cut[20] = 0;
        for silent in [&*may_be_cut.leak(), frame(1, 0, 9_500)] {
            bench.now += EVERY;
            let before = bench.all_counters();
            bench.send(0, &[silent]);
            serve(&mut bench, 0);
            assert_eq!(bench.drops_since(&before), [(1, Reason::Long)]);
            assert!(bench.got(0).is_empty());
        }
    }

    #[test]
    fn an_answer_comes_back_with_the_tag_that_its_frame_had() {
        let mut bench = Bench::new(2);
        let trunk = Vlans::Trunk { carried: vec![(7, 7)], native: None, service: false };
        let policy = |vlans| Policy { vlans: Some(vlans), ..Policy::default() };
        bench.set_policies(&[policy(trunk), policy(Vlans::Access(7))]);
        bench.teach_vlans();
        let mut tagged = packet("tcp,nw_src=10.0.0.1,nw_dst=10.0.0.2", 9_500).to_vec();
        tagged.splice(12..12, [0x81, 0, 0, 7]);
        bench.send(0, &[tagged.leak()]);
        serve(&mut bench, 0);
        let got = bench.got(0);
        assert_eq!((got.len(), &got[0][12..18]), (1, &[0x81, 0, 0, 7, 8, 0][..]));
    }
}
