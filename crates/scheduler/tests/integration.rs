//! Tests of the scheduler through its interfaces.

mod flood;
mod hostile;
mod http;
mod kubernetes;
mod plugins;
