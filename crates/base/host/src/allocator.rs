//! The memory allocator of the C library.

/// Gives memory that was freed back to the system. Without this, the C library keeps what a large request took, for
/// each thread that ever served one.
pub fn give_memory_back() {
    // SAFETY: it changes only memory that the allocator has, and takes its locks.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Keeps the C library from keeping much of what was freed: few arenas for all threads, and large blocks that are
/// always mapped and unmapped by themselves. By default it has eight arenas for each core, and allocates blocks of up
/// to 32 MB in them once blocks of that size were freed.
pub fn keep_little_memory() {
    const LARGE: libc::c_int = 256 << 10;
    const ARENAS: libc::c_int = 2;
    // SAFETY: it changes only the allocator's settings, under its locks.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE);
        libc::mallopt(libc::M_ARENA_MAX, ARENAS);
    }
}

#[cfg(test)]
mod tests {
    /// Bytes of this process in memory.
    fn resident() -> usize {
        let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
        pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
    }

    #[test]
    #[cfg(target_env = "gnu")]
    fn freed_memory_is_given_back() {
        let mut blocks: Vec<Vec<u8>> = (0..1 << 14).map(|_| vec![1; 4000]).collect();
        let keeps_the_top = blocks.pop();
        let full = resident();
        drop(blocks);
        super::give_memory_back();
        let after = resident();
        assert!(after + (32 << 20) < full, "{full} bytes before, {after} after");
        drop(keeps_the_top);
    }
}
