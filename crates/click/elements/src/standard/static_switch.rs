//! `StaticSwitch(OUTPUT)`: sends packets to one fixed output.
//!
//! Ports: one push input, any number of push outputs.
//!
//! Arguments:
//! - `OUTPUT`: the output; negative to drop packets.
//!
//! Handlers: `drops` (read).
use super::switch::Switch;
use ringway_click::prelude::*;

pub static CLASS: Class =
    Class::new("StaticSwitch", || Box::<StaticSwitch>::default()).ports("1/-").processing("h");

#[derive(Debug, Default)]
pub struct StaticSwitch {
    switch: Switch,
}

impl Element for StaticSwitch {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        args.read_mp("OUTPUT", &mut self.switch.output);
        self.switch.check(args, cx)
    }

    fn push(&mut self, port: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        self.switch.push(port, burst, cx);
    }

    fn handlers(&self) -> Vec<Handler> {
        [Handler::counter("drops", |e: &mut Self| &mut e.switch.drops)].into()
    }
}
