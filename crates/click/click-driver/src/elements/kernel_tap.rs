//! `KernelTap(ADDR/MASK, [GATEWAY, keywords])`: exchanges Ethernet frames with this host's kernel through an
//! interface (a TAP) that it creates.
//!
//! Ports: an input, push or pull, or none; one or two push outputs: 0 for frames that the kernel sends
//! through the interface.
//!
//! Arguments: those of KernelTun.
//!
//! The kernel resolves addresses by ARP, which must be answered; send frames to the address ETHER. Handlers:
//! those of `KernelTun`.
use super::kernel_tun::{KernelTun, exchanging};
use ringway_click::Class;

pub static CLASS: Class = exchanging(Class::new("KernelTap", || Box::new(KernelTun::new(true))));
