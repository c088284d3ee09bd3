//! `Tee(N)`: sends a copy of each packet to every output.
//!
//! Ports: one push input, any number of push outputs.
//!
//! Arguments:
//! - `N`: required number of outputs.
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("Tee", || Box::new(Tee)).ports("1/1-").processing("h");

#[derive(Debug)]
pub struct Tee;

/// Reads `N`, the required number of outputs.
pub(super) fn read_outputs(args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
    let mut outputs = cx.noutputs() as u32;
    args.read_p("N", &mut outputs);
    args.complete()?;
    if outputs as usize != cx.noutputs() {
        return Err(cx.error(alloc::format!("{outputs} outputs implies {outputs} arms")));
    }
    Ok(())
}

impl Element for Tee {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        read_outputs(args, cx)
    }

    fn push(&mut self, _: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        let last = cx.noutputs() - 1;
        for packet in burst.drain() {
            for port in 0..last {
                cx.push(port, packet.clone());
            }
            cx.push(last, packet);
        }
    }
}
