//! `StoreUDPTimeSeqRecord(OFFSET, DELTA)`: writes a sequence number and the time into UDP datagrams, or the time that
//! passed since then.
//!
//! Ports: one input, one output, push or pull. Packets other than UDP over IPv4 or IPv6 with at least 20 bytes of
//! payload are dropped.
//!
//! Arguments:
//! - `OFFSET`: offset of the IP header; 0 by default.
//! - `DELTA`: whether the elapsed time is written, instead of the number and the time; false by default.
//!
//! The payload begins with the number, seconds and nanoseconds of the time, seconds and nanoseconds of the difference:
//! 4 bytes each, in network byte order. The UDP checksum is recomputed unless there is none. Handlers: `count`,
//! `drops` (read); `reset` (write), which begins with number 0 again.
use crate::ip::transport::Transport;
use crate::packet::retain_counting;
use ringway_click::prelude::*;
use ringway_wire::{Header, Ipv6, Protocol, Sum, U32, Udp, ipv6};

pub static CLASS: Class = Class::new("StoreUDPTimeSeqRecord", || Box::<StoreUdpTimeSeqRecord>::default())
    .ports("1/1")
    .metadata(Metadata::Resolve);

/// Number, time, and the time since an earlier timestamp; times in seconds and nanoseconds.
type Record = [U32; 5];

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
        let transport = Transport::of(data).filter(|t| t.protocol == Protocol::UDP && !t.later)?;
        return Some((transport.slice_mut(data)?, transport.pseudo(transport.length)));
    }
    let ip = *ipv6::Packet::parse(data)?.header;
    let length = usize::from(ip.payload_length.get());
    let is_udp = ip.next_header == Protocol::UDP;
    let datagram = data.get_mut(Ipv6::LEN..)?.get_mut(..length).filter(|_| is_udp)?;
    Some((datagram, ip.pseudo_header(Protocol::UDP, length as u32)))
}

impl StoreUdpTimeSeqRecord {
    fn store(&mut self, data: &mut [u8], now: u64) -> Option<()> {
        let (datagram, sum) = datagram(data.get_mut(self.offset as usize..)?)?;
        let (udp, behind) = Udp::split_mut(datagram)?;
        let summed = udp.checksum != 0;
        let record = Record::of_mut(behind)?;
        let time =
            |nanoseconds: u64| [(nanoseconds / SECOND) as u32, (nanoseconds % SECOND) as u32].map(U32::new);
        if self.delta {
            let [_, seconds, rest, passed @ ..] = record;
            let began = u64::from(seconds.get()) * SECOND + u64::from(rest.get());
            *passed = time(now.saturating_sub(began));
        } else {
            let [seconds, rest] = time(now);
            *record = [self.count.into(), seconds, rest, U32::ZERO, U32::ZERO];
        }
        self.count = self.count.wrapping_add(1);
        if summed {
            Udp::fill_checksum(datagram, sum)?;
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
        [
            Handler::read("count", |e: &Self| e.count),
            Handler::counter("drops", |e: &mut Self| &mut e.drops),
            Handler::button("reset", |e: &mut Self, _| e.count = 0),
        ]
        .into()
    }
}
