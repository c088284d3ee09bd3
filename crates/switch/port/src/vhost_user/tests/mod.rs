//! Sessions with front-ends: messages and rings.

pub(crate) mod commands;
mod hostile;
mod resume;
pub(crate) mod session;
pub(crate) mod slow;
mod traffic;

use super::{Backend, BackendError, Config, new};
