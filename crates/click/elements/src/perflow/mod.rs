//! Elements with state for each flow, as in FastClick: a flow manager finds the flow of each packet and holds memory
//! for each flow, which contains the state of all elements downstream.
pub mod flow_counter;
pub mod flow_ip_manager;
pub mod flow_ip_manager_hmp;
pub mod flow_lock;
pub mod flow_print;
pub mod flow_round_robin_switch;
mod flow_space;
pub mod ip_in;
pub mod ip_out;
mod manager;
pub mod store_flow_id;
pub mod test_flow_space;
#[cfg(test)]
mod tests;
