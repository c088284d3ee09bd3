//! Tests with real peers: guests, DPDK, kernels.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod c_library;
mod e1000;
mod iommu_guests;
mod kubernetes;
mod linux_guests;
mod migration;
mod nic_guests;
mod notifications;
mod ring_guests;
mod ring_programs;
mod tcp_uml;
mod vfio_user;
mod virtio_user;
