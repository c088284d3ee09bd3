//! `DevirtualizeInfo(...)`: settings of Click's program `click-devirtualize`; has no effect here.
//!
//! Ports: none. Arguments: any.
use super::clicky_info::ClickyInfo;
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("DevirtualizeInfo", || Box::new(ClickyInfo)).reach(Reach::Each);
