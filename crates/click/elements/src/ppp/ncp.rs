//! Options of IPCP (RFC 1332, RFC 1877) and IPV6CP (RFC 5072).
use super::automaton::Layer;
use super::packet::{options, put_option};
use super::session::Turn;
use alloc::vec::Vec;
use core::net::Ipv4Addr;

const ADDRESS: u8 = 3;
/// The addresses of two name servers.
const SERVERS: [u8; 2] = [129, 131];
const INTERFACE: u8 = 1;

/// IPCP's values: the server's address, the subscriber's, and its name servers (unspecified: none).
#[derive(Debug)]
pub(super) struct Four {
    pub(super) own: Ipv4Addr,
    pub(super) peer: Ipv4Addr,
    pub(super) dns: [Ipv4Addr; 2],
    /// The peer does not want to know the server's address.
    hides_own: bool,
}

impl Four {
    pub(super) fn new(own: Ipv4Addr, peer: Ipv4Addr, dns: [Ipv4Addr; 2]) -> Self {
        Self { own, peer, dns, hides_own: false }
    }
}

impl Layer for Four {
    fn request(&self, out: &mut Vec<u8>) {
        if !self.hides_own {
            put_option(out, ADDRESS, &self.own.octets());
        }
    }

    fn judge(&mut self, data: &[u8], _: &mut Turn<'_>, nak: &mut Vec<u8>, reject: &mut Vec<u8>) {
        let mut has_address = false;
        for option in options(data) {
            let wanted = match option.kind {
                ADDRESS => Some(self.peer),
                kind => {
                    SERVERS.iter().position(|server| *server == kind).and_then(|at| self.dns.get(at).copied())
                }
            };
            has_address |= option.kind == ADDRESS;
            match wanted.filter(|address| !address.is_unspecified() && option.value.len() == 4) {
                Some(address) if address.octets() == option.value => {}
                Some(address) => put_option(nak, option.kind, &address.octets()),
                None => reject.extend_from_slice(option.bytes),
            }
        }
        if !has_address {
            put_option(nak, ADDRESS, &self.peer.octets());
        }
    }

    fn refused(&mut self, data: &[u8], rejected: bool, _: &mut Turn<'_>) -> bool {
        self.hides_own |= rejected && options(data).any(|option| option.kind == ADDRESS);
        true
    }
}

/// IPV6CP's values: the interface identifiers of both sides.
#[derive(Debug)]
pub(super) struct Six {
    pub(super) own: [u8; 8],
    pub(super) peer: [u8; 8],
    hides_own: bool,
}

impl Six {
    pub(super) fn new(own: [u8; 8], peer: [u8; 8]) -> Self {
        Self { own, peer, hides_own: false }
    }
}

impl Layer for Six {
    fn request(&self, out: &mut Vec<u8>) {
        if !self.hides_own {
            put_option(out, INTERFACE, &self.own);
        }
    }

    /// The subscriber chooses its identifier, unless it is zero or the server's (RFC 5072, 4.1).
    fn judge(&mut self, data: &[u8], _: &mut Turn<'_>, nak: &mut Vec<u8>, reject: &mut Vec<u8>) {
        for option in options(data) {
            match (option.kind, <[u8; 8]>::try_from(option.value)) {
                (INTERFACE, Ok(id)) if id == [0; 8] || id == self.own => {
                    put_option(nak, INTERFACE, &self.peer)
                }
                (INTERFACE, Ok(id)) => self.peer = id,
                _ => reject.extend_from_slice(option.bytes),
            }
        }
    }

    fn refused(&mut self, data: &[u8], rejected: bool, turn: &mut Turn<'_>) -> bool {
        if options(data).any(|option| option.kind == INTERFACE) {
            self.hides_own |= rejected;
            self.own = turn.nonce.interface();
        }
        true
    }
}
