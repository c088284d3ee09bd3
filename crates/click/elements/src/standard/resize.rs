//! `Resize(HEAD, TAIL)`: adds or removes bytes at the front and at the end of packets.
//!
//! Ports: one input, one output, push or pull. Packets that can't be extended that far are dropped.
//!
//! Arguments:
//! - `HEAD`, `TAIL`: number of bytes to add; negative to remove; 0 by default.
//!
//! Handlers: `head`, `tail` (read, write).
use crate::packet::grow;
use ringway_click::prelude::*;

pub static CLASS: Class =
    Class::new("Resize", || Box::<Resize>::default()).ports("1/1").metadata(Metadata::Resolve).live();

/// Maximum number of bytes added.
const LARGEST: i32 = 1 << 20;

#[derive(Debug, Default)]
pub struct Resize {
    head: i32,
    tail: i32,
}

impl Resize {
    fn bound(&self) -> Result<(), String> {
        if self.head.max(self.tail) > LARGEST {
            return Err(format!("too many bytes to add, bound {LARGEST}"));
        }
        Ok(())
    }

    fn handler(name: &'static str, field: fn(&mut Self) -> &mut i32) -> Handler {
        let read = move |e: &mut Self, _: &str, _: &mut Context<'_>| Ok(field(e).to_string());
        Handler::read_with(name, read).writes(move |e: &mut Self, value, cx| {
            let old = core::mem::replace(field(e), cx.parse(value)?);
            e.bound().map_err(|error| {
                *field(e) = old;
                HandlerError::failed(error)
            })
        })
    }
}

impl Element for Resize {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        args.read_p("HEAD", &mut self.head);
        args.read_p("TAIL", &mut self.tail);
        args.complete()?;
        self.bound().map_err(|error| cx.error(error))
    }

    fn handlers(&self) -> Vec<Handler> {
        [Self::handler("head", |e| &mut e.head), Self::handler("tail", |e| &mut e.tail)].into()
    }

    fn action(&mut self, burst: &mut PacketBurst, _: &mut Context<'_>) {
        burst.retain(|packet| {
            let bytes = |count: i32| count.unsigned_abs() as usize;
            let head = match self.head {
                ..0 => {
                    packet.pull(bytes(self.head).min(packet.len()));
                    true
                }
                _ => packet.unpull(bytes(self.head)),
            };
            head && match self.tail {
                ..0 => {
                    packet.take(bytes(self.tail).min(packet.len()));
                    true
                }
                _ => grow(packet, bytes(self.tail)),
            }
        });
    }
}
