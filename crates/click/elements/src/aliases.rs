//! Other names of classes: same ports, arguments and handlers, for existing configurations.
use ringway_click::Class;

/// Declares aliases; what is said of one is added to the documentation of its class.
macro_rules! aliases {
    ($($(#[doc = $note:literal])* $alias:ident = $($module:ident)::+;)+) => {
        pub static ALIASES: &[&Class] = &[$(&crate::$($module)::+::CLASS.named(stringify!($alias))),+];
    };
}

aliases! {
    /// An older name.
    ICMPSendPings = icmp::icmp_ping_source;
    LinearIPLookup = ip::radix_ip_lookup;
    DirectIPLookup = ip::radix_ip_lookup;
    RangeIPLookup = ip::radix_ip_lookup;
    SortedIPLookup = ip::radix_ip_lookup;
    /// Click's caches routes for each thread.
    LookupIPRouteMP = ip::static_ip_lookup;
    /// FastClick's has one table per thread; here each runs on one thread.
    FlowIPManagerIMP = perflow::flow_ip_manager;
    /// FastClick's has one table for several threads; here each runs on one thread.
    FlowIPManagerMP = perflow::flow_ip_manager;
    /// FastClick's name.
    FlowStrip = standard::strip;
    /// FastClick's name.
    FlowUnstrip = standard::unstrip;
    /// FastClick's uses atomic instructions; here each runs on one thread.
    CounterAtomic = standard::counter;
    /// FastClick's uses a lock; here each runs on one thread.
    CounterLock = standard::counter;
    /// FastClick's counts per thread; here each runs on one thread.
    CounterMP = standard::counter;
    /// FastClick's uses a readers-writer lock per thread; here each runs on one thread.
    CounterPRW = standard::counter;
    /// FastClick's uses read-copy-update; here each runs on one thread.
    CounterRCU = standard::counter;
    /// FastClick's uses a readers-writer lock; here each runs on one thread.
    CounterRW = standard::counter;
    /// A router has one thread.
    ThreadSafeQueue = standard::full_note_queue;
    /// FastClick's name.
    StripTCPHeader = tcpudp::strip_transport_header;
    /// FastClick's name.
    StripUDPHeader = tcpudp::strip_transport_header;
    /// FastClick's counts only threads that push to the element.
    ExactCPUSwitch = threads::cpu_switch;
    SpinlockRelease = threads::spinlock_acquire;
}
