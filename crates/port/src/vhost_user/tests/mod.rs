//! Sessions with front-ends, by their messages and their rings.

pub(crate) mod commands;
mod hostile;
pub(crate) mod session;
pub(crate) mod slow;
mod traffic;

use super::{Backend, BackendError, Config, new};
