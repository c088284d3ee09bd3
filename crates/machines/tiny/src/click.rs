//! The image of functions: Click with all elements that need no operating system. It enters ring 3 at once, as the
//! image of roles does; a separate one, since it is 30 times as large, and each boot copies it.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt::Write;
use ringway_tiny::function::{FunctionEnd, Host, Monitor, run};
use ringway_tiny::image::{self, Guest, Start, exit, pc, region, ticks};
use ringway_tiny::stock::assign;

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
        run_on_pc(&start);
    }
    let (function, channel, notify) = image::function(&start).unwrap_or_else(|what| refuse(what));
    let host = Host { machine: Guest, notify, ticks: image::ticks, map: region };
    match run(host, Monitor::Channel(channel), Vec::new(), function) {
        FunctionEnd::Stopped => exit(code::STOPPED),
        FunctionEnd::Wrong => exit(code::WRONG),
    }
}

/// The function of the command line and the module that another monitor passed.
fn run_on_pc(start: &Start) -> ! {
    let pc::Found { line, nets, machine, hz, wall, seed } = pc::find(start);
    let assigned = match assign(&line, start.module(), nets) {
        Ok(assigned) => assigned,
        Err(error) => pc::refuse(&error),
    };
    pc::unused(assigned.unused);
    let mut function = assigned.function;
    (function.hz, function.wall, function.seed) = (hz, wall, seed);
    // No monitor names memory here.
    let host = Host { machine, notify: Box::new(|| ()), ticks, map: |_, _| None };
    match run(host, Monitor::Console(pc::say), assigned.nets, function) {
        FunctionEnd::Stopped => {
            pc::say("click: stopped\n");
            pc::end(code::STOPPED)
        }
        FunctionEnd::Wrong => pc::end(code::WRONG),
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
