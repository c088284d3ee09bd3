//! `SetTimestampDelta(TYPE)`: makes packets' timestamps relative.
//!
//! Ports: one input, one output, push or pull.
//!
//! Arguments:
//! - `TYPE`: `RANGE` (default): relative to the first packet's; `NOW`: to the current time; `FIRST`: to the packet's
//!   own first timestamp annotation.
//!
//! Handlers: `first` (read): the first packet's; `reset` (write).
use ringway_click::Timestamp;
use ringway_click::arg::Word;
use ringway_click::prelude::*;

pub static CLASS: Class =
    Class::new("SetTimestampDelta", || Box::<SetTimestampDelta>::default()).ports("1/1");

#[derive(Clone, Copy, Debug, Default)]
enum Base {
    #[default]
    Range,
    Now,
    First,
}

#[derive(Debug, Default)]
pub struct SetTimestampDelta {
    base: Base,
    first: Option<u64>,
}

impl Element for SetTimestampDelta {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let mut kind = Word("RANGE".to_string());
        args.read_p("TYPE", &mut kind);
        args.complete()?;
        self.base = match kind.0.to_uppercase().as_str() {
            "RANGE" => Base::Range,
            "NOW" => Base::Now,
            "FIRST" => Base::First,
            _ => return Err(cx.error("bad 'TYPE'")),
        };
        Ok(())
    }

    fn action(&mut self, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        for packet in burst.iter_mut() {
            let stamp = packet.timestamp();
            packet.set_timestamp(match self.base {
                Base::Range => stamp.saturating_sub(*self.first.get_or_insert(stamp)),
                Base::Now => cx.packet_time().saturating_sub(stamp),
                Base::First => stamp.saturating_sub(packet.notes().u64(Annotations::FIRST_TIMESTAMP)),
            });
        }
    }

    fn handlers(&self) -> Vec<Handler> {
        [
            Handler::read("first", |e: &Self| Timestamp(e.first.unwrap_or(0))),
            Handler::button("reset", |e: &mut Self, _| e.first = None),
        ]
        .into()
    }
}
