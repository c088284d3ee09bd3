//! Common code of decapsulating elements.
use crate::packet::divert_counting;
use ringway_click::prelude::*;

/// A tunnel's headers.
pub trait Tunnel: Default + 'static {
    /// Reads the arguments.
    fn read_arguments(&mut self, args: &mut Args) {
        let _ = args;
    }

    /// Removes the tunnel's headers from a packet. Returns false, and leaves the packet unchanged, if it isn't of this
    /// tunnel.
    fn strip(&self, packet: &mut Packet) -> bool;
}

/// Decapsulates packets of a tunnel; counts other packets and sends them to output 1.
#[derive(Debug, Default)]
pub struct Decap<T> {
    tunnel: T,
    drops: u64,
}

impl<T: Tunnel> Element for Decap<T> {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        self.tunnel.read_arguments(args);
        args.complete()
    }

    fn action(&mut self, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        divert_counting(burst, cx, &mut self.drops, |packet, _| self.tunnel.strip(packet));
    }

    fn handlers(&self) -> Vec<Handler> {
        [Handler::counter("drops", |e: &mut Self| &mut e.drops)].into()
    }
}
