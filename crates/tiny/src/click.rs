//! The image of functions: Click with all elements that need no operating system. It enters ring 3 at once, as the
//! image of roles does; a separate one, since it is 30 times as large, and each boot copies it.
#![no_std]
#![no_main]

extern crate alloc;

mod pc;

use alloc::vec::Vec;
use core::fmt::Write;
use ringway_tiny::function::{FunctionEnd, Host, Monitor, run};
use ringway_tiny::image::{self, Guest, Start, exit, region};

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

ringway_tiny::guest_main!(run_function);

/// The guest's program, in ring 3.
fn run_function(start: Start) -> ! {
    if start.is_other {
        pc::function(&start);
    }
    let (function, channel, notify) = image::function(&start).unwrap_or_else(|what| refuse(what));
    let host = Host { machine: Guest, notify, ticks: image::ticks, map: region };
    match run(host, Monitor::Channel(channel), Vec::new(), function) {
        FunctionEnd::Stopped => exit(code::STOPPED),
        FunctionEnd::Wrong => exit(code::WRONG),
    }
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    if pc::is_active() {
        let _ = writeln!(pc::Serial, "click: the guest panicked: {info}");
        pc::end(code::PANIC);
    }
    let _ = writeln!(Guest, "the guest panicked: {info}");
    exit(code::PANIC);
}
