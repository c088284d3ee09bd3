//! What can be wrong with a header.

/// Why bytes are no header, or a header can't be emitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// Fewer bytes than the header says or needs.
    #[error("{header}: cut short")]
    Truncated {
        /// The header's name.
        header: &'static str,
    },
    /// A field holds what its RFC doesn't allow.
    #[error("{header}: {field} has a value that is not allowed")]
    Illegal {
        /// The header's name.
        header: &'static str,
        /// The field's name in the RFC.
        field: &'static str,
    },
    /// The buffer given for emitting is too small.
    #[error("{header}: no room for it in the buffer")]
    NoRoom {
        /// The header's name.
        header: &'static str,
    },
}
