//! Real programs, served by the kernel's TCP and by ours. Each test has one body for both, and the kernel's result is
//! the expected one.
#![allow(clippy::unwrap_used)]

#[path = "integration/bytes.rs"]
mod bytes;
#[path = "integration/deferred.rs"]
mod deferred;
#[path = "integration/direct.rs"]
mod direct;
#[path = "integration/faults.rs"]
mod faults;
#[path = "integration/hostile.rs"]
mod hostile;
#[path = "integration/lab.rs"]
mod lab;
#[path = "integration/linux.rs"]
mod linux;
#[path = "integration/listening.rs"]
mod listening;
#[path = "integration/many.rs"]
mod many;
#[path = "integration/names.rs"]
mod names;
#[path = "integration/preload.rs"]
mod preload;
#[path = "integration/programs.rs"]
mod programs;
#[path = "integration/servers.rs"]
mod servers;
#[path = "integration/signals.rs"]
mod signals;
#[path = "integration/user_network.rs"]
mod user_network;
