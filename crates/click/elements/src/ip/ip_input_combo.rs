//! `IPInputCombo(COLOR, BADSRC, INTERFACES, GOODDST)`: a router's input processing in one element: `Paint(COLOR) ->
//! Strip(14) -> CheckIPHeader(..) -> GetIPAddress(16)`.
//!
//! Ports: one input, one output, push or pull. Bad packets are dropped.
//!
//! Arguments:
//! - `COLOR`: the paint.
//! - `BADSRC`, `INTERFACES`, `GOODDST`: as for CheckIPHeader.
//!
//! Handlers: `drops` (read).
use super::check_ip_header::CheckIpHeader;
use ringway_click::prelude::*;
use ringway_wire::ethernet::HEADER_LEN;

pub static CLASS: Class =
    Class::new("IPInputCombo", || Box::<IpInputCombo>::default()).ports("1/1").flags("A");

#[derive(Debug, Default)]
pub struct IpInputCombo {
    color: u8,
    check: CheckIpHeader,
}

impl Element for IpInputCombo {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        args.read_mp("COLOR", &mut self.color);
        self.check.configure(args, cx)
    }

    fn action(&mut self, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        for packet in burst.iter_mut() {
            packet.notes_mut().set_u8(Annotations::PAINT, self.color);
            packet.set_mac_header(0);
            packet.pull(HEADER_LEN);
        }
        self.check.action(burst, cx);
    }

    fn handlers(&self) -> Vec<Handler> {
        [Handler::counter("drops", |e: &mut Self| e.check.drops())].into()
    }
}
