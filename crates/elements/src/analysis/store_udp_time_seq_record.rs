//! `StoreUDPTimeSeqRecord(OFFSET, DELTA)`: writes a number and the time into UDP datagrams, or how long
//! they took since.
//!
//! Ports: one input, one output, push or pull. What is no UDP over IPv4 or IPv6 with 20 bytes of payload
//! is dropped.
//!
//! Arguments:
//! - `OFFSET`: where the IP header begins; 0 by default.
//! - `DELTA`: whether the time since is written, instead of the number and the time; false by default.
//!
//! The payload begins with the number, seconds and nanoseconds, seconds and nanoseconds of the difference:
//! 4 bytes each, in network order. UDP's checksum is computed anew unless there is none. Handlers:
//! `count`, `drops` (read).
use crate::ip::transport::Transport;
use crate::packet::{put, retain_counting, u16_at, u32_at};
use alloc::boxed::Box;
use alloc::vec::Vec;
use ringway_click::arg::Args;
use ringway_click::{Class, Context, Element, Failed, Handler, Metadata, PacketBurst, SECOND};
use ringway_wire::checksum::Sum;
use ringway_wire::{ip::Protocol, ipv6};

/// Facts.
pub static CLASS: Class = Class::new("StoreUDPTimeSeqRecord", || Box::<StoreUdpTimeSeqRecord>::default())
    .ports("1/1")
    .metadata(Metadata::Resolve);

/// Bytes of UDP's header, and of the record behind it.
const HEADER: usize = 8;
const RECORD: usize = 20;

/// See the module.
#[derive(Debug, Default)]
pub struct StoreUdpTimeSeqRecord {
    offset: u32,
    delta: bool,
    count: u32,
    drops: u64,
}

/// The datagram in a packet that begins with an IP header, and the sum of its pseudo header.
fn datagram(data: &mut [u8]) -> Option<(&mut [u8], Sum)> {
    if data.first()? >> 4 == 4 {
        let transport = Transport::of(data).filter(|t| t.protocol == Protocol::UDP.0 && !t.later)?;
        return Some((transport.slice_mut(data)?, transport.pseudo(transport.length)));
    }
    let (packet, _) = ipv6::Packet::new_prefix(data).ok()?;
    let (source, destination, length) =
        (packet.source(), packet.destination(), usize::from(packet.payload_len()));
    let is_udp = data.get(6) == Some(&Protocol::UDP.0);
    let datagram = data.get_mut(ipv6::HEADER_LEN..)?.get_mut(..length).filter(|_| is_udp)?;
    Some((datagram, Sum::pseudo_v6(source, destination, Protocol::UDP.0, length as u32)))
}

impl StoreUdpTimeSeqRecord {
    fn store(&mut self, data: &mut [u8], now: u64) -> Option<()> {
        let (datagram, mut sum) = datagram(data.get_mut(self.offset as usize..)?)?;
        let record = datagram.get_mut(HEADER..)?.get_mut(..RECORD)?;
        let time = |nanoseconds: u64| {
            [(nanoseconds / SECOND) as u32, (nanoseconds % SECOND) as u32].map(u32::to_be_bytes)
        };
        if self.delta {
            let began = u64::from(u32_at(record, 4)) * SECOND + u64::from(u32_at(record, 8));
            let [seconds, rest] = time(now.saturating_sub(began));
            put(record, 12, seconds);
            put(record, 16, rest);
        } else {
            let [seconds, rest] = time(now);
            put(record, 0, self.count.to_be_bytes());
            put(record, 4, seconds);
            put(record, 8, rest);
            put(record, 12, [0; 8]);
        }
        self.count = self.count.wrapping_add(1);
        if u16_at(datagram, 6) != 0 {
            put(datagram, 6, [0, 0]);
            sum.add(datagram);
            put(datagram, 6, sum.finish_nonzero().to_be_bytes());
        }
        Some(())
    }
}

impl Element for StoreUdpTimeSeqRecord {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        args.read("OFFSET", &mut self.offset);
        args.read("DELTA", &mut self.delta);
        args.complete()
    }

    fn action(&mut self, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        let mut drops = 0;
        retain_counting(burst, &mut drops, |packet| {
            self.store(packet.data_mut(), cx.packet_time()).is_some()
        });
        self.drops += drops;
    }

    fn handlers(&self) -> Vec<Handler> {
        [Handler::read("count", |e: &Self| e.count), Handler::read("drops", |e: &Self| e.drops)].into()
    }
}
