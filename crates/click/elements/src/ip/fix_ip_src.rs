//! `FixIPSrc(IPADDR)`: sets the source address of IPv4 packets that are marked for it.
//!
//! Ports: one input, one output, push or pull.
//!
//! Arguments:
//! - `IPADDR`: this host's address.
//!
//! No handlers. The mark is the FIX_IP_SRC annotation, which ICMPError sets; it is cleared.
use core::net::Ipv4Addr;
use ringway_click::prelude::*;
use ringway_wire::Ipv4;

pub static CLASS: Class = Class::new("FixIPSrc", || Box::<FixIpSrc>::default()).ports("1/1");

#[derive(Debug, Default)]
pub struct FixIpSrc {
    address: [u8; 4],
}

impl Element for FixIpSrc {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        let mut address = Ipv4Addr::UNSPECIFIED;
        args.read_mp("IPADDR", &mut address);
        self.address = address.octets();
        args.complete()
    }

    fn action(&mut self, burst: &mut PacketBurst, _: &mut Context<'_>) {
        for packet in burst.iter_mut().filter(|packet| packet.notes().u8(Annotations::FIX_IP_SRC) != 0) {
            if let Some((header, options, _)) = packet.network_data_mut().and_then(Ipv4::parse_mut) {
                header.source = self.address.into();
                header.fill_checksum(options);
                packet.notes_mut().set_u8(Annotations::FIX_IP_SRC, 0);
            }
        }
    }
}
