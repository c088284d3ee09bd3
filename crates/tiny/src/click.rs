//! The image of functions: Click with all elements that need no operating system. It enters ring 3 at once, as the
//! image of roles does; a separate one, since it is 30 times as large, and each boot copies it.
#![no_std]
#![no_main]

extern crate alloc;

mod entry;
mod heap;
mod machine;

use alloc::boxed::Box;
use core::fmt::Write;
use machine::{Guest, exit, region};
use ringway_tiny::FunctionStart;
use ringway_tiny::channel::Channel;
use ringway_tiny::function::{FunctionEnd, Host, run};

/// Codes with which the guest ends.
mod code {
    pub const STOPPED: u32 = 0;
    pub const WRONG: u32 = 1;
    pub const MONITOR: u32 = 2;
    pub const PANIC: u32 = 3;
}

/// Ends the guest: what the monitor passed is not valid.
fn refuse(what: &str) -> ! {
    // The console accepts all text.
    let _ = writeln!(Guest, "click: the monitor's {what} is not valid");
    exit(code::MONITOR);
}

/// The guest's program, in ring 3. `start_info` is the address of PVH's start information.
extern "C" fn user(start_info: u64) -> ! {
    // SAFETY: the address is the one that the monitor passed to the entry.
    let start = unsafe { entry::Start::read(start_info) };
    heap::begin(start.memory_end.min(start.module_at()));
    // SAFETY: the monitor wrote the module, and nobody changes it.
    let Some(function) = FunctionStart::from_bytes(unsafe { start.module() }) else { refuse("function") };
    let [address, len] = function.channel;
    let Some(channel) = region(address, len).and_then(|region| Channel::attach(region).ok()) else {
        refuse("channel")
    };
    let doorbell = region(function.doorbell, 4).and_then(ringway_tiny::Doorbell::new);
    let Some(doorbell) = doorbell else { refuse("doorbell") };
    let notify = Box::new(move || doorbell.ring());
    let host = Host { machine: Guest, notify, ticks: machine::ticks, map: region };
    match run(host, channel, function) {
        FunctionEnd::Stopped => exit(code::STOPPED),
        FunctionEnd::Wrong => exit(code::WRONG),
    }
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    let _ = writeln!(Guest, "the guest panicked: {info}");
    exit(code::PANIC);
}
