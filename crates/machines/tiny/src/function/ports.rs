//! Ports of a function in a guest: the monitor attaches to them, and maps their rings into the guest's memory.

use super::platform::{self, Map, PORT};
use crate::channel::{RingPlace, ToMonitor};
use crate::device::{self, Device};
use crate::net_device::NetDeviceError;
use crate::slot_ring::SlotRing;
use crate::stock::Net;
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::string::{String, ToString};
use core::cell::{RefCell, RefMut};
use ringway_click::{Context, Failed, Timer};
use ringway_elements::platform::{self as elements, PortRing, Pushed};
use ringway_ring::Received;

/// A port, and its ring if there is one.
#[derive(Debug)]
pub(crate) struct Port {
    number: u16,
    ring: Option<Device>,
    /// Whether the guest waits for a frame, and for how many free slots.
    armed_rx: bool,
    armed_tx: u32,
    asked: bool,
    /// The state has changed since elements were told.
    changed: bool,
    offloads: bool,
    losses: u64,
    reason: String,
}

impl Port {
    pub fn new(number: usize) -> Port {
        Port {
            number: number as u16,
            ring: None,
            armed_rx: false,
            armed_tx: 0,
            asked: false,
            changed: false,
            offloads: false,
            losses: 0,
            reason: "not asked for yet".into(),
        }
    }

    /// A port with a device of the machine, which no monitor takes away.
    pub fn with(number: usize, net: Net<'static>) -> Port {
        Port { ring: Some(Device::Net(Box::new(net))), asked: true, ..Port::new(number) }
    }

    /// The ring is here. An error says why it can't be used.
    pub fn arrive(&mut self, place: RingPlace, map: Map) -> Result<(), String> {
        self.changed = true;
        let region = |at, len| map(at, len).ok_or(NetDeviceError::Layout);
        let attach =
            || SlotRing::new(region(place.address, place.len)?, place.is_second, region(place.doorbell, 4)?);
        match attach() {
            Ok(ring) => {
                (self.ring, self.armed_rx, self.armed_tx) = (Some(Device::Slots(ring)), false, 0);
                Ok(())
            }
            Err(error) => {
                self.reason = error.to_string();
                Err(self.reason.clone())
            }
        }
    }

    /// The ring is lost; returns whether there was one.
    pub fn leave(&mut self, reason: &str) -> bool {
        self.changed = true;
        self.reason = reason.into();
        let was_up = self.ring.take().is_some();
        self.losses += u64::from(was_up);
        was_up
    }

    /// The ring is the original's: this guest is a clone. Returns the offloads of the ring that it needs, if any.
    pub fn begin_clone(&mut self) -> Option<bool> {
        (self.ring, self.armed_rx, self.armed_tx, self.changed) = (None, false, 0, true);
        self.reason = "not asked for yet".into();
        self.asked.then_some(self.offloads)
    }

    /// Whether the state changed, or frames or room that the guest waits for have arrived.
    pub fn is_ready(&mut self) -> bool {
        if core::mem::take(&mut self.changed) {
            return true;
        }
        let (armed_rx, armed_tx) = (self.armed_rx, self.armed_tx);
        // What is broken is noticed by its user.
        match &mut self.ring {
            Some(device @ Device::Slots(_)) => {
                armed_rx && device.has_frame()
                    || armed_tx > 0 && device.room(armed_tx).map_or(true, |room| room >= armed_tx)
                    || (armed_rx || armed_tx > 0) && device.is_closed()
            }
            Some(device @ Device::Net(_)) if armed_rx || armed_tx > 0 => {
                device.acknowledge();
                // An interrupt comes once: it is asked for again if too few buffers came back.
                armed_rx && device.has_frame() || armed_tx > 0 && !matches!(device.arm_tx(armed_tx), Ok(true))
            }
            Some(Device::Net(_)) | None => false,
        }
    }

    fn give_up(&mut self, reason: &str) {
        if self.leave(reason) {
            let message = ToMonitor::Released(self.number, reason.as_bytes());
            platform::with(|platform| platform.send(&message));
        }
    }
}

/// An element's part in a port.
#[derive(Default)]
pub(crate) struct PortAccess {
    port: Option<Rc<RefCell<Port>>>,
    timer: Option<Timer>,
    name: String,
}

impl elements::PortAccess for PortAccess {
    type Error = NetDeviceError;
    type Ring<'a> = Borrowed<'a>;

    fn port_of_device(device: &str) -> Result<String, String> {
        let found = platform::with(|platform| platform.uses.port_of_device(device));
        found.unwrap_or_else(|| Err(String::new()))
    }

    fn configure(&mut self, port: &str) -> Result<(), String> {
        let found: Option<Result<_, String>> = platform::with(|platform| {
            platform.uses.check_port(port)?;
            Ok(platform.port(port))
        });
        self.port = found.unwrap_or(Ok(None))?;
        self.name = port.into();
        Ok(())
    }

