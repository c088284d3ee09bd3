//! Connections that several processes share. Each maps the same image at the same address: a [`Shared`] stack with its
//! heap, so that pointers are valid in all of them, and whoever holds the lock runs it. The image is `main.rs`; this
//! library is what it consists of, and how it is called: by a [`Call`].
//!
//! The stack has only connections that began in another one, the agent's, and moved (see
//! [`Stack::detach`](ringway_netstack::Stack::detach)). It stands between the port and the agent: what arrives for
//! others than its connections goes on to the agent, by a ring of the same kind, and what the agent sends goes to the
//! port. So the agent touches nothing else of what the processes write, and nothing changes for it.
//!
//! Read `shared.rs` first.
#![cfg_attr(not(test), no_std)]

extern crate alloc;

pub mod abi;
mod call;
mod end;
mod shared;

pub use abi::{AGENT_AT, Call, Flags, Operation, PORT_AT};
pub use call::{bit, result_code, result_of};
pub use shared::{Arguments, Shared};
