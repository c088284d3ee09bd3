//! `LinearIPLookup(ADDR/MASK [GATEWAY] OUTPUT, ...)`: looks up routes.
//!
//! Ports: one push input; push outputs. Packets without a route are dropped.
//!
//! Arguments: each a route: a prefix, the next hop if it isn't the destination itself, and the output.
//!
//! Handlers: `table`, `drops`; `lookup` (read, with an address); `add`, `set`, `remove`, `ctrl`, `flush` (write).
//! The longest prefix that contains a packet's noted destination counts; the next hop is noted in its place. All
//! elements that look up routes share one table, in which a lookup takes one to three reads however many routes there
//! are; they differ only in name, for old configurations' sake.
use super::route_table::RouteTable;
use alloc::boxed::Box;
use ringway_click::Class;

pub static CLASS: Class =
    Class::new("LinearIPLookup", || Box::new(RouteTable::new(true))).ports("1/-").processing("h");
