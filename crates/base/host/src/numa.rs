//! NUMA nodes: their cores, and memory on one of them.
//!
//! A node is preferred, not required: when it has no free memory, the kernel takes that of another one.

use crate::error::{HostError, Named};
use crate::machine::{list, word};
use crate::tap::last_error;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use std::cell::Cell;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::OnceLock;

/// A NUMA node of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its number.
    pub number: u16,
    /// Its cores; none if it only has memory.
    pub cores: Vec<usize>,
}

/// This host's nodes; none if the kernel does not show any. They are read once, before the process is confined.
pub fn nodes() -> &'static [Node] {
    static NODES: OnceLock<Vec<Node>> = OnceLock::new();
    NODES.get_or_init(|| nodes_in(Path::new("/sys/devices/system/node")))
}

fn nodes_in(folder: &Path) -> Vec<Node> {
    let node = |number: usize| {
        let number = u16::try_from(number).ok()?;
        Some(Node { number, cores: list(&word(folder.join(format!("node{number}/cpulist")))) })
    };
    list(&word(folder.join("online"))).into_iter().filter_map(node).collect()
}

/// The nodes, if there are several: with one, every core and all memory are on it.
fn several() -> Option<&'static [Node]> {
    Some(nodes()).filter(|nodes| nodes.len() > 1)
}

/// The node of a core, on a host with several.
pub fn node_of_core(core: usize) -> Option<u16> {
    several()?.iter().find(|node| node.cores.contains(&core)).map(|node| node.number)
}

/// Words of a set of nodes, of which the kernel has 1024 at most.
const WORDS: usize = 1024 / u64::BITS as usize;
/// Bits of the set as the calls want them: one more than they read or write.
const BITS: usize = 1024 + 1;

/// Where new pages are: a mode, and the nodes that it is about (set_mempolicy(2)).
#[derive(Debug, PartialEq, Eq)]
struct MemoryPolicy {
    mode: libc::c_int,
    nodes: [u64; WORDS],
}

impl MemoryPolicy {
    fn preferring(node: u16) -> MemoryPolicy {
        let mut nodes = [0; WORDS];
        nodes[usize::from(node) / u64::BITS as usize % WORDS] = 1 << (u32::from(node) % u64::BITS);
        MemoryPolicy { mode: libc::MPOL_PREFERRED, nodes }
    }

    /// The calling thread's policy, or that of the memory at an address.
    fn get(address: Option<usize>) -> Result<MemoryPolicy, Errno> {
        /// `MPOL_F_ADDR` (linux/mempolicy.h).
        const OF_ADDRESS: usize = 2;
        let mut policy = MemoryPolicy { mode: 0, nodes: [0; WORDS] };
        let flags = if address.is_some() { OF_ADDRESS } else { 0 };
        let (mode, nodes) = (&raw mut policy.mode, policy.nodes.as_mut_ptr());
        let at = address.unwrap_or(0);
        // SAFETY: the kernel writes an `int`, and the bits of the set.
        let done = unsafe { libc::syscall(libc::SYS_get_mempolicy, mode, nodes, BITS, at, flags) };
        if done == 0 { Ok(policy) } else { Err(last_error()) }
    }

    /// Makes it the calling thread's.
    fn set(&self) -> Result<(), Errno> {
        // SAFETY: the kernel reads the bits of the set, and changes no memory.
        let done = unsafe { libc::syscall(libc::SYS_set_mempolicy, self.mode, self.nodes.as_ptr(), BITS) };
        if done == 0 { Ok(()) } else { Err(last_error()) }
    }
}

thread_local! {
    /// The node that this thread prefers, within [`on_node`].
    static PREFERRED: Cell<Option<u16>> = const { Cell::new(None) };
}

/// A node that this thread prefers until this is dropped.
struct Preference {
    before: MemoryPolicy,
    outer: Option<u16>,
}

impl Preference {
    fn begin(node: u16) -> Result<Preference, Errno> {
        let before = MemoryPolicy::get(None)?;
        MemoryPolicy::preferring(node).set()?;
        Ok(Preference { before, outer: PREFERRED.replace(Some(node)) })
    }
}

impl Drop for Preference {
    fn drop(&mut self) {
        PREFERRED.set(self.outer);
        // The kernel accepts again what it accepted before.
        let _ = self.before.set();
    }
}

