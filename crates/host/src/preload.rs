//! A library to preload into programs that know less of this processor than its kernel asks of them.

use crate::error::{HostError, Named};
use rustix::fs::{MemfdFlags, SealFlags};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;

/// What `build.rs` made of `preload/ptrace.rs`.
static LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/ptrace.so"));

/// Bytes of a process's extended state here: what `PTRACE_SETREGSET` with `NT_X86_XSTATE` has to write. 0 where
/// there is no such thing.
pub fn extended_state() -> usize {
    // Leaf 0DH, EBX: the size in standard format of what the kernel enabled (Intel SDM, volume 2, CPUID).
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    let size = std::arch::x86_64::__cpuid_count(0xd, 0).ebx as usize;
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let size = 0;
    size
}

/// For `LD_PRELOAD`: a `ptrace` with which a tracer may write less of a process's extended state than this
/// processor has. User-Mode Linux 6.1 writes 2,696 bytes.
#[derive(Debug)]
pub struct ShortState {
    file: OwnedFd,
}

impl ShortState {
    /// The library, in memory that nobody can write any more.
    pub fn new() -> Result<ShortState, HostError> {
        // Programs that are started have it too.
        let file = rustix::fs::memfd_create("ptrace.so", MemfdFlags::ALLOW_SEALING).named("memfd_create")?;
        let mut rest = LIBRARY;
        while !rest.is_empty() {
            let written = rustix::io::write(&file, rest).named("write to a memfd")?;
            rest = rest.get(written..).unwrap_or_default();
        }
        let seals = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&file, seals).named("sealing a memfd")?;
        Ok(ShortState { file })
    }

    /// Where a program finds it that is started while this value lives. Not in a folder, since `/run` may be mounted
    /// `noexec`, nor below this process's number, where programs with other capabilities may not look.
    pub fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.file.as_raw_fd()).into()
    }
}
