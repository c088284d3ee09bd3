//! Linux's numbers on x86-64, which a C library uses: system calls (`asm/unistd_64.h`), errors, flags, options.

/// System calls.
pub(super) mod number {
    pub const READ: u64 = 0;
    pub const WRITE: u64 = 1;
    pub const OPEN: u64 = 2;
    pub const CLOSE: u64 = 3;
    pub const POLL: u64 = 7;
    pub const LSEEK: u64 = 8;
    pub const MMAP: u64 = 9;
    pub const MPROTECT: u64 = 10;
    pub const MUNMAP: u64 = 11;
    pub const BRK: u64 = 12;
    pub const RT_SIGACTION: u64 = 13;
    pub const RT_SIGPROCMASK: u64 = 14;
    pub const IOCTL: u64 = 16;
    pub const READV: u64 = 19;
    pub const WRITEV: u64 = 20;
    pub const SCHED_YIELD: u64 = 24;
    pub const DUP: u64 = 32;
    pub const DUP2: u64 = 33;
    pub const PAUSE: u64 = 34;
    pub const NANOSLEEP: u64 = 35;
    pub const GETPID: u64 = 39;
    pub const SOCKET: u64 = 41;
    pub const CONNECT: u64 = 42;
    pub const ACCEPT: u64 = 43;
    pub const SENDTO: u64 = 44;
    pub const RECVFROM: u64 = 45;
    pub const SENDMSG: u64 = 46;
    pub const RECVMSG: u64 = 47;
    pub const SHUTDOWN: u64 = 48;
    pub const BIND: u64 = 49;
    pub const LISTEN: u64 = 50;
    pub const GETSOCKNAME: u64 = 51;
    pub const GETPEERNAME: u64 = 52;
    pub const SETSOCKOPT: u64 = 54;
    pub const GETSOCKOPT: u64 = 55;
    pub const EXIT: u64 = 60;
    pub const KILL: u64 = 62;
    pub const UNAME: u64 = 63;
    pub const FCNTL: u64 = 72;
    pub const UMASK: u64 = 95;
    pub const GETTIMEOFDAY: u64 = 96;
    pub const TIMES: u64 = 100;
    pub const GETUID: u64 = 102;
    pub const GETGID: u64 = 104;
    pub const GETEUID: u64 = 107;
    pub const GETEGID: u64 = 108;
    pub const GETPPID: u64 = 110;
    pub const RT_SIGSUSPEND: u64 = 130;
    pub const TIME: u64 = 201;
    pub const CLOCK_GETTIME: u64 = 228;
    pub const CLOCK_NANOSLEEP: u64 = 230;
    pub const EXIT_GROUP: u64 = 231;
    pub const OPENAT: u64 = 257;
    pub const PSELECT6: u64 = 270;
    pub const PPOLL: u64 = 271;
    pub const ACCEPT4: u64 = 288;
    pub const DUP3: u64 = 292;
    pub const GETRANDOM: u64 = 318;
}

/// Why a system call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Errno {
    NoEntry = 2,
    Io = 5,
    BadFile = 9,
    Again = 11,
    NoMemory = 12,
    Fault = 14,
    NoDevice = 19,
    Invalid = 22,
    TooManyFiles = 24,
    NoTerminal = 25,
    NoSeek = 29,
    BrokenPipe = 32,
    NoCall = 38,
    NoSocket = 88,
    NeedsAddress = 89,
    MessageTooLong = 90,
    NoOption = 92,
    NoProtocol = 93,
    NoType = 94,
    NotSupported = 95,
    NoFamily = 97,
    AddressInUse = 98,
    AddressNotAvailable = 99,
    NetworkDown = 100,
    Unreachable = 101,
    Reset = 104,
    NoBuffers = 105,
    IsConnected = 106,
    NotConnected = 107,
    TimedOut = 110,
    Refused = 111,
    NoRoute = 113,
    Already = 114,
    InProgress = 115,
}

