//! `RecordTimestamp(N, OFFSET)`: records the time of each packet, for a TimestampDiff.
//!
//! Ports: one input, one output, push or pull.
//!
//! Arguments:
//! - `N`: number of recorded times; 65536 by default. Older ones are overwritten.
//! - `OFFSET`: offset of the number written by a NumberPacket; by default packets are counted here.
//!
//! Handlers: `count` (read): number of recorded times.
use crate::packet::bounded;
use ringway_click::arg::POSITIONAL;
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("RecordTimestamp", || Box::<RecordTimestamp>::default()).ports("1/1");

/// Maximum number of times stored. Attack: a configuration that exhausts memory.
const MOST: i128 = 1 << 24;

/// The number written by a NumberPacket.
pub(super) fn number(packet: &Packet, offset: u32) -> Option<u64> {
    let place = packet.data().get(offset as usize..)?.first_chunk()?;
    Some(u64::from_le_bytes(*place))
}

#[derive(Debug, Default)]
pub struct RecordTimestamp {
    /// Numbers and times; 0 in unused entries.
    times: Vec<(u64, u64)>,
    offset: Option<u32>,
    count: u64,
}

impl RecordTimestamp {
    /// The time when the packet with this number passed, if it is still stored.
    pub(super) fn time(&self, number: u64) -> Option<u64> {
        let (own, time) = *self.times.get((number % self.times.len() as u64) as usize)?;
        (own == number && time > 0).then_some(time)
    }
}

impl Element for RecordTimestamp {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        let (mut size, mut offset) = (65_536u32, -1i32);
        args.read_with("N", POSITIONAL, &mut size, bounded(1, MOST));
        args.read("OFFSET", &mut offset);
        self.offset = u32::try_from(offset).ok();
        args.complete()?;
        self.times = vec![(0, 0); size as usize];
        Ok(())
    }

    fn action(&mut self, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        let (now, size) = (cx.steady(), self.times.len() as u64);
        for packet in burst.iter() {
            let found = self.offset.map_or(Some(self.count), |offset| number(packet, offset));
            let Some(number) = found else { continue };
            if let Some(place) = self.times.get_mut((number % size) as usize) {
                *place = (number, now);
                self.count += 1;
            }
        }
    }

    fn handlers(&self) -> Vec<Handler> {
        [Handler::read("count", |e: &Self| e.count)].into()
    }
}
