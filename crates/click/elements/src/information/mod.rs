//! Elements with information for other elements or programs.
use ringway_click::Class;

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

pub const CLASSES: &[&Class] = &[
    &address_info::CLASS,
    &align::CLASS,
    &alignment_info::CLASS,
    &annotation_info::CLASS,
    &clicky_info::CLASS,
    &devirtualize_info::CLASS,
    &flow_info::CLASS,
    &port_info::CLASS,
    &schedule_info::CLASS,
    &schedule_linux::CLASS,
];
