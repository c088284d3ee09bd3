//! `PullNull`: passes packets on unchanged.
//!
//! Ports: one pull input, one pull output. No arguments, no handlers.
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("PullNull", || Box::new(PullNull)).ports("1/1").processing("l");

#[derive(Clone, Copy, Debug)]
pub struct PullNull;

impl Element for PullNull {}
