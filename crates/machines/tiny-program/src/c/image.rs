//! The image of a program in C.

use super::Calls;
use super::memory::ProgramMemory;
use crate::image::{finish, host, host_on_pc, refuse};
use crate::runtime::Host;
use ringway_tiny::image::{Start, c};
use ringway_tiny::{FunctionStart, Machine, Monitor};

ringway_tiny::guest_main!(start);

/// Runs the program: the C library's start calls its main function.
fn start(start: Start) -> ! {
    if start.is_other {
        run(host_on_pc(&start), &start);
    }
    run(host(&start), &start)
}

fn run<M: Machine + 'static>(
    (host, monitor, function): (Host<M>, Monitor, FunctionStart),
    start: &Start,
) -> ! {
    let ram = ProgramMemory::new(c::memory(start), c::STACK).unwrap_or_else(|| refuse("memory"));
    let mut calls: Calls<M> = Calls::new(host, monitor, function, ram, c::heap(start), c::random);
    let arguments = calls.arguments().unwrap_or_else(|| refuse("arguments"));
    if let Err(end) = calls.begin() {
        finish(end);
    }
    c::run(&arguments, move |call, arguments| {
        calls.call(call.number, arguments, call.stack).unwrap_or_else(|end| finish(end))
    })
}
