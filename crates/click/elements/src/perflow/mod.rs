//! Elements with state for each flow, as in FastClick: a flow manager finds the flow of each packet and holds memory
//! for each flow, which contains the state of all elements downstream.
use ringway_click::Class;

pub mod flow_counter;
pub mod flow_ip_manager;
pub mod flow_ip_manager_hmp;
pub mod flow_ip_manager_imp;
pub mod flow_ip_manager_mp;
pub mod flow_lock;
pub mod flow_print;
pub mod flow_round_robin_switch;
mod flow_space;
pub mod flow_strip;
pub mod flow_unstrip;
pub mod ip_in;
pub mod ip_out;
mod manager;
pub mod store_flow_id;
pub mod test_flow_space;
#[cfg(test)]
mod tests;

pub const CLASSES: &[&Class] = &[
    &flow_counter::CLASS,
    &flow_ip_manager::CLASS,
    &flow_ip_manager_hmp::CLASS,
    &flow_ip_manager_imp::CLASS,
    &flow_ip_manager_mp::CLASS,
    &flow_lock::CLASS,
    &flow_print::CLASS,
    &flow_round_robin_switch::CLASS,
    &flow_strip::CLASS,
    &flow_unstrip::CLASS,
    &ip_in::CLASS,
    &ip_out::CLASS,
    &store_flow_id::CLASS,
    &test_flow_space::CLASS,
];
