//! `PullNull`: passes packets on unchanged.
//!
//! Ports: one pull input, one pull output. No arguments, no handlers.
use alloc::boxed::Box;
use ringway_click::{Class, Element};

pub static CLASS: Class = Class::new("PullNull", || Box::new(PullNull)).ports("1/1").processing("l");

#[derive(Clone, Copy, Debug)]
pub struct PullNull;

impl Element for PullNull {}
