//! What an image that is linked without libraries needs: copying, filling and comparing bytes, and a heap behind the
//! image. With the feature `image` the program that this is a part of has them; its linker script defines `image_end`.
#![cfg_attr(not(test), no_std)]

#[cfg(target_arch = "x86_64")]
mod bytes;
#[cfg(all(feature = "image", target_arch = "x86_64"))]
pub mod heap;
