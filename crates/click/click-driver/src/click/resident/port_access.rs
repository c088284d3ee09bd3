//! What FromPort and ToPort of a resident function have in common.

use super::ends::{self, Ends};
use crate::inherited;
use ringway_click::arg::Args;
use ringway_click::{Context, Failed};
use ringway_elements::platform::devices::Naming;
use std::cell::{RefCell, RefMut};
use std::rc::Rc;

/// An element's part in a port.
#[derive(Default)]
pub(super) struct PortAccess {
    naming: Naming,
    port: String,
    ends: Option<Rc<RefCell<Ends>>>,
}

impl PortAccess {
    /// A part that names its port by a device.
    pub fn of_device() -> PortAccess {
        PortAccess { naming: Naming::Device, ..PortAccess::default() }
    }

    /// Call in the element's `configure`, after its other arguments were read.
    pub fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let port = self.naming.read(args, inherited::port_of_device);
        args.complete()?;
        let port = port.map_err(|wrong| cx.error(wrong))?;
        inherited::check_port(&port).map_err(|wrong| cx.error(wrong))?;
        self.port = port;
        Ok(())
    }

    /// Call in its `initialize`.
    pub fn initialize(&mut self, readable: bool, cx: &mut Context<'_>) -> Result<(), Failed> {
        let ends = ends::of(&self.port);
        let ends = ends.ok_or_else(|| cx.error(format!("port '{}' is not this function's", self.port)))?;
        cx.select(ends.borrow().descriptor, readable, !readable);
        self.ends = Some(ends);
        Ok(())
    }

    /// The port's queues. Nothing else holds them while an element runs.
    #[inline]
    pub fn ends(&self) -> Option<RefMut<'_, Ends>> {
        self.ends.as_ref()?.try_borrow_mut().ok()
    }

    /// Call in `shares`.
    pub fn shares(&self) -> Option<String> {
        Some(format!("port {}", self.port))
    }

    /// The value of the handler `state`.
    pub fn state(&self) -> &'static str {
        if self.ends.is_some() { "up" } else { "away: not started" }
    }
}
