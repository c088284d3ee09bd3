//! `ARPFaker(DSTIP, DSTETH, SRCIP, SRCETH)`: sends a host an unsolicited ARP reply every ten seconds.
//!
//! Ports: no inputs; one push output.
//!
//! Arguments:
//! - `DSTIP`, `DSTETH`: addresses of the receiver.
//! - `SRCIP`, `SRCETH`: the announced addresses.
//!
//! No handlers.
use super::arp;
use core::net::Ipv4Addr;
use ringway_click::prelude::*;
use ringway_wire::MacAddress;

pub static CLASS: Class =
    Class::new("ARPFaker", || Box::<ArpFaker>::default()).ports("0/1").processing("h").flags("S1");

#[derive(Debug)]
pub struct ArpFaker {
    destination: (Ipv4Addr, MacAddress),
    source: (Ipv4Addr, MacAddress),
}

impl Default for ArpFaker {
    fn default() -> Self {
        let nobody = (Ipv4Addr::UNSPECIFIED, MacAddress::default());
        Self { destination: nobody, source: nobody }
    }
}

impl Element for ArpFaker {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        args.read_mp("DSTIP", &mut self.destination.0);
        args.read_mp("DSTETH", &mut self.destination.1);
        args.read_mp("SRCIP", &mut self.source.0);
        args.read_mp("SRCETH", &mut self.source.1);
        args.complete()
    }

    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        let timer = cx.new_timer();
        cx.set_timer_after(timer, SECOND);
        Ok(())
    }

    fn run_timer(&mut self, timer: Timer, cx: &mut Context<'_>) {
        let packet = arp::reply(self.source.1, self.source.0, self.destination.1, self.destination.0);
        if let Some(frame) = arp::make(self.destination.1, &packet, None, cx) {
            cx.push(0, frame);
        }
        cx.set_timer_after(timer, 10 * SECOND);
    }
}
