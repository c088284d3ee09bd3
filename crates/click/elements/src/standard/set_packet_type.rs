//! `SetPacketType(TYPE)`: sets packets' packet type annotation.
//!
//! Ports: one input, one output, push or pull.
//!
//! Arguments:
//! - `TYPE`: `HOST`, `BROADCAST`, `MULTICAST`, `OTHERHOST`, `OUTGOING`, `LOOPBACK` or `FASTROUTE`.
//!
//! No handlers.
use ringway_click::PacketType;
use ringway_click::arg::Keyword;
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("SetPacketType", || Box::<SetPacketType>::default()).ports("1/1").live();

const TYPES: [(&str, PacketType); 7] = [
    ("HOST", PacketType::Host),
    ("BROADCAST", PacketType::Broadcast),
    ("MULTICAST", PacketType::Multicast),
    ("OTHERHOST", PacketType::OtherHost),
    ("OUTGOING", PacketType::Outgoing),
    ("LOOPBACK", PacketType::Loopback),
    ("FASTROUTE", PacketType::Fastroute),
];

#[derive(Debug, Default)]
pub struct SetPacketType {
    kind: PacketType,
}

impl Element for SetPacketType {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let mut word = Keyword::default();
        args.read_mp("TYPE", &mut word);
        args.complete()?;
        let name = word.0.to_ascii_uppercase();
        let found = TYPES.iter().find(|(own, _)| *own == name);
        self.kind = found.ok_or_else(|| cx.error(format!("unrecognized packet type '{}'", word.0)))?.1;
        Ok(())
    }

    fn action(&mut self, burst: &mut PacketBurst, _: &mut Context<'_>) {
        burst.iter_mut().for_each(|packet| packet.notes_mut().packet_type = self.kind);
    }
}
