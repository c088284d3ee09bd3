//! `IPOut(READONLY, CHECKSUM)`: ends a path that IPIn began: sets the total length and the checksum of IPv4 headers
//! (FastClick).
//!
//! Ports: one input, one output, push or pull. Packets without a marked IPv4 header pass unchanged; packets of more
//! than 65535 bytes are dropped.
//!
//! Arguments:
//! - `READONLY`: whether packets pass unchanged; false by default.
//! - `CHECKSUM`: whether the checksum is set; true by default.
//!
//! Handlers: `drops` (read).
use crate::packet::retain_counting;
use ringway_click::prelude::*;
use ringway_wire::Ipv4;

pub static CLASS: Class =
    Class::new("IPOut", || Box::<IpOut>::default()).ports("1/1").metadata(Metadata::Resolve);

#[derive(Debug, Default)]
pub struct IpOut {
    readonly: bool,
    checksum: bool,
    drops: u64,
}

/// Sets length and checksum. Returns false if the packet is too long.
fn finish(packet: &mut Packet, checksum: bool) -> bool {
    let Some(data) = packet.network_data_mut() else { return true };
    let length = data.len();
    let Some((ip, options, _)) = Ipv4::parse_mut(data).filter(|(ip, ..)| ip.version() == 4) else {
        return true;
    };
    let Ok(length) = u16::try_from(length) else { return false };
    ip.total_length = length.into();
    if checksum {
        ip.fill_checksum(options);
    }
    true
}

impl Element for IpOut {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        self.checksum = true;
        args.read_p("READONLY", &mut self.readonly);
        args.read("CHECKSUM", &mut self.checksum);
        args.complete()
    }

    fn action(&mut self, burst: &mut PacketBurst, _: &mut Context<'_>) {
        if !self.readonly {
            let checksum = self.checksum;
            retain_counting(burst, &mut self.drops, |packet| finish(packet, checksum));
        }
    }

    fn handlers(&self) -> Vec<Handler> {
        [Handler::counter("drops", |e: &mut Self| &mut e.drops)].into()
    }
}
