//! Entries of the audit log in the API.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A request for a change, and what came of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditView {
    /// When it came, in nanoseconds since 1970.
    pub time: u64,
    /// User ID of the client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<u32>,
    /// Process ID of the client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<i32>,
    /// Name of the client's program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// Address of a client that is not on this host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Name of its token, if it is connected by TCP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// Method and path.
    pub request: String,
    /// Beginning of the body, at most 1 KiB.
    pub body: String,
    /// Status of the answer: from 200 to 299 if it was done.
    pub status: u16,
    /// Why it was not done, at most 1 KiB.
    pub error: String,
    /// Number of requests since the entry before this one that could not be logged.
    pub lost: u64,
}