/// Flags of open files, and of `socket` and `accept4`.
pub(super) const O_NONBLOCK: u64 = 0o4000;
pub(super) const O_CLOEXEC: u64 = 0o2_000_000;
pub(super) const O_RDWR: u64 = 2;

/// Commands of `fcntl` and `ioctl`.
pub(super) mod control {
    pub const F_DUPFD: u64 = 0;
    pub const F_GETFD: u64 = 1;
    pub const F_SETFD: u64 = 2;
    pub const F_GETFL: u64 = 3;
    pub const F_SETFL: u64 = 4;
    pub const F_DUPFD_CLOEXEC: u64 = 1030;
    pub const TCGETS: u64 = 0x5401;
    pub const FIONREAD: u64 = 0x541b;
    pub const FIONBIO: u64 = 0x5421;
}

/// Families and kinds of sockets, and their protocols.
pub(super) const AF_UNSPEC: u16 = 0;
pub(super) const AF_INET: u16 = 2;
pub(super) const AF_INET6: u16 = 10;
pub(super) const SOCK_STREAM: u64 = 1;
pub(super) const SOCK_DGRAM: u64 = 2;
pub(super) const IPPROTO_TCP: u64 = 6;
pub(super) const IPPROTO_UDP: u64 = 17;
pub(super) const IPPROTO_IPV6: u64 = 41;

/// Flags of what is sent and received.
pub(super) mod message {
    pub const PEEK: u64 = 2;
    pub const TRUNC: u64 = 0x20;
    pub const DONTWAIT: u64 = 0x40;
    pub const WAITALL: u64 = 0x100;
}

/// Options of sockets.
pub(super) mod option {
    pub const SOL_SOCKET: u64 = 1;
    pub const SO_REUSEADDR: u64 = 2;
    pub const SO_TYPE: u64 = 3;
    pub const SO_ERROR: u64 = 4;
    pub const SO_BROADCAST: u64 = 6;
    pub const SO_SNDBUF: u64 = 7;
    pub const SO_RCVBUF: u64 = 8;
    pub const SO_KEEPALIVE: u64 = 9;
    pub const SO_LINGER: u64 = 13;
    pub const SO_REUSEPORT: u64 = 15;
    pub const SO_RCVTIMEO: u64 = 20;
    pub const SO_SNDTIMEO: u64 = 21;
    pub const SO_ACCEPTCONN: u64 = 30;
    pub const SO_PROTOCOL: u64 = 38;
    pub const SO_DOMAIN: u64 = 39;
    pub const TCP_NODELAY: u64 = 1;
    pub const TCP_CORK: u64 = 3;
    pub const TCP_USER_TIMEOUT: u64 = 18;
    pub const IPV6_V6ONLY: u64 = 26;
}

/// Events of `poll`.
pub(super) mod event {
    pub const IN: u16 = 1;
    pub const OUT: u16 = 4;
    pub const ERR: u16 = 8;
    pub const HUP: u16 = 0x10;
    pub const NVAL: u16 = 0x20;
    pub const RDNORM: u16 = 0x40;
    pub const WRNORM: u16 = 0x100;
    pub const RDHUP: u16 = 0x2000;
}

/// Clocks.
pub(super) const CLOCK_REALTIME: u64 = 0;
pub(super) const CLOCK_REALTIME_COARSE: u64 = 5;
pub(super) const CLOCKS: u64 = 8;
pub(super) const TIMER_ABSTIME: u64 = 1;

/// `MAP_FIXED` and `MAP_ANONYMOUS`.
pub(super) const MAP_FIXED: u64 = 0x10;
pub(super) const MAP_ANONYMOUS: u64 = 0x20;

/// What the auxiliary vector has: the size of pages, and its end.
pub(super) const AT_PAGESZ: u64 = 6;
pub(super) const AT_NULL: u64 = 0;
