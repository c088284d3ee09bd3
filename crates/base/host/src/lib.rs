//! All system calls, as safe functions with typed errors ([`HostError`]): memory, events, sockets, TAP
//! interfaces, sandboxes, jails.
//!
//! [`Mapping`] is shared memory, [`Epoll`] and [`EventFd`] are events, [`Signal`] wakes a peer without
//! blocking, and [`grace`] waits for the turns of all workers. Read `memory.rs` first, then `signal.rs`.

mod aio;
mod allocator;
mod background_close;
mod child;
mod clock;
mod descriptor_store;
mod devices;
mod end_notice;
mod error;
mod event;
mod exec_in_place;
mod file;
mod file_mapping;
mod first_process;
mod fixed_mapping;
mod foreign;
mod futex;
mod grace;
mod inet_socket;
#[cfg(target_arch = "x86_64")]
mod interface_query;
pub mod jail;
pub mod kvm;
mod launch;
pub mod listener;
mod machine;
mod memory;
mod memory_limit;
mod namespace;
mod network_interface;
mod numa;
mod own_file;
mod packet_ring;
mod packet_socket;
mod pci_device;
mod peer_descriptor;
mod poll;
mod preload;
mod process_setup;
mod program_pages;
mod raw_socket;
mod robust_lock;
mod sandbox;
mod seccomp;
mod seccomp_notify;
mod sigbus;
mod signals;
mod socket_file;
mod tap;
mod thread;
mod thread_times;
mod time_limit;
mod tun;
mod unix_socket;
mod unmap;
mod window;
mod xdp;

pub use allocator::{give_memory_back, keep_little_memory};
pub use background_close::{BackgroundClose, Duplicates};
pub use child::start_child;
pub use clock::{Clock, since_1970, ticks, ticks_per_second};
pub use descriptor_store::{descriptor_store, store_descriptors, stored_descriptors};
pub use devices::{NetworkDevice, network_devices};
pub use end_notice::{EndNotice, exiting};
pub use error::HostError;
pub use event::{Epoll, EventFd, set_nonblocking, wait_readable};
pub use exec_in_place::{exec_in_place, take_inherited};
pub use file::{read_argument, read_file, read_whole};
pub use file_mapping::FileMapping;
pub use first_process::{
    ProgramStart, Terminal, configure_interface, mount_in_place, mount_new, open_terminal, signal_all,
    start_program,
};
pub use fixed_mapping::{FixedAccess, FixedMapping, constant_memfd};
pub use foreign::{ForeignError, memory_of};
pub use futex::{wait_word, wake_word};
pub use grace::{DeferredReclaim, TurnsInProgress, grace, graces, reclaim, reclaim_after, reclaim_all};
pub use inet_socket::{
    DATAGRAM_SEGMENTS, DATAGRAMS, DatagramFault, Datagrams, Received, SenderSettings, is_writable,
    open_datagram_receiver, open_datagram_sender, path_mtu, prepare_stream, receive_datagrams,
    send_datagrams, stream_receive, stream_send,
};
pub use interface_query::{INTERFACE_REQUEST, ask_interface, list_interfaces};
pub use launch::{Inside, Launch, LaunchError, Launched, launch, numbers};
pub use machine::{Access, Cores, HugePages, Limit, Machine, Transparent};
pub use memory::{
    FileId, Keep, Mapping, PageChoice, Pages, extents, is_lost, is_of_huge_pages, is_sealed, map_region,
    map_region_for, memfd, memfd_in, memfd_of, memfd_size, resident, stitch,
};
pub use memory_limit::Account;
pub use namespace::{
    create_namespace, end_processes, enter_namespace, is_in_namespace, remove_namespace, within_namespace,
};
pub use network_interface::{InterfaceWatch, NetworkInterface};
pub use numa::{Node, node_of_core, nodes, on_node, stay_on_node};
pub use own_file::{OwnFile, check_own_folder, check_own_path, open_own};
pub use packet_ring::{
    PACKET_RINGS, RX_BLOCK, RX_BLOCKS, TX_SLOT, TX_SLOTS, hold_promiscuous, open_packet_rings, packet_kick,
    packet_missed, tx_slot,
};
pub use packet_socket::{
    PACKET_HEADER, PacketReceived, PacketSettings, open_packet, packet_receive, packet_send,
};
pub use pci_device::PciDevice;
pub use peer_descriptor::{
    FdKind, Signal, SignalError, prepare_signals, signal_once, time_signals, timed_signals,
};
pub use poll::{PollFd, poll};
pub use preload::{extended_state, ptrace_library, uml_needs_ptrace_library};
pub use program_pages::forget_program_pages;
pub use raw_socket::open_raw;
pub use robust_lock::{LockError, RobustGuard, RobustLock};
pub use sandbox::{
    Confinement, MonitorFence, PluginFences, confine_data, confine_function, pass_on, withhold_descriptors,
};
pub use seccomp_notify::{
    Call, MEMORY_PIECES, Piece, Threads, Trap, read_memory, read_pieces, write_memory, write_pieces,
};
pub use sigbus::{catch_sigbus, losses};
pub use signals::{
    Arrived, SignalFd, become_subreaper, children, children_of, collect_children, end_by_signal,
    end_children, pass_signal, unblock_signals,
};
pub use socket_file::{SocketFile, SocketFileError, SocketRights};
pub use tap::{
    TAP_HEAD, TAP_HEADER, TAP_PIECES, TapAddresses, TapFault, TapSettings, namespace_path, open_tap,
    open_tap_with, tap_knows_uso, tap_read, tap_write,
};
pub use thread::{allowed_cores, pin, random, spawn, thread_cpu};
pub use thread_times::{ThreadFiles, ThreadTimes, open_thread_files, thread_number};
pub use time_limit::{Budget, permit_slow_wakes};
pub use tun::{TunSettings, open_tun};
pub use unix_socket::{
    DESCRIPTORS, Peer, ask_socket, ask_socket_for_descriptor, only_send, peer, receive_with, send_with,
    set_peek_offset, try_receive_with, try_write,
};
pub use unmap::close_memory;
pub use window::Window;
pub use xdp::{
    Attach, KEEP_RULES, KeepRule, XDP_HEADROOM, XDP_RING, XdpError, XdpLink, XdpLosses, XdpQueue,
    XdpRingPlace, XdpTarget, receive_queues, xdp_chunk, xdp_is_zero_copy, xdp_kick, xdp_losses, xdp_rings,
    xdp_wake_receive,
};
