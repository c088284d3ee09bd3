//! The monitor of tiny guests: one virtual machine with one CPU, on KVM.
//!
//! This is no general hypervisor. A machine has memory, a console of one port, an exit port, a port to sleep at, and
//! what is added to it: more memory, such as a ring port's, doorbells, and the card of an `e1000` port or the ring of a
//! `ring-pci` port. There is no interrupt controller and no firmware: an image begins at its PVH entry, and a device
//! wakes a guest that sleeps. Read `vm.rs` first. [`FunctionVm`] runs a Click configuration, or a program's image, in
//! such a machine; read `function/mod.rs` first.
//!
//! The guest is not trusted. What it does is bounded by its memory and its time; any access that the machine does not
//! have ends it with a reason.
#![cfg(target_arch = "x86_64")]

mod card;
mod function;
mod image;
mod load;
mod ring_device;
mod ring_port;
mod snapshot;
mod vm;

pub use card::CardError;
pub use function::{
    Conversation, FunctionEnd, FunctionError, FunctionEvent, FunctionVm, Round, SnapshotError, SnapshotHandle,
};
pub use image::{ImageError, LARGEST_IMAGE, check_image};
pub use load::{Image, LoadError, Shared};
pub use ring_device::RingDevice;
pub use ring_port::RingError;
pub use ringway_tiny::{FunctionStart, channel};
pub use snapshot::Snapshot;
pub use vm::{Console, Counts, End, PreparedVm, Vm, VmError};

use std::sync::OnceLock;

#[cfg(doctest)]
#[doc = include_str!("../../../../docs/tiny-guests.md")]
struct Page;

/// The image of the tiny guest that plays roles (crate `tiny`).
pub static TINY: &[u8] = include_bytes!(env!("TINY"));
/// Bytes that begin at a page.
#[repr(C, align(4096))]
struct Pages<T: ?Sized>(T);

static TEXT: &Pages<[u8]> = &Pages(*include_bytes!(env!("CLICK_TEXT")));

/// The image of functions, which is the project's unless the program has one of its own.
pub fn click() -> Image<'static> {
    OWN.get().copied().unwrap_or(CLICK)
}

/// Makes `file`, an image by `ringway_tiny::click_image!`, that of functions, for the whole process and once. Guests
/// share none of its pages: each has a copy.
pub fn set_click(file: &'static [u8]) {
    // A later call has no effect.
    let _ = OWN.set(Image::of(file));
}

/// A program's own image of functions.
static OWN: OnceLock<Image<'static>> = OnceLock::new();

/// The project's image of functions: Click with all elements that need no operating system. Its code and constants are
/// pages of this program, which all guests share.
const CLICK: Image<'static> = Image {
    file: include_bytes!(env!("CLICK_REST")),
    shared: Some(Shared { address: load::decimal(env!("CLICK_ADDRESS")), bytes: &TEXT.0 }),
    mark: load::decimal(env!("CLICK_MARK")),
};
