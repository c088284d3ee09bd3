//! `IPMirror(DST_ANNO)`: swaps source and destination of IPv4 packets: addresses, ports of TCP and UDP, and TCP's
//! sequence and acknowledgment numbers.
//!
//! Ports: one input, one output, push or pull. Packets without a complete header pass unchanged.
//!
//! Arguments:
//! - `DST_ANNO`: whether the destination annotation is set to the new destination; true by default.
//!
//! No handlers. Checksums remain valid, since they don't depend on the order of fields.
use ringway_click::prelude::*;
use ringway_wire::{Header, Ipv4, Protocol, Udp};

pub static CLASS: Class =
    Class::new("IPMirror", || Box::<IpMirror>::default()).ports("1/1").metadata(Metadata::Resolve);

#[derive(Debug, Default)]
pub struct IpMirror {
    annotate: bool,
}

impl Element for IpMirror {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        self.annotate = true;
        args.read_p("DST_ANNO", &mut self.annotate);
        args.complete()
    }

    fn action(&mut self, burst: &mut PacketBurst, _: &mut Context<'_>) {
        burst.iter_mut().for_each(|packet| self.mirror(packet));
    }
}

impl IpMirror {
    fn mirror(&self, packet: &mut Packet) {
        let Some(data) = packet.network_data_mut() else { return };
        let Some((ip, _, behind)) = Ipv4::parse_mut(data) else { return };
        core::mem::swap(&mut ip.source, &mut ip.destination);
        let tcp = ip.protocol == Protocol::TCP;
        let transport = (tcp || ip.protocol == Protocol::UDP) && !ip.is_later_fragment();
        if transport && behind.len() >= Udp::LEN {
            behind[..4].rotate_left(2);
            if let Some(numbers) = behind.get_mut(4..12).filter(|_| tcp) {
                numbers.rotate_left(4);
            }
        }
        let destination = ip.destination.to_bytes();
        if self.annotate {
            packet.notes_mut().set_dst_ip(destination);
        }
    }
}
