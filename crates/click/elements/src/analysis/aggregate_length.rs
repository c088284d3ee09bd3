//! `AggregateLength(IP)`: sets packets' aggregate annotation to their length, including bytes that were not captured.
//!
//! Ports: one input, one output, push or pull; a second output, push, gets packets without a network header if IP is
//! true.
//!
//! Arguments:
//! - `IP`: measures from the network header on; false by default.
use ringway_click::prelude::*;

pub static CLASS: Class =
    Class::new("AggregateLength", || Box::<AggregateLength>::default()).ports("1/1-2").processing("a/ah");

#[derive(Debug, Default)]
pub struct AggregateLength {
    ip: bool,
}

impl Element for AggregateLength {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        args.read("IP", &mut self.ip);
        args.complete()
    }

    fn action(&mut self, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        burst.filter_map(|mut packet| {
            let length = match self.ip {
                true => packet.network_data().map(<[u8]>::len),
                false => Some(packet.len()),
            };
            let Some(length) = length else {
                cx.push(1, packet);
                return None;
            };
            let notes = packet.notes_mut();
            let extra = notes.u32(Annotations::EXTRA_LENGTH);
            notes.set_u32(Annotations::AGGREGATE, extra.wrapping_add(length as u32));
            Some(packet)
        });
    }
}
