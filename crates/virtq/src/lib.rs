//! Virtqueues, split and packed, device and driver side.
