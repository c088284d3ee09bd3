//! The image: what runs before and after the main function.

use crate::{Error, Program, runtime};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt::Write;
use core::future::Future;
use ringway_tiny::image::{self, Guest, Start, exit, pc, region, ticks};
use ringway_tiny::stock::assign_program;
use ringway_tiny::{FunctionStart, Monitor};

/// Codes with which the guest ends.
mod code {
    pub const RETURNED: u32 = 0;
    pub const FAILED: u32 = 1;
    pub const MONITOR: u32 = 2;
    pub const PANIC: u32 = 3;
}

/// Ends the guest: what the monitor passed is not valid.
pub(crate) fn refuse(what: &str) -> ! {
    if pc::is_active() {
        pc::refuse(&format_args!("the machine's {what} is not valid"));
    }
    // The console accepts all text.
    let _ = writeln!(Guest, "the monitor's {what} is not valid");
    exit(code::MONITOR);
}

/// Runs the program; [`crate::main!`] calls it.
pub fn start<F>(start: Start, main: impl FnOnce(Program) -> F) -> !
where
    F: Future<Output = Result<(), Error>> + 'static,
{
    if start.is_other {
        let (host, monitor, function) = host_on_pc(&start);
        finish(runtime::run(host, monitor, function, main));
    }
    let (host, monitor, function) = host(&start);
    finish(runtime::run(host, monitor, function, main))
}

/// What the program has of the machine.
pub(crate) fn host(start: &Start) -> (runtime::Host<Guest>, Monitor, FunctionStart) {
    let (function, channel, notify) = image::function(start).unwrap_or_else(|what| refuse(what));
    let (machine, memory, nets) = (Guest, start.memory_end, Vec::new());
    let host = runtime::Host { machine, notify, ticks, map: region, memory, nets };
    (host, Monitor::Channel(channel), function)
}

/// What the program has of the machine of another monitor.
pub(crate) fn host_on_pc(start: &Start) -> (runtime::Host<pc::Pc>, Monitor, FunctionStart) {
    let pc::Found { line, nets, machine, hz, wall, seed } = pc::find(start);
    let assigned = assign_program(&line, nets).unwrap_or_else(|error| pc::refuse(&error));
    pc::unused(assigned.unused);
    let mut function = assigned.function;
    (function.hz, function.wall, function.seed) = (hz, wall, seed);
    let (notify, memory, nets) = (Box::new(|| ()), start.memory_end, assigned.nets);
    // No monitor names memory here.
    let host = runtime::Host { machine, notify, ticks, map: |_, _| None, memory, nets };
    (host, Monitor::Console(pc::say), function)
}

/// Ends the guest.
pub(crate) fn finish(end: runtime::End) -> ! {
    if pc::is_active() {
        match end {
            runtime::End::Returned => {
                pc::say("program: returned\n");
                pc::end(code::RETURNED)
            }
            runtime::End::Failed | runtime::End::Monitor => pc::end(code::FAILED),
        }
    }
    match end {
        runtime::End::Returned => exit(code::RETURNED),
        runtime::End::Failed => exit(code::FAILED),
        runtime::End::Monitor => refuse("channel"),
    }
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    if pc::is_active() {
        let _ = writeln!(pc::Serial, "program: it panicked: {info}");
        pc::end(code::PANIC);
    }
    let _ = writeln!(Guest, "the program panicked: {info}");
    exit(code::PANIC);
}
