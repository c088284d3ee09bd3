//! PPP over Ethernet as an access concentrator: discovery, PPP's control protocols, RADIUS.
//!
//! `session` has one subscriber's PPP, without I/O and without a clock; `automaton` is the option negotiation that LCP,
//! IPCP and IPV6CP share. `radius` is a client of authentication and accounting servers. The element,
//! `pppoe_server`, connects them with packets and timers.
mod accounting;
mod arguments;
mod automaton;
mod discovery;
mod lcp;
mod login;
mod ncp;
mod packet;
mod pool;
pub mod pppoe_server;
mod radius;
mod request;
mod session;
mod table;
#[cfg(test)]
mod tests;
mod users;
