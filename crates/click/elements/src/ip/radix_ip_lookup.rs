//! `RadixIPLookup(ADDR/MASK [GATEWAY] OUTPUT, ...)`: looks up routes.
//!
//! Ports: one push input; push outputs. Packets without a route are dropped.
//!
//! Arguments: one route each: a prefix, the next hop if it is not the destination itself, and the output.
//!
//! Handlers: `table`, `drops`; `lookup` (read, with an address); `add`, `set`, `remove`, `ctrl`, `flush` (write). The
//! longest prefix that contains a packet's destination annotation decides; the annotation is set to the next hop. All
//! elements that look up IPv4 routes have the same table, in which a lookup takes one to three reads for any number of
//! routes; they differ only in name, for compatibility with existing configurations.
use super::route_table::RouteTable;
use ringway_click::prelude::*;

pub static CLASS: Class =
    Class::new("RadixIPLookup", || Box::new(RouteTable::new(true))).ports("1/-").processing("h");
