//! The program's side of a ring.
