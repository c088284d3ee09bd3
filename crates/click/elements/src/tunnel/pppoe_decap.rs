//! `PPPoEDecap`: decapsulates IPv4 and IPv6 packets of PPPoE session frames (RFC 2516), without the frame's padding.
//! The session is stored in the aggregate annotation; the IP header is marked and the destination annotation set.
//!
//! Ports: one input; one output, and optionally a push output for all other frames, unchanged.
//!
//! Handlers: `drops` (read): invalid frames.
use super::decap::{Decap, Tunnel};
use super::pppoe::SessionFrame;
use ringway_click::prelude::*;
use ringway_wire::tunnel::Pppoe;

pub static CLASS: Class =
    Class::new("PPPoEDecap", || Box::<Decap<PppoeDecap>>::default()).ports("1/1-2").processing("a/ah");

#[derive(Debug, Default)]
pub struct PppoeDecap;

impl Tunnel for PppoeDecap {
    fn strip(&self, packet: &mut Packet) -> bool {
        let Ok(frame) = SessionFrame::of(packet.data()) else { return false };
        if !matches!(frame.protocol, Pppoe::IPV4 | Pppoe::IPV6) {
            return false;
        }
        frame.strip(packet);
        packet.notes_mut().set_u32(Annotations::AGGREGATE, frame.session.into());
        true
    }
}
