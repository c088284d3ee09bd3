//! `CheckNumberPacket(OFFSET, COUNT, NET_ORDER)`: counts the occurrences of each number written by a NumberPacket
//! (FastClick).
//!
//! Ports: one push input; one push output, and optionally a push output for packets with a number of at least COUNT.
//!
//! Arguments:
//! - `OFFSET`: offset of the number; 40 by default.
//! - `COUNT`: numbers below COUNT are counted; 0 by default, at most 16777216.
//! - `NET_ORDER`: whether the number is big-endian; false by default.
//!
//! Handlers: `max`, `min`: the most and least frequent number, and its count; `dump`: one line for each number
//! (read); `count` (read, write): COUNT.
use super::record_timestamp::number;
use crate::packet::{bounded, divert};
use core::cmp::Reverse;
use ringway_click::arg::POSITIONAL;
use ringway_click::prelude::*;

pub static CLASS: Class =
    Class::new("CheckNumberPacket", || Box::<CheckNumberPacket>::default()).ports("1/1-2").processing("h");

/// Maximum COUNT. Attack: a configuration that exhausts memory.
const MOST: i128 = 1 << 24;

#[derive(Debug, Default)]
pub struct CheckNumberPacket {
    offset: u32,
    big_endian: bool,
    /// The count of each number.
    seen: Vec<u32>,
}

impl CheckNumberPacket {
    /// A number and its count, as text.
    fn text(found: Option<(usize, &u32)>) -> String {
        found.map_or_else(|| "[-1] : -1".into(), |(number, times)| format!("[{number}] : {times}"))
    }
}

impl Element for CheckNumberPacket {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        let mut count = 0usize;
        self.offset = 40;
        args.read_p("OFFSET", &mut self.offset);
        args.read_with("COUNT", POSITIONAL, &mut count, bounded(0, MOST));
        args.read("NET_ORDER", &mut self.big_endian);
        args.complete()?;
        self.seen = alloc::vec![0; count];
        Ok(())
    }

    fn push(&mut self, _: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        divert(burst, cx, |packet, cx| {
            let Some(number) = number(packet, self.offset) else { return false };
            let number = if self.big_endian { number.swap_bytes() } else { number };
            let Some(seen) = usize::try_from(number).ok().and_then(|number| self.seen.get_mut(number)) else {
                let (name, count) = (cx.declaration(), self.seen.len());
                cx.chatter(format_args!("{name}: {number} out of scope (count is {count}) !"));
                return false;
            };
            *seen = seen.saturating_add(1);
            true
        });
    }

    fn handlers(&self) -> Vec<Handler> {
        [
            Handler::read("max", |e: &Self| {
                Self::text(e.seen.iter().enumerate().max_by_key(|(number, seen)| (*seen, Reverse(*number))))
            }),
            Handler::read("min", |e: &Self| {
                Self::text(e.seen.iter().enumerate().min_by_key(|(_, seen)| *seen))
            }),
            Handler::read("count", |e: &Self| e.seen.len()).writes(|e: &mut Self, value, cx| {
                e.seen.resize(cx.parse_with(value, bounded(0, MOST))?, 0);
                Ok(())
            }),
            Handler::read("dump", |e: &Self| {
                e.seen
                    .iter()
                    .enumerate()
                    .map(|(number, seen)| format!("{number}: {seen}\n"))
                    .collect::<String>()
            }),
        ]
        .into()
    }
}
