//! `IPOutputCombo(COLOR, IPADDR, MTU)`: a router's output processing in one element: drops broadcasts,
//! `PaintTee(COLOR)`, `IPGWOptions(IPADDR)`, `FixIPSrc(IPADDR)`, `DecIPTTL`, and a check of the length for an
//! IPFragmenter.
//!
//! Ports: one push input; five push outputs: valid packets, copies of packets that leave through the interface they
//! came from, invalid options, expired time to live, longer than MTU.
//!
//! Arguments:
//! - `COLOR`: the paint of packets that came from this interface.
//! - `IPADDR`: this host's address on this interface.
//! - `MTU`: maximum length of a packet in bytes.
//!
//! Handlers: `drops` (read): broadcasts, and packets without a complete header.
use super::ip_gw_options::Own;
use core::net::Ipv4Addr;
use ringway_click::PacketType;
use ringway_click::prelude::*;
use ringway_wire::Ipv4;

pub static CLASS: Class =
    Class::new("IPOutputCombo", || Box::<IpOutputCombo>::default()).ports("1/5").processing("h");

#[derive(Debug, Default)]
pub struct IpOutputCombo {
    color: u8,
    own: Own,
    mtu: u32,
    drops: u64,
}

impl Element for IpOutputCombo {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        let mut address = Ipv4Addr::UNSPECIFIED;
        args.read_mp("COLOR", &mut self.color);
        args.read_mp("IPADDR", &mut address);
        args.read_mp("MTU", &mut self.mtu);
        (self.own.preferred, self.own.all) = (address.octets(), [address].into());
        args.complete()
    }

    fn push(&mut self, _: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        burst.filter_map(|mut packet| match self.output(&mut packet, cx) {
            Some(0) => Some(packet),
            Some(port) => {
                cx.push(port, packet);
                None
            }
            None => {
                self.drops += 1;
                None
            }
        });
    }

    fn handlers(&self) -> Vec<Handler> {
        [Handler::counter("drops", |e: &mut Self| &mut e.drops)].into()
    }
}

impl IpOutputCombo {
    /// The output for a packet; `None` if the packet is dropped.
    #[inline]
    fn output(&self, packet: &mut Packet, cx: &mut Context<'_>) -> Option<usize> {
        if matches!(packet.notes().packet_type, PacketType::Broadcast | PacketType::Multicast) {
            return None;
        }
        if packet.notes().paint() == self.color {
            cx.push(1, packet.clone());
        }
        if !self.own.handle(packet, cx) {
            return Some(2);
        }
        let fix = packet.notes().u8(Annotations::FIX_IP_SRC) != 0;
        let (header, options, _) = Ipv4::parse_mut(packet.network_data_mut()?)?;
        if fix {
            header.source = self.own.preferred.into();
            header.fill_checksum(options);
        }
        if header.ttl <= 1 {
            return Some(3);
        }
        header.decrement_ttl();
        if fix {
            packet.notes_mut().set_u8(Annotations::FIX_IP_SRC, 0);
        }
        Some(if packet.len() > self.mtu as usize { 4 } else { 0 })
    }
}
