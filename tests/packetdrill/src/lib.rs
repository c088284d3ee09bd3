//! The TCP/IP stack behind packetdrill's interface for foreign stacks (`--so_filename`), in virtual time.
//!
//! packetdrill plays a script: it makes system calls, sends packets, and compares what the stack returns and sends.
//! Its calls arrive at the functions of `calls`, which convert C arguments and hold the crate's `unsafe`. The other
//! modules are safe:
//!
//! | module | content |
//! |---|---|
//! | `machine` | the stack, its descriptors and its clock |
//! | `library` | which thread may proceed: calls that block, and the thread that lets time pass |
//! | `sockets` | sockets as system calls show them |
//! | `options` | `getsockopt`, `setsockopt`, `TCP_INFO` |
//! | `poll` | `poll` and `epoll` |
//! | `sysctl` | settings from `/proc/sys/net/ipv4` |
//! | `zerocopy` | notifications of `MSG_ZEROCOPY` |
//!
//! Time passes only when packetdrill sleeps, waits for a packet or reads the clock, so results are repeatable.
//! packetdrill reads `TCP_INFO` for assertions, and closes sockets at its end, without that interface: the library is
//! therefore preloaded as well, and replaces `getsockopt`, `close` and `sendfile` for its own descriptors.
//! `scripts/packetdrill.sh` does all this.

mod calls;
mod library;
mod machine;
mod options;
mod poll;
mod sockets;
mod sysctl;
mod zerocopy;