    fn shares(&self) -> Option<String> {
        self.port.as_ref().map(|_| alloc::format!("port {}", self.name))
    }

    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        if let Some(port) = &self.port {
            cx.select(PORT + i32::from(port.borrow().number), true, false);
        }
        let timer = cx.new_timer();
        // Deferred, since another configuration may still be running.
        cx.set_timer_after(timer, 0);
        self.timer = Some(timer);
        Ok(())
    }

    fn prefer_offloads(&mut self, offloads: bool) {
        if let Some(mut port) = self.port.as_ref().map(|port| port.borrow_mut()).filter(|port| !port.asked) {
            port.offloads = offloads;
        }
    }

    fn want_offloads(&mut self, offloads: bool, _: &mut Context<'_>) {
        let Some(port) = &self.port else { return };
        let mut port = port.borrow_mut();
        if port.offloads != offloads {
            (port.offloads, port.asked) = (offloads, false);
            port.give_up("asked for with other offloads");
        }
    }

    fn ring(&mut self, _: &mut Context<'_>) -> Option<Borrowed<'_>> {
        let mut port = self.port.as_ref()?.borrow_mut();
        if port.ring.is_none() && !port.asked {
            port.asked = true;
            let message = ToMonitor::Wanted(port.number, port.offloads);
            platform::with(|platform| platform.send(&message));
        }
        port.ring.is_some().then_some(Borrowed(port))
    }

    fn are_all_up(&self) -> bool {
        let is_up = |port: &Rc<RefCell<Port>>| {
            // The own port may be in use.
            port.try_borrow().map_or(true, |port| !port.asked || port.ring.is_some())
        };
        platform::with(|platform| platform.ports.iter().all(is_up)).unwrap_or(true)
    }

    fn selected(&mut self, _: i32, _: &mut Context<'_>) {
        let Some(port) = &self.port else { return };
        let mut port = port.borrow_mut();
        if port.ring.as_ref().is_some_and(Device::is_closed) {
            port.give_up(&NetDeviceError::Closed.to_string());
        }
    }

    fn lose(&mut self, error: &NetDeviceError, _: &mut Context<'_>) {
        if let Some(port) = &self.port {
            port.borrow_mut().give_up(&error.to_string());
        }
    }

    fn state(&self) -> String {
        let Some(port) = &self.port else { return String::new() };
        let port = port.borrow();
        match &port.ring {
            Some(_) => "up".into(),
            None => alloc::format!("away: {}", port.reason),
        }
    }

    fn losses(&self) -> u64 {
        self.port.as_ref().map_or(0, |port| port.borrow().losses)
    }
}

/// The ring of a port, in use by an element.
pub(crate) struct Borrowed<'a>(RefMut<'a, Port>);

impl Borrowed<'_> {
    #[inline]
    fn device(&mut self) -> Result<&mut Device, NetDeviceError> {
        self.0.ring.as_mut().ok_or(NetDeviceError::Closed)
    }
}

impl PortRing for Borrowed<'_> {
    type Error = NetDeviceError;

    #[inline]
    fn frame_len(&mut self) -> Result<Option<usize>, NetDeviceError> {
        self.device()?.frame_len()
    }

    #[inline]
    fn pop(&mut self, out: &mut [u8]) -> Result<Option<Received>, NetDeviceError> {
        self.device()?.pop(out)
    }

    #[inline]
    fn push(&mut self, frame: &[u8], offload: [u8; 10]) -> Result<Pushed, NetDeviceError> {
        Ok(match self.device()?.push(frame, offload)? {
            device::Pushed::Done => Pushed::Done,
            device::Pushed::Full => Pushed::Full,
            device::Pushed::TooLong => Pushed::TooLong,
        })
    }

    #[inline]
    fn sync(&mut self) -> Result<(), NetDeviceError> {
        let device = self.device()?;
        device.publish();
        if device.is_closed() { Err(NetDeviceError::Closed) } else { Ok(()) }
    }

    fn tx_slots(&self) -> u32 {
        self.0.ring.as_ref().map_or(0, Device::tx_slots)
    }

    fn room(&mut self, wanted: u32) -> Result<u32, NetDeviceError> {
        self.device()?.room(wanted)
    }

    fn arm_rx(&mut self) -> Result<bool, NetDeviceError> {
        let armed = self.device()?.arm_rx()?;
        self.0.armed_rx = armed;
        Ok(armed)
    }

    fn disarm_rx(&mut self) {
        self.0.armed_rx = false;
        self.0.ring.iter_mut().for_each(Device::disarm_rx);
    }

    fn arm_tx(&mut self, slots: u32) -> Result<bool, NetDeviceError> {
        let armed = self.device()?.arm_tx(slots)?;
        self.0.armed_tx = if armed { slots } else { 0 };
        Ok(armed)
    }

    fn disarm_tx(&mut self) {
        self.0.armed_tx = 0;
        self.0.ring.iter_mut().for_each(Device::disarm_tx);
    }
}
