//! `StoreIPAddress(ADDR, OFFSET)`: writes an IPv4 address into packets.
//!
//! Ports: one input; one output, and optionally a push output for packets that are too short.
//!
//! Arguments:
//! - `ADDR`: the address; the noted destination by default.
//! - `OFFSET`: where in the packet, or `src` or `dst` of the IPv4 header. There the checksums of the header, TCP and
//!   UDP are kept right.
//!
//! No handlers.
use crate::packet::{divert, is_later_fragment, put, u16_at, u32_at};
use alloc::boxed::Box;
use core::net::Ipv4Addr;
use ringway_click::arg::{Arg, ArgError, Args, MANDATORY_POSITIONAL, Scope};
use ringway_click::{Class, Context, Element, Failed, Metadata, Packet, PacketBurst};
use ringway_wire::checksum;

/// Facts.
pub static CLASS: Class = Class::new("StoreIPAddress", || Box::<StoreIpAddress>::default())
    .ports("1/1-2")
    .processing("a/ah")
    .metadata(Metadata::Resolve);

#[derive(Clone, Copy, Debug)]
enum Place {
    Data(usize),
    Header(usize),
}

/// Writes addresses.
#[derive(Debug)]
pub struct StoreIpAddress {
    address: Option<Ipv4Addr>,
    place: Place,
}

impl Default for StoreIpAddress {
    fn default() -> Self {
        Self { address: None, place: Place::Data(0) }
    }
}

fn place(text: &str, scope: &Scope) -> Result<Place, ArgError> {
    match text.to_ascii_lowercase().as_str() {
        "src" => Ok(Place::Header(12)),
        "dst" => Ok(Place::Header(16)),
        _ => u32::parse(text, scope).map(|offset| Place::Data(offset as usize)),
    }
}

impl Element for StoreIpAddress {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        if args.rest().len() > 1 {
            args.read_mp("ADDR", &mut self.address);
        }
        args.read_with("OFFSET", MANDATORY_POSITIONAL, &mut self.place, place);
        args.complete()
    }

    fn action(&mut self, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        divert(burst, cx, |packet, _| self.store(packet));
    }
}

impl StoreIpAddress {
    fn store(&self, packet: &mut Packet) -> bool {
        let address = self.address.map_or(packet.notes().dst_ip(), |address| address.octets());
        match self.place {
            Place::Data(at) => {
                let fits = at + 4 <= packet.len();
                if fits {
                    put(packet.data_mut(), at, address);
                }
                fits
            }
            Place::Header(at) => {
                let transport = packet.network_header_len().unwrap_or(0);
                match packet.network_data_mut() {
                    Some(data) if data.len() >= 20 => set_address(data, at, transport, address),
                    _ => return false,
                }
                true
            }
        }
    }
}

/// Sets the address at `at` of an IPv4 header whose transport header begins at `transport`; mends checksums.
fn set_address(data: &mut [u8], at: usize, transport: usize, address: [u8; 4]) {
    let (old, new) = (u32_at(data, at), u32::from_be_bytes(address));
    put(data, at, address);
    let mut mend = |sum: usize| {
        let updated = checksum::update_u32(u16_at(data, sum), old, new);
        put(data, sum, updated.to_be_bytes());
    };
    mend(10);
    let (protocol, later) = (data[9], is_later_fragment(data));
    let behind = data.len().saturating_sub(transport);
    let sum = match protocol {
        6 if behind >= 20 => transport + 16,
        17 if behind >= 8 && u16_at(data, transport + 6) != 0 => transport + 6,
        _ => return,
    };
    if !later {
        let updated = checksum::update_u32(u16_at(data, sum), old, new);
        put(data, sum, updated.to_be_bytes());
    }
}
