//! `GTPEncap(TEID)`: prepends a GTP-U header (3GPP TS 29.281; FastClick). UDPIPEncap with port 2152 adds the UDP and
//! IP headers.
//!
//! Ports: one input, one output, push or pull. Packets of more than 65535 bytes are dropped.
//!
//! Arguments:
//! - `TEID`: the tunnel endpoint identifier; if 0, the aggregate annotation.
use ringway_click::prelude::*;
use ringway_wire::tunnel::Gtp;

pub static CLASS: Class =
    Class::new("GTPEncap", || Box::<GtpEncap>::default()).ports("1/1").metadata(Metadata::Resolve);

#[derive(Debug, Default)]
pub struct GtpEncap {
    teid: u32,
}

impl Element for GtpEncap {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        args.read_mp("TEID", &mut self.teid);
        args.complete()
    }

    fn action(&mut self, burst: &mut PacketBurst, _: &mut Context<'_>) {
        burst.retain(|packet| {
            let Ok(length) = u16::try_from(packet.len()) else { return false };
            let noted = packet.notes().u32(Annotations::AGGREGATE);
            packet.push_header(&Gtp {
                flags: Gtp::VERSION_1,
                kind: Gtp::G_PDU,
                length: length.into(),
                teid: if self.teid == 0 { noted } else { self.teid }.into(),
            })
        });
    }
}
