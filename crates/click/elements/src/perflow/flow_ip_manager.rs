//! `FlowIPManager(CAPACITY, RESERVE, TIMEOUT, VERBOSE, CACHE, RECYCLE_INTERVAL, LF)`: finds the flow of each packet,
//! for downstream elements that keep state for each flow (FastClick).
//!
//! A flow consists of packets with the same IPv4 addresses, ports and protocol; all packets without a marked IPv4
//! header form one flow. The flow's number is stored in the aggregate annotation, which must not be modified upstream
//! of elements that need it. The offset of each element's state in a flow's memory is printed.
//!
//! Ports: one input, one output, push or pull.
//!
//! Arguments:
//! - `CAPACITY`: maximum number of flows; 65536 by default. Beyond it, an old flow is evicted for each new one.
//! - `RESERVE`: bytes of a flow's memory before the state of elements; 0 by default.
//! - `TIMEOUT`: seconds without packets after which a flow ends; 60 by default, 0 for unlimited.
//! - `VERBOSE`, `CACHE`, `RECYCLE_INTERVAL`, `LF`: accepted, no effect.
//!
//! Handlers: `count`, `total`, `capacity`, `evictions` (read): current flows, all flows so far, CAPACITY, evictions.
use super::manager::FlowManager;
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("FlowIPManager", || Box::new(FlowManager::new(60, None))).ports("1/1");
