//! Workers, turns, reconciling: the `data` process.

pub mod proto;