/// Makes something whose memory is preferably on `node`: what this thread touches first meanwhile, and all of the
/// memfds that it makes. Without a node, on a host with one, and where the system refuses it, the kernel chooses.
pub fn on_node<T>(node: Option<u16>, make: impl FnOnce() -> T) -> T {
    let node = node.filter(|_| several().is_some());
    let _preference = node.and_then(|node| Preference::begin(node).ok());
    make()
}

/// Has the pages of a new memfd on the node that this thread prefers, whoever touches them first: the kernel keeps that
/// with the file. It does not for huge pages, which the thread allocates at once.
pub(crate) fn place(file: &OwnedFd, size: usize) {
    let Some(node) = PREFERRED.get() else { return };
    let flags = MapFlags::SHARED | MapFlags::NORESERVE;
    // SAFETY: a new mapping at a place that the kernel chooses replaces nothing.
    let base = unsafe { rustix::mm::mmap(std::ptr::null_mut(), size, ProtFlags::empty(), flags, file, 0) };
    // Memory elsewhere is slower, but works.
    let Ok(base) = base else { return };
    let MemoryPolicy { mode, nodes } = MemoryPolicy::preferring(node);
    // SAFETY: the kernel reads the bits of the set; the range is the mapping.
    unsafe { libc::syscall(libc::SYS_mbind, base, size, mode, nodes.as_ptr(), BITS, 0) };
    // SAFETY: mapped above, and no pointer into it remains.
    let _ = unsafe { rustix::mm::munmap(base, size) };
}

/// Has the memory of the calling thread preferably on a node from now on, and with `on_cores` the thread itself on
/// those of the node's cores that it may use. On a host with one node nothing changes.
pub fn stay_on_node(number: u16, on_cores: bool) -> Result<(), HostError> {
    let found = several().and_then(|nodes| nodes.iter().find(|node| node.number == number));
    let Some(node) = found else { return Ok(()) };
    if on_cores {
        crate::thread::pin_within(&node.cores)?;
    }
    MemoryPolicy::preferring(number).set().named("set_mempolicy")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_without_cores_and_between_others_are_read() {
        let folder = std::env::temp_dir().join(format!("ringway-nodes-{}", std::process::id()));
        for (node, cores) in [(0, "0-1,4\n"), (2, "2-3\n"), (3, "\n")] {
            let own = folder.join(format!("node{node}"));
            std::fs::create_dir_all(&own).unwrap();
            std::fs::write(own.join("cpulist"), cores).unwrap();
        }
        assert_eq!(nodes_in(&folder), []);
        std::fs::write(folder.join("online"), "0,2-3\n").unwrap();
        let expected = [(0, vec![0, 1, 4]), (2, vec![2, 3]), (3, vec![])];
        assert_eq!(nodes_in(&folder), expected.map(|(number, cores)| Node { number, cores }));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_memfd_keeps_the_node_that_its_maker_preferred() {
        // A kernel without NUMA, or a container, refuses the calls.
        let Ok(before) = MemoryPolicy::get(None) else { return };
        let Ok(preference) = Preference::begin(0) else { return };
        assert_eq!(MemoryPolicy::get(None), Ok(MemoryPolicy::preferring(0)));
        let file = crate::memfd("on-a-node", 8192).unwrap();
        drop(preference);
        assert_eq!(MemoryPolicy::get(None), Ok(before));
        let mapping = crate::Mapping::shared(&file, 0, 8192).unwrap();
        let policy = MemoryPolicy::get(Some(mapping.words().as_ptr().addr()));
        assert_eq!(policy, Ok(MemoryPolicy::preferring(0)));
        let other = crate::memfd("elsewhere", 8192).unwrap();
        let mapping = crate::Mapping::shared(&other, 0, 8192).unwrap();
        let policy = MemoryPolicy::get(Some(mapping.words().as_ptr().addr()));
        assert_ne!(policy, Ok(MemoryPolicy::preferring(0)));
    }

    #[test]
    fn what_is_made_on_any_node_is_made() {
        for node in [None, Some(0), Some(1023)] {
            assert_eq!(on_node(node, || 7), 7);
        }
        assert_eq!(PREFERRED.get(), None);
    }
}
