//! Error numbers of replies: those of Linux on the host, as the protocol requires.

/// Not found: no such mapping.
pub const ENOENT: u32 = 2;
/// The access failed.
pub const EIO: u32 = 5;
/// Too large.
pub const E2BIG: u32 = 7;
/// The memory is not accessible.
pub const EFAULT: u32 = 14;
/// The range is mapped already.
pub const EEXIST: u32 = 17;
/// Invalid message.
pub const EINVAL: u32 = 22;
/// Too many mappings.
pub const ENOSPC: u32 = 28;
/// Not supported.
pub const ENOTSUP: u32 = 95;
