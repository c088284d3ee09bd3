//! Elements with information for other elements or programs.
pub mod address_info;
pub mod align;
pub mod alignment_info;
pub mod annotation_info;
pub mod clicky_info;
pub mod devirtualize_info;
pub mod flow_info;
pub mod port_info;
pub mod schedule_info;
pub mod schedule_linux;
