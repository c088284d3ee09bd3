//! The library by which unmodified netmap programs use ring ports (`LD_PRELOAD`; see `docs/netmap.md`).
//!
//! Its functions come before the C library's of the same names. `open` of `/dev/netmap` makes a handle: an epoll
//! descriptor of this process, so that it can be passed to every call that takes a descriptor. A request to register a
//! port connects the handle to the port's ring; from then on the epoll descriptor watches the ring's eventfd and
//! socket. `mmap` of the handle maps a memfd with netmap's layout, and each sync copies frames between that memory and
//! the ring's slots.
//!
//! | module | |
//! |---|---|
//! | `hooks` | the functions |
//! | `handles` | which descriptors are handles |
//! | `request`, `names` | netmap's requests; the port that a name means |
//! | `region`, `port` | netmap's memory; a registered port and its syncs |
//! | `waiting`, `sets` | poll and select; epoll |
//!
//! A program can write all of that memory at any time, so every number in it is read once and checked. The library runs
//! in processes of others: it prints nothing and ends nothing. Read `port.rs` first.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
#![cfg_attr(test, allow(dead_code, reason = "the tests' own C functions are not replaced"))]

mod handles;
mod hooks;
mod names;
mod port;
#[path = "../../preload/src/real.rs"]
#[allow(dead_code, reason = "it has what other preloaded libraries use, too")]
mod real;
mod region;
mod request;
mod sets;
mod waiting;

/// A result with an errno.
type Result<T> = std::result::Result<T, i32>;
