//! Numbers of the system calls that are trapped.
#![expect(missing_docs, reason = "the names are the calls'")]

pub const SOCKET: i64 = libc::SYS_socket;
pub const BIND: i64 = libc::SYS_bind;
pub const CONNECT: i64 = libc::SYS_connect;
pub const LISTEN: i64 = libc::SYS_listen;
pub const ACCEPT: i64 = libc::SYS_accept;
pub const ACCEPT4: i64 = libc::SYS_accept4;
pub const GETSOCKNAME: i64 = libc::SYS_getsockname;
pub const GETPEERNAME: i64 = libc::SYS_getpeername;
pub const SETSOCKOPT: i64 = libc::SYS_setsockopt;
pub const GETSOCKOPT: i64 = libc::SYS_getsockopt;
pub const SHUTDOWN: i64 = libc::SYS_shutdown;
pub const SENDTO: i64 = libc::SYS_sendto;
pub const RECVFROM: i64 = libc::SYS_recvfrom;
pub const SENDMSG: i64 = libc::SYS_sendmsg;
pub const RECVMSG: i64 = libc::SYS_recvmsg;
pub const SENDMMSG: i64 = libc::SYS_sendmmsg;
pub const RECVMMSG: i64 = libc::SYS_recvmmsg;
pub const IOCTL: i64 = libc::SYS_ioctl;
