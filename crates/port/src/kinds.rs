//! The kinds of port in the data path, one row each.

use crate::{PortKind, null, ring, source, tap, vhost_user};

/// Every kind. A pipe has no row: its programs' frames do not pass the data path.
pub const KINDS: &[PortKind] = &[vhost_user::KIND, tap::KIND, ring::KIND, null::KIND, source::KIND];
