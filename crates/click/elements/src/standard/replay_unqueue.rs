//! `ReplayUnqueue(STOP, STOP_TIME, TIMING, LIMIT, BURST, ACTIVE, USE_SIGNAL, VERBOSE)`: stores the packets that it
//! can pull, then pushes them repeatedly (FastClick).
//!
//! Ports: pull inputs, as many push outputs. Packets of several inputs are merged by timestamp until one input has no
//! more; all are pushed to output 0.
//!
//! Arguments:
//! - `STOP`: number of loops after which the driver is stopped; unlimited if negative, as by default.
//! - `STOP_TIME`: seconds after which the driver is stopped, at the end of a loop; 0, by default, for unlimited.
//! - `TIMING`: replays packets at the intervals of their timestamps, at this percentage of the original speed; 0, by
//!   default, as fast as possible.
//! - `LIMIT`: maximum number of stored packets; 1048576 by default.
//! - `BURST`: packets per run of its task.
//! - `ACTIVE`: whether it runs; true by default.
//! - `USE_SIGNAL`: whether it waits for more packets while the notifier of an input is active; false by default.
//! - `VERBOSE`: whether it reports each loop; false by default.
//! - `QUICK_CLONE`, `FREEONTERMINATE`: accepted, no effect.
//!
//! Handlers: `count`, `loops`, `loaded` (read): stored packets, completed loops, whether all packets are stored;
//! `stop`, `timing`, `active` (read, write): remaining loops, and the arguments; `reset` (write): loads packets again.
use super::replay::Replay;
use ringway_click::prelude::*;

pub static CLASS: Class =
    Class::new("ReplayUnqueue", || Box::new(Replay::new(false))).ports("1-/=").processing("l/h").flow("#/#");
