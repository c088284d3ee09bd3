//! Tests of the emulated cards as drivers see them.

mod common;
mod device;
mod express;
mod hostile;
mod interrupts;
mod receive;
mod rtl8139;
mod transmit;
