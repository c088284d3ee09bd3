//! The library by which unmodified netmap programs use ring ports (`LD_PRELOAD`; see `docs/netmap.md`).
//!
//! Its functions come before the C library's of the same names. `open` of `/dev/netmap` makes a handle: a socket that
//! stores descriptors, and so can be passed to every call that takes one, and to other processes. A request to
//! register a port connects the handle to the port's ring, and stores there what another process needs to go on with
//! it. `mmap` of the handle maps a memfd with netmap's layout, whose buffers are those of the ring, too; each sync
//! names them in the ring's slots, or copies frames where the ring has others. What several processes have to agree
//! on is in the same memfd, behind the part that programs map.
//!
//! | module | |
//! |---|---|
//! | `hooks` | the functions |
//! | `handles` | which descriptors are handles |
//! | `request`, `fields`, `options`, `register`, `names` | netmap's requests; what a name means |
//! | `region`, `rings`, `shared`, `lock` | netmap's memory; what processes share |
//! | `port`, `side`, `transfer`, `in_place` | a registered port and its syncs |
//! | `pipe`, `monitor`, `monitor_server` | pipes; monitors, also of another program's port |
//! | `vale`, `csb` | ports of switches; sync kloops |
//! | `waiting`, `sets` | poll and select; epoll |
//! | `fuzzing` | what fuzz targets use |
//!
//! A program can write all of that memory at any time, so every number in it is read once and checked. The library runs
//! in processes of others: it prints nothing and ends nothing. Read `port.rs` first.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
#![cfg_attr(
    any(test, not(feature = "hooks")),
    allow(dead_code, reason = "the C functions of tests and fuzz targets are not replaced")
)]

mod clients;
mod csb;
mod fields;
#[cfg(any(test, not(feature = "hooks")))]
pub mod fuzzing;
mod handles;
#[cfg(feature = "hooks")]
mod hooks;
mod in_place;
#[cfg(test)]
mod in_place_tests;
mod lock;
mod monitor;
mod monitor_server;
mod names;
mod options;
mod pipe;
mod port;
#[path = "../../preload/src/real.rs"]
#[allow(dead_code, reason = "it has what other preloaded libraries use, too")]
#[cfg_attr(not(feature = "hooks"), allow(unused_imports, unused_macros, reason = "it has what `hooks` uses"))]
mod real;
mod region;
mod register;
mod request;
mod rings;
mod sets;
mod shared;
mod side;
#[cfg(test)]
mod tests;
mod transfer;
mod vale;
mod waiting;

/// A result with an errno.
type Result<T> = std::result::Result<T, i32>;
