//! Elements that measure traffic, by timestamps and by aggregates: numbers that identify a packet's flow or network.
use ringway_click::Class;

pub mod aggregate_filter;
pub mod aggregate_first;
pub mod aggregate_ip;
pub mod aggregate_ip_addr_pair;
pub mod aggregate_ip_flows;
pub mod aggregate_last;
pub mod aggregate_length;
pub mod aggregate_packet_counter;
pub mod aggregate_paint;
pub mod anonymize_ip_addr;
mod flow_trace;
mod fragments;
mod ip_field;
pub mod store_udp_time_seq_record;
pub mod time_filter;
pub mod time_range;

pub const CLASSES: &[&Class] = &[
    &aggregate_filter::CLASS,
    &aggregate_first::CLASS,
    &aggregate_ip::CLASS,
    &aggregate_ip_addr_pair::CLASS,
    &aggregate_ip_flows::CLASS,
    &aggregate_last::CLASS,
    &aggregate_length::CLASS,
    &aggregate_packet_counter::CLASS,
    &aggregate_paint::CLASS,
    &anonymize_ip_addr::CLASS,
    &store_udp_time_seq_record::CLASS,
    &time_filter::CLASS,
    &time_range::CLASS,
];

#[cfg(test)]
mod tests;
