//! The switch: learning, flooding, pluggable lookup.
