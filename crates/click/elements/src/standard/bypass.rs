//! `Bypass(ACTIVE, INLINE)`: routes packets through output 1 (pulls through input 1) while it is active.
//!
//! Ports: one or two inputs and outputs, push or pull. Push: packets that return to input 1 go to output 0. Pull:
//! pulls from output 1 are served from input 0.
//!
//! Arguments:
//! - `ACTIVE`: false by default.
//! - `INLINE`: accepted without effect.
//!
//! Handlers: `active` (read, write).
use ringway_click::prelude::*;

pub static CLASS: Class =
    Class::new("Bypass", || Box::<Bypass>::default()).ports("1-2/1-2").flow("xy/[xy]x").relay(1, 0);

#[derive(Debug, Default)]
pub struct Bypass {
    active: bool,
}

impl Element for Bypass {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        let mut inline = false;
        args.read_p("ACTIVE", &mut self.active);
        args.read("INLINE", &mut inline);
        args.complete()
    }

    fn push(&mut self, port: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        if port == 0 && self.active {
            cx.push_burst(1, burst);
        }
    }

    fn pull(&mut self, port: usize, max: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        let input = usize::from(port == 0 && self.active);
        cx.pull(input, max, burst);
    }

    fn handlers(&self) -> Vec<Handler> {
        [Handler::field("active", |e: &mut Self| &mut e.active).checkbox().error("syntax error")].into()
    }
}
