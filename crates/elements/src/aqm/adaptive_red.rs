//! `AdaptiveRED(TARGET, MAX_P, QUEUES, STABILITY, GENTLE)`: drops packets at random so that queues are
//! about TARGET long on average (Floyd, Gummadi and Shenker, "Adaptive RED", 2001).
//!
//! Ports and handlers: those of `RED`.
//!
//! Arguments:
//! - `TARGET`: that length. MIN_THRESH is half of it, MAX_THRESH half as much again.
//! - `MAX_P`: what the probability is at first; 0.02 by default. Twice a second it grows or shrinks.
//! - The others: those of `RED`.
use super::red::Red;
use alloc::boxed::Box;
use ringway_click::Class;

pub static CLASS: Class =
    Class::new("AdaptiveRED", || Box::new(Red::adaptive())).ports("1/1-2").processing("a/ah").live();
