//! The program of the image of functions: Click with all elements that need no operating system, and those that an
//! image adds. It enters ring 3 at once, as the image of roles does; a separate image, since it is 30 times as large,
//! and each boot copies it.

use super::{Guest, Start, exit, pc, region, ticks};
use crate::function::{FunctionEnd, Host, Monitor, run};
use crate::stock::assign;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt::Write;
use core::panic::PanicInfo;
use ringway_click::Class;

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

/// The guest's program, in ring 3: Click with `classes` besides the project's.
pub fn main(start: Start, classes: &'static [&'static Class]) -> ! {
    if start.is_other {
        run_on_pc(&start, classes);
    }
    let (function, channel, notify) = super::function(&start).unwrap_or_else(|what| refuse(what));
    let host = Host { machine: Guest, notify, ticks, map: region };
    match run(host, Monitor::Channel(channel), Vec::new(), function, classes) {
        FunctionEnd::Stopped => exit(code::STOPPED),
        FunctionEnd::Wrong => exit(code::WRONG),
    }
}

/// The function of the command line and the module that another monitor passed.
fn run_on_pc(start: &Start, classes: &'static [&'static Class]) -> ! {
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
    match run(host, Monitor::Console(pc::say), assigned.nets, function, classes) {
        FunctionEnd::Stopped => {
            pc::say("click: stopped\n");
            pc::end(code::STOPPED)
        }
        FunctionEnd::Wrong => pc::end(code::WRONG),
    }
}

/// Ends a guest that panicked.
pub fn panicked(info: &PanicInfo<'_>) -> ! {
    if pc::is_active() {
        let _ = writeln!(pc::Serial, "click: the guest panicked: {info}");
        pc::end(code::PANIC);
    }
    let _ = writeln!(Guest, "the guest panicked: {info}");
    exit(code::PANIC);
}

/// Defines an image of functions that has these classes, `&'static [&'static Class]`, besides the project's. It is all
/// that the program of such an image consists of.
#[macro_export]
macro_rules! click_image {
    ($classes:expr) => {
        $crate::guest_main!(|start| $crate::image::functions::main(start, $classes));

        #[panic_handler]
        fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
            $crate::image::functions::panicked(info)
        }
    };
}
