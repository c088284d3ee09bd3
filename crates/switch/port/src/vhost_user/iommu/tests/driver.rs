//! Access of a guest's user-space driver to the guest's kernel, with and without an IOMMU.
//!
//! The guest's memory has kernel pages, which the driver can't access directly, and the driver's own pages.
//! The driver puts kernel addresses into descriptors: as a receive buffer, so that an incoming frame
//! overwrites the kernel, and as a frame to send, so that the kernel's secrets leave the guest.

use super::guest::{BOTH, GuestConfig, Monitor, Space, add, framed};
use super::rig::reflect;
use crate::vhost_user::tests::session::port;
use ringway_mem::Reader;

/// The driver's own pages, and the kernel's.
const OWN: u64 = 0x20_0000;
const KERNEL: u64 = 0x40_0000;
const LEN: usize = 400;

/// Whether the kernel was overwritten, and whether it was sent, with a guest of `kind`.
fn reached(kind: GuestConfig) -> [bool; 2] {
    [true, false].map(|writes| {
        let (mut backend, mut queues, _) = port();
        let space = Space::new(kind);
        let (mut rx, mut tx) = (space.driver(0), space.driver(1));
        let mut monitor = Monitor::new(&mut backend, &space);
        // The driver's own memory only, identity-mapped as VFIO does it.
        monitor.map(OWN, OWN, 0x1_0000, BOTH);
        monitor.start(0);
        monitor.start(1);
        let (evil, secret) = (framed(3, LEN), framed(4, LEN));
        space.span(OWN, evil.len() as u32).write(&evil);
        space.span(KERNEL, secret.len() as u32).write(&secret);
        let (from, to) = if writes { (OWN, KERNEL) } else { (KERNEL, OWN + 0x2000) };
        add(&mut rx, to, 2048, true);
        add(&mut tx, from, evil.len(), false);
        let mut reader = Reader::register().unwrap();
        for _ in 0..20 {
            reflect(&mut reader, &mut queues[0]);
            monitor.answer_while();
        }
        let at = |at: u64| space.bytes(at, secret.len())[12..].to_vec();
        if writes { at(KERNEL) != secret[12..] } else { at(OWN + 0x2000) == secret[12..] }
    })
}

#[test]
fn a_user_space_driver_reaches_kernel_memory_only_without_an_iommu() {
    for packed in [false, true] {
        let kind = |iommu| GuestConfig { packed, iommu, page: 4096, ring: 256 };
        assert_eq!(reached(kind(false)), [true, true], "the driver of a guest without an IOMMU can");
        assert_eq!(reached(kind(true)), [false, false], "a driver behind one can't");
    }
}
