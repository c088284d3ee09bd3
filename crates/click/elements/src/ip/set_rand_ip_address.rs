//! `SetRandIPAddress(PREFIX, LIMIT)`: sets the destination annotation to a random address of a prefix.
//!
//! Ports: one input, one output, push or pull.
//!
//! Arguments:
//! - `PREFIX`: the prefix.
//! - `LIMIT`: maximum number of different addresses; unlimited if negative, as by default.
//!
//! No handlers.
use super::bare_prefix;
use core::net::Ipv4Addr;
use ringway_click::arg::{MANDATORY_POSITIONAL, Prefix};
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("SetRandIPAddress", || Box::<SetRandIpAddress>::default()).ports("1/1");

/// Maximum number of addresses. Attack: a configuration that requests more memory than available.
const MOST: i32 = 1 << 20;

#[derive(Debug, Default)]
pub struct SetRandIpAddress {
    address: u32,
    mask: u32,
    chosen: Vec<u32>,
}

impl Element for SetRandIpAddress {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let mut prefix = Prefix { address: Ipv4Addr::UNSPECIFIED, mask: Ipv4Addr::UNSPECIFIED };
        let mut limit = -1i32;
        args.read_with("PREFIX", MANDATORY_POSITIONAL, &mut prefix, bare_prefix);
        args.read_p("LIMIT", &mut limit);
        args.complete()?;
        (self.address, self.mask) = (prefix.address.to_bits(), prefix.mask.to_bits());
        if limit > MOST {
            return Err(cx.error(alloc::format!("LIMIT: out of range, bound {MOST}")));
        }
        self.chosen = (0..limit.max(0)).map(|_| self.pick(cx)).collect();
        Ok(())
    }

    fn action(&mut self, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        for packet in burst.iter_mut() {
            let address = match self.chosen.len() {
                0 => self.pick(cx),
                count => self.chosen[cx.random() as usize % count],
            };
            packet.notes_mut().set_dst_ip(address.to_be_bytes());
        }
    }
}

impl SetRandIpAddress {
    fn pick(&self, cx: &mut Context<'_>) -> u32 {
        cx.random() & !self.mask | self.address & self.mask
    }
}
