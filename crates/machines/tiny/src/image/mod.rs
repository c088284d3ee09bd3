//! What all images have: the entry, the heap, and the machine that the monitor serves, or that of another monitor
//! (`pc`).
//!
//! An image defines `guest_main`, the symbol that the entry calls in ring 3 with the address of PVH's start
//! information, by [`guest_main!`](crate::guest_main), and a panic handler.

#[cfg(feature = "c")]
pub mod c;
mod entry;
#[cfg(feature = "click")]
pub mod functions;
mod machine;
#[cfg(feature = "stock")]
pub mod pc;

use crate::channel::Channel;
use crate::{Doorbell, FunctionStart};
use alloc::boxed::Box;
use ringway_bare::heap;

pub use entry::Start;
pub use machine::{Guest, exit, out, region, ticks};

/// What the monitor passed, after which the heap may be used.
///
/// # Safety
/// `start_info` is what `guest_main` was called with, and this is called once.
pub unsafe fn begin(start_info: u64) -> Start {
    // SAFETY: the address is the one that the monitor passed to the entry.
    let start = unsafe { Start::read(start_info) };
    let end = start.memory_end.min(start.module_at());
    #[cfg(feature = "c")]
    let end = end.min(c::heap(&start)[0]);
    heap::begin(end);
    start
}

/// What the monitor passed to a guest with a function: the function, the channel to the monitor, and what notifies it
/// of messages there.
///
/// # Errors
/// The name of what is not valid.
pub fn function(start: &Start) -> Result<(FunctionStart, Channel, Box<dyn FnMut()>), &'static str> {
    let function = FunctionStart::from_bytes(start.module()).ok_or("order")?;
    let [address, len] = function.channel;
    let channel = region(address, len).and_then(|region| Channel::attach(region).ok()).ok_or("channel")?;
    let doorbell = region(function.doorbell, 4).and_then(Doorbell::new).ok_or("doorbell")?;
    Ok((function, channel, Box::new(move || doorbell.ring())))
}

/// Defines `guest_main`, which passes what the monitor passed to a function: `fn(Start) -> !`.
#[macro_export]
macro_rules! guest_main {
    ($main:expr) => {
        // SAFETY: an image has one such function.
        #[unsafe(no_mangle)]
        extern "C" fn guest_main(start_info: u64) -> ! {
            // SAFETY: the entry calls this function once, with that address.
            let start = unsafe { $crate::image::begin(start_info) };
            let main: fn($crate::image::Start) -> ! = $main;
            main(start)
        }
    };
}
