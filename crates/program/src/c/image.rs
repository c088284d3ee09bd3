//! The image of a program in C.

use super::Calls;
use super::ram::Ram;
use crate::image::{finish, host, refuse};
use ringway_tiny::image::{Guest, Start, c};

ringway_tiny::guest_main!(start);

/// Runs the program: the C library's start calls its main function.
fn start(start: Start) -> ! {
    let (host, channel, function) = host(&start);
    let ram = Ram::new(c::memory(&start), c::STACK).unwrap_or_else(|| refuse("memory"));
    let mut calls: Calls<Guest> = Calls::new(host, channel, function, ram, c::heap(&start), c::random);
    let arguments = calls.arguments().unwrap_or_else(|| refuse("arguments"));
    if let Err(end) = calls.begin() {
        finish(end);
    }
    c::run(&arguments, move |call, arguments| {
        calls.call(call.number, arguments, call.stack).unwrap_or_else(|end| finish(end))
    })
}
