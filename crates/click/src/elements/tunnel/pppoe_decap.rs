//! `PPPoEDecap`: takes IPv4 packets out of PPPoE session frames (RFC 2516), without the frame's padding. The session
//! is noted in the aggregate annotation, the IPv4 header and its destination too.
//!
//! Ports: one input; one output, and optionally a push output for all other frames, unchanged.
//!
//! Handlers: `drops` (read): frames that are none or whose headers lie.
use super::pppoe::{IPV4, SessionFrame};
use crate::elements::packet::divert;
use crate::{Annotations, Class, Context, Element, Handler, HandlerError, Packet, PacketBurst};
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// Facts.
pub static CLASS: Class =
    Class::new("PPPoEDecap", || Box::<PppoeDecap>::default()).ports("1/1-2").processing("a/ah");

/// See the module.
#[derive(Debug, Default)]
pub struct PppoeDecap {
    drops: u64,
}

fn decap(packet: &mut Packet) -> bool {
    let Ok(frame) = SessionFrame::of(packet.data()) else { return false };
    if frame.protocol != IPV4 {
        return false;
    }
    frame.strip(packet);
    packet.notes_mut().set_u32(Annotations::AGGREGATE, frame.session.into());
    true
}

impl Element for PppoeDecap {
    fn action(&mut self, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        divert(burst, cx, |packet, _| {
            let good = decap(packet);
            self.drops += u64::from(!good);
            good
        });
    }

    fn handlers(&self) -> Vec<Handler> {
        [Handler::read("drops")].into()
    }

    fn read(&mut self, _: &str, _: &str, _: &mut Context<'_>) -> Result<String, HandlerError> {
        Ok(self.drops.to_string())
    }
}
