//! The library of programs that run as tiny virtual machines.
//!
//! A program has no operating system: it is an image with this library, an allocator and a TCP/IP stack, started by
//! `ringway` with ring ports in place of network cards. [`main!`] names its main function, which is an asynchronous one
//! with a [`Program`]; `ringway tiny build` makes the image. docs/tiny-programs.md teaches how.
//!
//! ```text
//! #![no_std]
//! #![no_main]
//! extern crate alloc;
//!
//! use ringway_tiny_program::{Error, Program, log};
//!
//! ringway_tiny_program::main!(main);
//!
//! async fn main(program: Program) -> Result<(), Error> {
//!     let mut socket = program.network()?.bind(7)?;
//!     log!(program, "echo on port 7");
//!     loop {
//!         let (bytes, from) = socket.recv_from().await?;
//!         socket.send_to(&bytes, from)?;
//!     }
//! }
//! ```
//!
//! # Structure
//!
//! One thread runs everything in turns: it takes what came on the ports, runs the tasks that can go on, sends, and
//! sleeps if there was nothing to do until a port or the monitor wakes it, or a deadline is near. `runtime` has the
//! turn, `executor` the tasks, `state` what tasks share with the turn; `port`, `network` and `socket` are what tasks
//! see of it. Read `runtime.rs` first. With the feature `c`, the library is that of programs in C: `c`.
//!
//! Memory is bounded: the number of tasks, of open streams and the bytes of their buffers depend on the memory of the
//! machine.
#![cfg_attr(not(test), no_std)]
// Only an image runs a program.
#![cfg_attr(not(any(test, target_os = "none")), allow(dead_code))]

extern crate alloc;

#[cfg(any(test, all(feature = "c", target_os = "none")))]
mod c;
mod error;
mod executor;
#[cfg(target_os = "none")]
mod image;
mod network;
mod port;
mod program;
mod runtime;
mod socket;
mod state;
#[cfg(test)]
mod tests;

pub use error::Error;
#[cfg(target_os = "none")]
#[doc(hidden)]
pub use image::start;
pub use network::{Network, NetworkConfig};
pub use port::Port;
pub use program::Program;
pub use ringway_netstack::{Cidr, ConnectionError, SocketError};
#[doc(hidden)]
pub use ringway_tiny as tiny;
pub use socket::{TcpListener, TcpStream, UdpSocket};

/// Makes a function the program's main function: `async fn(Program) -> Result<(), Error>`. The program ends when it
/// returns; an error is shown by `ringway ps`.
#[macro_export]
macro_rules! main {
    ($main:path) => {
        $crate::tiny::guest_main!(|start| $crate::start(start, $main));
    };
}

/// Writes a line to the fabric's log: `log!(program, "{} connections", count)`.
#[macro_export]
macro_rules! log {
    ($program:expr, $($arguments:tt)+) => {
        $program.log(format_args!($($arguments)+))
    };
}
