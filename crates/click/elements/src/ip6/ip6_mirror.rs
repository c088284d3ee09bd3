//! `IP6Mirror`: swaps source and destination of IPv6 packets: addresses, and ports of TCP and UDP.
//!
//! Ports: one input, one output, push or pull. Packets without a complete header pass unchanged.
//!
//! No arguments, no handlers. Checksums stay valid, since they don't depend on the order.
use ringway_click::prelude::*;
use ringway_wire::{Header, Ipv6, Protocol};

pub static CLASS: Class =
    Class::new("IP6Mirror", || Box::<Ip6Mirror>::default()).ports("1/1").metadata(Metadata::Resolve);

#[derive(Debug, Default)]
pub struct Ip6Mirror;

impl Element for Ip6Mirror {
    fn action(&mut self, burst: &mut PacketBurst, _: &mut Context<'_>) {
        for packet in burst.iter_mut() {
            let Some((ip, behind)) = packet.network_data_mut().and_then(Ipv6::split_mut) else { continue };
            core::mem::swap(&mut ip.source, &mut ip.destination);
            if matches!(ip.next_header, Protocol::TCP | Protocol::UDP)
                && let Some(ports) = behind.first_chunk_mut::<4>()
            {
                ports.rotate_left(2);
            }
        }
    }
}
