//! The ringway program.
fn main() {}
