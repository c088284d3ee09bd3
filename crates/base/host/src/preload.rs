//! A preloaded library for programs that support less processor state than the kernel requires.

/// Bytes of a process's extended state that User-Mode Linux writes back, up to AVX-512: `HOST_FP_SIZE` of Linux 6.1,
/// arch/x86/um/user-offsets.c.
const WRITTEN: usize = 2696;

/// Whether this processor's state is larger than what User-Mode Linux writes, so that it starts only with the library.
pub fn uml_needs_ptrace_library() -> bool {
    extended_state() > WRITTEN
}

/// Size in bytes of a process's extended state, which `PTRACE_SETREGSET` with `NT_X86_XSTATE` must write. 0
/// on other processors.
pub fn extended_state() -> usize {
    // Leaf 0DH, EBX: the size in standard format of the state components enabled by the kernel (Intel SDM,
    // volume 2, CPUID).
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    let size = std::arch::x86_64::__cpuid_count(0xd, 0).ebx as usize;
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let size = 0;
    size
}

/// A library for `LD_PRELOAD` with a `ptrace` that lets a tracer write a truncated extended state. User-Mode
/// Linux 6.1 writes 2,696 bytes.
pub fn ptrace_library() -> &'static [u8] {
    include_bytes!(concat!(env!("OUT_DIR"), "/ptrace.so"))
}
