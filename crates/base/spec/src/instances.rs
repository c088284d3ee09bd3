//! Instances of functions that multiply under load.

use serde::{Deserialize, Serialize};

/// Most instances of a function.
pub const MOST_INSTANCES: u16 = 16;

/// How a function multiplies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instances {
    /// Instances that run at least.
    pub min: u16,
    /// Instances that run at most, up to [`MOST_INSTANCES`].
    pub max: u16,
    /// Flows whose instance is remembered.
    pub flows: u32,
    /// Nanoseconds without frames after which a flow is forgotten.
    pub idle: u64,
    /// Nanoseconds without pressure after which an instance gets no new flows.
    pub shrink: u64,
    /// Nanoseconds that it may then keep those that it has.
    pub drain: u64,
}

/// Which instance of a function that multiplies a [`crate::Function`] is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instance {
    /// The function's name in the file, which is also that of its first instance.
    pub of: String,
    /// The instance's number, from 1.
    pub number: u16,
    /// How the function multiplies.
    pub instances: Instances,
}

impl Instance {
    /// The name of an instance. No function of the file can have that of a further one.
    pub fn name(of: &str, number: u16) -> String {
        if number <= 1 { of.into() } else { format!("{of}/{number}") }
    }
}

/// The end of a function that multiplies, as a property of the end's port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceEnd {
    /// The function's name in the file.
    pub of: String,
    /// The instance's number, from 0.
    pub number: u16,
    /// The end: 0 or 1.
    pub side: u16,
    /// As [`Instances::flows`].
    pub flows: u32,
    /// As [`Instances::idle`].
    pub idle: u64,
    /// As [`Instances::drain`].
    pub drain: u64,
}
