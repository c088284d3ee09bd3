//! A library to preload into programs that know less of this processor than its kernel asks of them.

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

/// A library for `LD_PRELOAD`: a `ptrace` with which a tracer may write less of a process's extended state than this
/// processor has. User-Mode Linux 6.1 writes 2,696 bytes.
pub fn ptrace_library() -> &'static [u8] {
    include_bytes!(concat!(env!("OUT_DIR"), "/ptrace.so"))
}
