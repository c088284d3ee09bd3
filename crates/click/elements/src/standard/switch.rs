//! `Switch(OUTPUT)`: sends packets to one output, which a handler selects.
//!
//! Ports: one push input, any number of push outputs.
//!
//! Arguments:
//! - `OUTPUT`: the output; 0 by default, negative to drop packets.
//!
//! Handlers: `switch` (read, write), `config` (read): the output; `drops` (read). LLRPCs: 5 reads it, 6 writes it.
use ringway_click::prelude::*;

pub static CLASS: Class =
    Class::new("Switch", || Box::<Switch>::default()).ports("1/-").processing("h").live();

/// Click's LLRPC numbers: one returns an `int` and is safe, one takes an `int`.
const GET_SWITCH: u32 = 0x4004_c005;
const SET_SWITCH: u32 = 0x8004_4006;

#[derive(Debug, Default)]
pub struct Switch {
    pub(super) output: i32,
    pub(super) drops: u64,
}

impl Switch {
    /// Finishes parsing the arguments.
    pub(super) fn check(&self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        args.complete()?;
        match usize::try_from(self.output) {
            Ok(output) if output >= cx.noutputs() => {
                let text = alloc::format!("output must be < {}", cx.noutputs());
                Err(cx.error(text))
            }
            _ => Ok(()),
        }
    }
}

/// The port written to a handler, or -1 (no port) if it does not exist.
pub(super) fn existing(port: i32, ports: usize) -> i32 {
    if usize::try_from(port).is_ok_and(|port| port < ports) { port } else { -1 }
}

impl Element for Switch {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        args.read_p("OUTPUT", &mut self.output);
        self.check(args, cx)
    }

    fn push(&mut self, _: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        match usize::try_from(self.output) {
            Ok(output) => cx.push_burst(output, burst),
            Err(_) => {
                self.drops += burst.len() as u64;
                burst.clear();
            }
        }
    }

    fn handlers(&self) -> Vec<Handler> {
        [
            Handler::read("switch", |e: &Self| e.output).writes(|e: &mut Self, value, cx| {
                let output =
                    cx.parse(value).map_err(|_| HandlerError::failed("Switch output must be integer"))?;
                e.output = existing(output, cx.noutputs());
                Ok(())
            }),
            Handler::read("config", |e: &Self| e.output).calm(),
            Handler::counter("drops", |e: &mut Self| &mut e.drops),
        ]
        .into()
    }

    fn llrpc(&mut self, command: u32, data: &[u8], cx: &mut Context<'_>) -> Result<Vec<u8>, HandlerError> {
        match (command, data.first_chunk()) {
            (GET_SWITCH, _) => Ok(self.output.to_ne_bytes().into()),
            (SET_SWITCH, Some(output)) => {
                let output = i32::from_ne_bytes(*output);
                if usize::try_from(output).is_ok_and(|output| output >= cx.noutputs()) {
                    return Err(HandlerError::failed("Invalid argument"));
                }
                self.output = output;
                Ok(Vec::new())
            }
            _ => Err(HandlerError::failed("Invalid argument")),
        }
    }
}
