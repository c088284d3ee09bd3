//! Mirrors: ports that get copies of other ports' frames.
//!
//! `fabric/mirrors.rs` makes the rules of each mirrored port, `forward/mirror.rs` copies frames by them.

use crate::capture::CapturePoint;
use crate::policy::{PortPolicy, VlanSet};
use crate::topology::{RxSlot, Steer};
use ringway_frame::Reason;
use ringway_switch::PortId;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// A port that gets copies.
pub struct MirrorTarget {
    /// The port.
    pub port: PortId,
    /// Its RX queues, at least one.
    pub slots: Vec<Arc<RxSlot>>,
    /// The queue that each flow last came from; only with several queues.
    pub steer: Option<Arc<Steer>>,
    /// The limits of frames to it.
    pub policy: Option<Arc<PortPolicy>>,
    /// The captures of its frames.
    pub captures: Option<Arc<CapturePoint>>,
    /// The VLANs whose frames it gets, if not all.
    pub vlans: Option<VlanSet>,
    /// Most bytes of a frame that are copied.
    pub snap: u32,
    /// The VLAN whose tag each copy gets.
    pub tag: Option<u16>,
}

impl MirrorTarget {
    /// The queue for a flow, whose hash `hash` computes.
    #[inline]
    pub fn slot(&self, hash: impl FnOnce() -> u32) -> Option<&Arc<RxSlot>> {
        self.slots.get(Steer::queue(self.steer.as_ref(), self.slots.len() as u32, hash) as usize)
    }

    /// Whether it gets a frame whose VLAN `vlan` finds, unless its port does not carry it.
    #[inline]
    pub fn wants(&self, vlan: impl FnOnce() -> Option<u16>) -> bool {
        self.vlans.as_ref().is_none_or(|vlans| vlan().is_some_and(|vlan| vlans.has(vlan)))
    }
}

/// What is copied of a mirrored port.
#[derive(Clone)]
pub struct MirrorRule {
    /// Whether frames that its peer sends are.
    pub from: bool,
    /// Whether frames that its peer receives are.
    pub to: bool,
    /// Who gets the copies.
    pub target: Arc<MirrorTarget>,
}

/// Copies that were dropped while another worker had the queue locked, and with it the queue's counters. Who locks the
/// queue next counts them there.
#[derive(Debug, Default)]
pub struct Missed {
    /// The queue was locked for too long.
    pub busy: AtomicU64,
    /// A worker had too many copies in hand.
    pub full: AtomicU64,
    /// The receiver was not there.
    pub down: AtomicU64,
    /// Whether the receiver was not there the last time: frames are counted then, and not copied.
    pub is_down: AtomicBool,
}

impl Missed {
    /// Counts them in the counters of the queue. Called with the queue locked.
    pub fn settle(slot: &RxSlot) {
        let Missed { busy, full, down, .. } = &slot.missed;
        for (missed, reason) in [(busy, Reason::Busy), (full, Reason::Full), (down, Reason::Down)] {
            if missed.load(Relaxed) > 0 {
                slot.counters.drop_rx(reason, missed.swap(0, Relaxed) as usize);
            }
        }
    }
}
