//! `FlowIPManagerIMP(CAPACITY, RESERVE, TIMEOUT, VERBOSE, CACHE, RECYCLE_INTERVAL, LF)`: the same as FlowIPManager.
//! FastClick's has one table per thread; here each runs on one thread.
//!
//! Ports: one input, one output, push or pull.
//!
//! Arguments and handlers: those of `FlowIPManager`.
use super::manager::FlowManager;
use alloc::boxed::Box;
use ringway_click::Class;

pub static CLASS: Class =
    Class::new("FlowIPManagerIMP", || Box::new(FlowManager::new(60, None))).ports("1/1");
