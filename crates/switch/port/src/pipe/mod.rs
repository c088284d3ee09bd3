//! A pipe: two programs share a ring's memory and pass slots to each other. Ringway allocates the memory and passes
//! it to the programs; no frame of a pipe goes through the data path.
//!
//! Both programs connect to the pipe's socket; a third is refused. When one disconnects, the other's memory is
//! closed, and when the next one connects both get new memory, without data of the previous program.

mod open;
#[cfg(test)]
mod tests;

pub use open::{Pipe, PipeError};
