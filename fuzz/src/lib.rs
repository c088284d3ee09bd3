//! The fuzz targets as plain functions: each takes untrusted bytes, and panics if an invariant is violated.
//! `libfuzzer/target.rs` passes libFuzzer's input to them; `tests/mutations.rs` runs them on mutated seeds with a
//! stable compiler.

pub mod capture_filter;
pub mod click_language;
pub mod control_socket;
pub mod corpus;
pub mod fabric_file;
pub mod flow_text;
pub mod headers;
pub mod iotlb;
pub mod ip_filter;
pub mod moved_connection;
pub mod netmap_memory;
pub mod netmap_request;
pub mod nic_pcnet;
pub mod nic_registers;
pub mod nic_rtl8139;
mod nic_walk;
pub mod offload;
pub mod pcap;
pub mod pcap_replay;
pub mod pcapng;
pub mod place_expression;
pub mod place_inventory;
pub mod place_policy;
pub mod place_trace;
pub mod pppoe_server;
pub mod reassembly;
pub mod ring;
pub mod ring_device;
pub mod stack_frames;
pub mod stock_machine;
pub mod summary_dump;
pub mod tcp_segments;
pub mod trace_frame;
pub mod vfio_user_session;
pub mod vhost_user;
pub mod virtq;
pub mod vm_channel;
pub mod vm_image;
pub mod wire_datagrams;

/// One target.
#[derive(Clone, Copy)]
pub struct Target {
    /// Its name, also that of its file and of its corpus.
    pub name: &'static str,
    /// Runs it on bytes.
    pub run: fn(&[u8]),
    /// Valid initial inputs.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// Passes the names of all targets to a macro.
#[macro_export]
macro_rules! each_target {
    ($macro:ident) => {
        $macro! {
            capture_filter click_language control_socket fabric_file flow_text headers iotlb ip_filter
            moved_connection netmap_memory netmap_request nic_pcnet nic_registers nic_rtl8139 offload pcap
            pcap_replay pcapng place_expression place_inventory place_policy place_trace pppoe_server
            reassembly ring ring_device stack_frames stock_machine summary_dump tcp_segments trace_frame
            vfio_user_session vhost_user virtq vm_channel vm_image wire_datagrams
        }
    };
}

macro_rules! table {
    ($($name:ident)*) => {
        /// Every target.
        pub const TARGETS: &[Target] =
            &[$(Target { name: stringify!($name), run: $name::run, seeds: $name::seeds }),*];
    };
}
each_target!(table);

/// The target of this name.
///
/// # Panics
/// If there is none.
pub fn target(name: &str) -> &'static Target {
    TARGETS.iter().find(|target| target.name == name).expect("a target of this name")
}
