//! The notifier and the layout of Ringway's own shared ring.
