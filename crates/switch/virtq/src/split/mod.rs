//! Split virtqueues (virtio 1.3, 2.7).

mod device;
mod driver;
mod ring;

pub use driver::SplitDriver;
pub use ring::SplitRing;
