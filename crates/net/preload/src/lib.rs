//! The library by which unmodified programs use their connections in a stack that they share (see `ringway-direct`).
//!
//! The loader of each program in direct mode (`Options::direct` of `ringway-exec`) loads it (`/etc/ld.so.preload`), so
//! that its functions come before the C library's of the same names. After some calls on a TCP connection it asks the
//! agent, which lets the connection enter the shared stack; from then on the library serves reading, writing and
//! waiting there. Whatever it can't serve exactly is left to the kernel, and thus to the agent: the connection leaves,
//! for good or for a while, and the program does not notice.
//!
//! | module | |
//! |---|---|
//! | `hooks` | the functions |
//! | `table`, `sets` | what each descriptor, and each epoll set, is to the library |
//! | `moving` | which connections enter, and why they leave |
//! | `transfer`, `waiting`, `epoll` | what is served |
//! | `listening` | listening sockets, and what they accept |
//! | `descriptors`, `process`, `signals` | what else concerns connections |
//! | `group` | the shared stack: turns, sleeping and waking, as `direct/src/waiting.rs` has them |
//! | `guard`, `deferral` | the lock of this process's tables; handlers that run when a thread has left the library |
//! | `real` | the C library's functions |
//!
//! All of it runs in processes of others: it prints nothing, ends nothing, keeps `errno`, and needs no other crate of
//! Ringway, since it is built apart (`exec/build.rs`). Read `moving.rs` first.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
#![cfg_attr(test, allow(dead_code, reason = "the tests' own C functions are not replaced"))]

#[path = "../../direct-stack/src/abi.rs"]
#[allow(dead_code, reason = "it has what the agent and the attendant use, too")]
mod abi;
mod deferral;
mod descriptors;
mod epoll;
mod group;
mod guard;
#[allow(non_snake_case, reason = "they are the C library's names")]
mod hooks;
mod listening;
mod moving;
mod process;
mod real;
mod sets;
mod signals;
mod table;
mod transfer;
mod waiting;
