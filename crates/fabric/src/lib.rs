//! Workers, turns, reconciling: the data process.
