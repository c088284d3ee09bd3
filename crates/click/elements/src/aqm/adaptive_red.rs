//! `AdaptiveRED(TARGET, MAX_P, QUEUES, STABILITY, GENTLE)`: drops packets at random so that the average length of
//! queues is about TARGET (Floyd, Gummadi and Shenker, "Adaptive RED", 2001).
//!
//! Ports and handlers: those of `RED`.
//!
//! Arguments:
//! - `TARGET`: the target length. MIN_THRESH is half of it, MAX_THRESH one and a half times it.
//! - `MAX_P`: initial value of the probability; 0.02 by default. It is adjusted twice a second.
//! - The others: those of `RED`.
use super::red::Red;
use ringway_click::prelude::*;

pub static CLASS: Class =
    Class::new("AdaptiveRED", || Box::new(Red::adaptive())).ports("1/1-2").processing("a/ah").live();
