//! `StoreIPAddress(ADDR, OFFSET)`: writes an IPv4 address into packets.
//!
//! Ports: one input; one output, and optionally a push output for packets that are too short.
//!
//! Arguments:
//! - `ADDR`: the address; the destination annotation by default.
//! - `OFFSET`: offset in the packet, or `src` or `dst` of the IPv4 header, in which case the checksums of the header,
//!   TCP and UDP are updated.
//!
//! No handlers.
use crate::packet::{divert, put};
use core::net::Ipv4Addr;
use ringway_click::arg::{Arg, Scope, Word};
use ringway_click::prelude::*;
use ringway_wire::checksum::update_u32;
use ringway_wire::{Header, Ipv4, Protocol, Tcp, Udp};

pub static CLASS: Class = Class::new("StoreIPAddress", || Box::<StoreIpAddress>::default())
    .ports("1/1-2")
    .processing("a/ah")
    .metadata(Metadata::Resolve);

#[derive(Clone, Copy, Debug)]
enum AddressField {
    Data(usize),
    Source,
    Destination,
}

#[derive(Debug)]
pub struct StoreIpAddress {
    address: Option<Ipv4Addr>,
    place: AddressField,
}

impl Default for StoreIpAddress {
    fn default() -> Self {
        Self { address: None, place: AddressField::Data(0) }
    }
}

fn place(text: &str, scope: &Scope) -> Option<AddressField> {
    match text.to_ascii_lowercase().as_str() {
        "src" => Some(AddressField::Source),
        "dst" => Some(AddressField::Destination),
        _ => i32::parse(text, scope)
            .ok()
            .and_then(|offset| usize::try_from(offset).ok())
            .map(AddressField::Data),
    }
}

impl Element for StoreIpAddress {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        if args.rest().len() > 1 {
            args.read_mp("ADDR", &mut self.address);
        }
        let mut offset = Word::default();
        args.read_mp("OFFSET", &mut offset);
        args.complete()?;
        let place = place(&offset.0, args.scope());
        self.place = place.ok_or_else(|| cx.error("type mismatch: OFFSET requires integer"))?;
        Ok(())
    }

    fn action(&mut self, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        divert(burst, cx, |packet, _| self.store(packet));
    }
}

impl StoreIpAddress {
    fn store(&self, packet: &mut Packet) -> bool {
        let address = self.address.map_or(packet.notes().dst_ip(), |address| address.octets());
        match self.place {
            AddressField::Data(at) => {
                let fits = at + 4 <= packet.len();
                if fits {
                    put(packet.data_mut(), at, address);
                }
                fits
            }
            AddressField::Source | AddressField::Destination => {
                let transport = packet.network_header_len().unwrap_or(0);
                let destination = matches!(self.place, AddressField::Destination);
                let data = packet.network_data_mut();
                data.and_then(|data| set_address(data, destination, transport, address)).is_some()
            }
        }
    }
}

/// Sets an address of an IPv4 header whose transport header is at offset `transport`; updates checksums.
fn set_address(data: &mut [u8], destination: bool, transport: usize, address: [u8; 4]) -> Option<()> {
    let ip = Ipv4::of_mut(data)?;
    let field = if destination { &mut ip.destination } else { &mut ip.source };
    let (old, new) = (field.get(), u32::from_be_bytes(address));
    field.set(new);
    ip.checksum.set(update_u32(ip.checksum.get(), old, new));
    let (protocol, later) = (ip.protocol, ip.is_later_fragment());
    let segment = data.get_mut(transport..).filter(|_| !later).unwrap_or_default();
    let sum = match protocol {
        Protocol::TCP => Tcp::of_mut(segment).map(|tcp| &mut tcp.checksum),
        Protocol::UDP => Udp::of_mut(segment).map(|udp| &mut udp.checksum).filter(|sum| sum.get() != 0),
        _ => None,
    };
    if let Some(sum) = sum {
        sum.set(update_u32(sum.get(), old, new));
    }
    Some(())
}
