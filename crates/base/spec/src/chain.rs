//! Chains: functions that frames pass one after the other.

use serde::{Deserialize, Serialize};

/// A chain between two ports. Its functions have two ends each: the first is towards the chain's first port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chain {
    /// The name.
    pub name: String,
    /// The ports at its ends.
    pub ports: [String; 2],
    /// The functions, in the order in which frames from the first port pass them.
    pub functions: Vec<String>,
}
