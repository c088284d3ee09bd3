//! The image: what runs before and after the main function.

use crate::{Error, Program, runtime};
use core::fmt::Write;
use core::future::Future;
use ringway_tiny::FunctionStart;
use ringway_tiny::channel::Channel;
use ringway_tiny::image::{self, Guest, Start, exit, region, ticks};

/// Codes with which the guest ends.
mod code {
    pub const RETURNED: u32 = 0;
    pub const FAILED: u32 = 1;
    pub const MONITOR: u32 = 2;
    pub const PANIC: u32 = 3;
}

/// Ends the guest: what the monitor passed is not valid.
pub(crate) fn refuse(what: &str) -> ! {
    // The console accepts all text.
    let _ = writeln!(Guest, "the monitor's {what} is not valid");
    exit(code::MONITOR);
}

/// Runs the program; [`crate::main!`] calls it.
pub fn start<F>(start: Start, main: impl FnOnce(Program) -> F) -> !
where
    F: Future<Output = Result<(), Error>> + 'static,
{
    let (host, channel, function) = host(&start);
    finish(runtime::run(host, channel, function, main))
}

/// What the program has of the machine.
pub(crate) fn host(start: &Start) -> (runtime::Host<Guest>, Channel, FunctionStart) {
    let (function, channel, notify) = image::function(start).unwrap_or_else(|what| refuse(what));
    let host = runtime::Host { machine: Guest, notify, ticks, map: region, memory: start.memory_end };
    (host, channel, function)
}

/// Ends the guest.
pub(crate) fn finish(end: runtime::End) -> ! {
    match end {
        runtime::End::Returned => exit(code::RETURNED),
        runtime::End::Failed => exit(code::FAILED),
        runtime::End::Monitor => refuse("channel"),
    }
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    let _ = writeln!(Guest, "the program panicked: {info}");
    exit(code::PANIC);
}
