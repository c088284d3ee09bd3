//! Elements that measure traffic, by timestamps and by aggregates: numbers that identify a packet's flow or network.
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

#[cfg(test)]
mod tests;
