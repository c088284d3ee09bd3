//! The fuzz targets as plain functions: each takes untrusted bytes, and panics if an invariant is violated.
//! `fuzz_targets` passes libFuzzer's input to them; `tests/mutations.rs` runs them on mutated seeds with a
//! stable compiler.

pub mod capture_filter;
pub mod click_language;
pub mod control_socket;
pub mod corpus;
pub mod fabric_file;
pub mod headers;
pub mod iotlb;
pub mod ip_filter;
pub mod moved_connection;
pub mod nic_registers;
pub mod nic_rtl8139;
pub mod offload;
pub mod pcap;
pub mod pcap_replay;
pub mod pcapng;
pub mod place_expression;
pub mod place_inventory;
pub mod place_policy;
pub mod place_trace;
pub mod pppoe_server;
pub mod ring;
pub mod ring_device;
pub mod stack_frames;
pub mod stock_machine;
pub mod summary_dump;
pub mod tcp_segments;
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

/// Every target.
pub const TARGETS: &[Target] = &[
    Target { name: "capture_filter", run: capture_filter::run, seeds: capture_filter::seeds },
    Target { name: "click_language", run: click_language::run, seeds: click_language::seeds },
    Target { name: "control_socket", run: control_socket::run, seeds: control_socket::seeds },
    Target { name: "fabric_file", run: fabric_file::run, seeds: fabric_file::seeds },
    Target { name: "headers", run: headers::run, seeds: headers::seeds },
    Target { name: "iotlb", run: iotlb::run, seeds: iotlb::seeds },
    Target { name: "ip_filter", run: ip_filter::run, seeds: ip_filter::seeds },
    Target { name: "moved_connection", run: moved_connection::run, seeds: moved_connection::seeds },
    Target { name: "nic_registers", run: nic_registers::run, seeds: nic_registers::seeds },
    Target { name: "nic_rtl8139", run: nic_rtl8139::run, seeds: nic_rtl8139::seeds },
    Target { name: "offload", run: offload::run, seeds: offload::seeds },
    Target { name: "pcap", run: pcap::run, seeds: pcap::seeds },
    Target { name: "pcap_replay", run: pcap_replay::run, seeds: pcap_replay::seeds },
    Target { name: "pcapng", run: pcapng::run, seeds: pcapng::seeds },
    Target { name: "place_expression", run: place_expression::run, seeds: place_expression::seeds },
    Target { name: "place_inventory", run: place_inventory::run, seeds: place_inventory::seeds },
    Target { name: "place_policy", run: place_policy::run, seeds: place_policy::seeds },
    Target { name: "place_trace", run: place_trace::run, seeds: place_trace::seeds },
    Target { name: "pppoe_server", run: pppoe_server::run, seeds: pppoe_server::seeds },
    Target { name: "ring", run: ring::run, seeds: ring::seeds },
    Target { name: "ring_device", run: ring_device::run, seeds: ring_device::seeds },
    Target { name: "stack_frames", run: stack_frames::run, seeds: stack_frames::seeds },
    Target { name: "stock_machine", run: stock_machine::run, seeds: stock_machine::seeds },
    Target { name: "summary_dump", run: summary_dump::run, seeds: summary_dump::seeds },
    Target { name: "tcp_segments", run: tcp_segments::run, seeds: tcp_segments::seeds },
    Target { name: "vfio_user_session", run: vfio_user_session::run, seeds: vfio_user_session::seeds },
    Target { name: "vhost_user", run: vhost_user::run, seeds: vhost_user::seeds },
    Target { name: "virtq", run: virtq::run, seeds: virtq::seeds },
    Target { name: "vm_channel", run: vm_channel::run, seeds: vm_channel::seeds },
    Target { name: "vm_image", run: vm_image::run, seeds: vm_image::seeds },
    Target { name: "wire_datagrams", run: wire_datagrams::run, seeds: wire_datagrams::seeds },
];
