//! `LookupIPRouteMP(ADDR/MASK [GATEWAY] OUTPUT, ...)`: looks up routes in a static table.
//!
//! Ports: one push input; push outputs. Packets without a route are dropped.
//!
//! Arguments: routes: a prefix, the next hop if it is not the destination itself, and the output.
//!
//! Handlers: `table`, `drops`; `lookup` (read, with an address). The same as StaticIPLookup; in Click the element
//! caches routes for each thread.
use super::route_table::RouteTable;
use alloc::boxed::Box;
use ringway_click::Class;

pub static CLASS: Class =
    Class::new("LookupIPRouteMP", || Box::new(RouteTable::new(false))).ports("1/-").processing("h");
