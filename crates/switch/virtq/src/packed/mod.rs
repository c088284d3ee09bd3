//! Packed virtqueues (virtio 1.3, 2.8).

mod device;
mod driver;
mod resume;
mod ring;

pub use driver::PackedDriver;
pub use ring::PackedRing;
