//! Ports behind an IOMMU, with a front-end simulated by the test.

mod attack;
mod channel;
mod driver;
mod ends;
mod guest;
mod huge;
mod log;
mod place;
mod random;
mod rig;
mod shrink;
mod translation;

use super::MOST;
