//! Machines and images for tests.
// A test that can't continue panics; each test uses some of these.
#![allow(clippy::unwrap_used, clippy::panic, dead_code)]
pub mod lab;
pub mod network;
pub mod pipes;

use ringway_host::HostError;
use ringway_vmm::{End, Vm, VmError};
use std::time::Duration;

pub const MEMORY: usize = 8 << 20;
/// Longer than any guest here takes.
pub const BOUND: Duration = Duration::from_secs(60);

/// A machine; none, with a message, where `/dev/kvm` can't be opened.
pub fn machine() -> Option<Vm> {
    match Vm::new(MEMORY) {
        Ok(vm) => Some(vm),
        Err(VmError::Host(HostError::Call { call: "opening /dev/kvm", error })) => {
            eprintln!("left out: there is no KVM here: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Runs the guest; its end, and its output.
pub fn run(vm: &mut Vm, limit: Duration) -> (End, String) {
    let mut output = Vec::new();
    let end = vm.run(limit, &mut |bytes| output.extend_from_slice(bytes)).unwrap();
    (end, String::from_utf8_lossy(&output).into_owned())
}

/// A PVH image of 32-bit code, loaded and entered at 1 MB.
pub fn image(code: &[u8]) -> Vec<u8> {
    const ENTRY: u32 = 0x10_0000;
    let mut image = [&b"\x7fELF\x02\x01\x01"[..], &[0; 9], &[2, 0, 0x3e, 0, 1, 0, 0, 0]].concat();
    image.extend(u64::from(ENTRY).to_le_bytes());
    image.extend(64_u64.to_le_bytes());
    image.extend([0; 8]);
    image.extend([0, 0, 0, 0, 64, 0, 56, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
    let (note, len) = (64 + 2 * 56, code.len() as u64);
    for (kind, offset, address, len) in [(4_u32, note, 0, 20), (1, note + 20, u64::from(ENTRY), len)] {
        image.extend([kind, 7].map(u32::to_le_bytes).concat());
        image.extend([offset, address, address, len, len, 4].map(u64::to_le_bytes).concat());
    }
    image.extend([4, 4, 18].map(u32::to_le_bytes).concat());
    image.extend(b"Xen\0");
    image.extend(ENTRY.to_le_bytes());
    image.extend(code);
    image
}
