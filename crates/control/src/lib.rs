//! The fabric file, the control API, guests: the control process.
