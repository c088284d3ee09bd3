//! Completing packets with offload metadata in software, before elements that need it.
//!
//! A packet may become several, more than a pull requested. So packets that will be pulled are completed when
//! they are pushed: at the push inputs from which pulls get their packets.
use super::{Router, Work};
use crate::{ElementId, Metadata, Packet, PacketBurst};
use alloc::vec::Vec;
use ringway_frame::Reason;

impl Router {
    /// Marks the elements before which packets are completed: those that need it, and those from which such elements
    /// pull.
    pub(super) fn mark_completing(&mut self) {
        let needs = |id: &ElementId| self.class(*id).metadata == Metadata::Resolve;
        let mut open: Vec<ElementId> = self.ids().filter(needs).collect();
        while let Some(id) = open.pop() {
            if core::mem::replace(&mut self.info_mut(id).completes, true) {
                continue;
            }
            let pulls = self.info(id).inputs.iter().filter(|port| port.pull);
            open.extend(pulls.filter_map(|port| Some(port.peer?.0)));
        }
    }

    /// Whether a burst has packets to complete before it is passed on.
    pub(super) fn must_complete(&self, work: &Work) -> bool {
        self.info(work.to).completes && work.burst.iter().any(Packet::has_offload)
    }

    /// Completes the packets of a burst; the results replace it.
    #[cold]
    pub(super) fn complete_work(&mut self, mut work: Work) {
        let mut bursts = Vec::new();
        let mut current = self.spare.pop().unwrap_or_default();
        for packet in work.burst.drain() {
            let done = self.pool.complete(packet, |packet| {
                if current.len() >= self.burst {
                    let next = self.spare.pop().unwrap_or_default();
                    bursts.push(core::mem::replace(&mut current, next));
                }
                current.push(packet);
            });
            if let Err(reason) = done {
                self.drop_incomplete(work.to, reason);
            }
        }
        if current.is_empty() {
            self.spare.push(current);
        } else {
            bursts.push(current);
        }
        self.spare.push(work.burst);
        let (to, port) = (work.to, work.port);
        self.work.extend(bursts.into_iter().rev().map(|burst| Work { to, port, burst }));
    }

    /// Completes pulled packets. Packets created by a pull must not need segmentation: such packets are
    /// dropped.
    #[inline]
    pub(super) fn complete_pulled(&mut self, id: ElementId, burst: &mut PacketBurst) {
        if self.pool.has_offloads() && self.info(id).completes {
            burst.filter_map(|packet| self.complete_one(id, packet));
        }
    }

    #[cold]
    fn complete_one(&mut self, id: ElementId, packet: Packet) -> Option<Packet> {
        if !packet.has_offload() {
            return Some(packet);
        }
        let (mut made, mut count) = (None, 0);
        let done = self.pool.complete(packet, |packet| (made, count) = (Some(packet), count + 1));
        let done = if count > 1 { Err(Reason::NoOffload) } else { done };
        match done {
            Ok(()) => made,
            Err(reason) => {
                self.drop_incomplete(id, reason);
                None
            }
        }
    }

    fn drop_incomplete(&mut self, id: ElementId, reason: Reason) {
        if self.incomplete == 0 {
            let name = self.declaration(id);
            let text = "a packet's checksum or segments could not be made, dropped";
            self.chatter(format_args!("{name}: {text} ({})", reason.name()));
        }
        self.incomplete += 1;
    }
}
