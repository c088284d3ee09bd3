//! A pipe: two programs share a ring's memory and pass slots to each other. Ringway makes the memory and hands it over;
//! no frame of a pipe goes through the data path.
//!
//! Both programs connect to the pipe's one socket; the third is refused. When one goes, the other's memory is closed,
//! and as soon as the next one comes both get new memory: nothing that the one before may have written is left.

mod open;
#[cfg(test)]
mod tests;

pub use open::{Pipe, PipeError};
