//! Metrics of ports and links.

use super::Views;
use super::text::{Exposition, Type};
use crate::api::{Counts, DirectionView};
use ringway_frame::Reason;
use std::collections::BTreeMap;

/// A counter: its name, its description, and how it is read.
type Counter<V> = (&'static str, &'static str, fn(&V) -> u64);

/// Counters of a port's queue. As in `ringway stats`, what a peer sends is transmitted.
const OF_QUEUES: &[Counter<Counts>] = &[
    ("ringway_port_receive_frames_total", "Frames that left the fabric to a port's peer.", |c| c.rx_frames),
    ("ringway_port_receive_bytes_total", "Bytes of frames that left the fabric to a port's peer.", |c| {
        c.rx_bytes
    }),
    ("ringway_port_transmit_frames_total", "Frames that entered the fabric from a port's peer.", |c| {
        c.tx_frames
    }),
    (
        "ringway_port_transmit_bytes_total",
        "Bytes of frames that entered the fabric from a port's peer.",
        |c| c.tx_bytes,
    ),
    ("ringway_port_kicks_total", "Notifications from a port's peer.", |c| c.kicks),
    ("ringway_port_interrupts_total", "Notifications to a port's peer.", |c| c.interrupts),
    ("ringway_port_bursts_total", "Bursts of frames taken from a port's peer.", |c| c.bursts),
];

/// Counters of a port.
const OF_PORTS: &[Counter<Counts>] = &[
    ("ringway_port_faults_total", "Protocol violations by a port's peer.", |c| c.faults),
    (
        "ringway_port_moved_addresses_total",
        "Addresses that a port sent from while another one had them.",
        |c| c.moved,
    ),
    (
        "ringway_port_unlearned_frames_total",
        "Frames whose source was not learned, since its port has learned too many.",
        |c| c.unlearned,
    ),
    (
        "ringway_port_joined_frames_total",
        "Frames for a port that became part of the frame before them.",
        |c| c.joined,
    ),
    (
        "ringway_port_answered_frames_total",
        "Frames of a port that were too long for their destination, and whose senders were told so.",
        |c| c.answered,
    ),
    ("ringway_port_session_pauses_total", "Pauses of a peer's session that was woken too often.", |c| {
        c.session_pauses
    }),
    ("ringway_port_iotlb_hits_total", "Addresses whose translation was known.", |c| c.iotlb_hits),
    ("ringway_port_iotlb_misses_total", "Addresses whose translation was requested.", |c| c.iotlb_misses),
    ("ringway_port_iotlb_invalidations_total", "Invalidations of translations.", |c| c.iotlb_invalidations),
    ("ringway_port_iotlb_faults_total", "Accesses that the guest's IOMMU refused.", |c| c.iotlb_faults),
    ("ringway_port_memory_grown_bytes_total", "Bytes by which a guest's memory files grew.", |c| {
        c.memory_grown
    }),
];

/// Counters of a direction of a link.
const OF_LINKS: &[Counter<DirectionView>] = &[
    ("ringway_link_sent_frames_total", "Frames that entered a link.", |d| d.sent),
    ("ringway_link_sent_bytes_total", "Bytes of frames that entered a link.", |d| d.sent_bytes),
    ("ringway_link_received_frames_total", "Frames that left a link, duplicates included.", |d| d.received),
    ("ringway_link_received_bytes_total", "Bytes of frames that left a link.", |d| d.received_bytes),
    ("ringway_link_marked_frames_total", "Frames that a link marked Congestion Experienced.", |d| d.marked),
    ("ringway_link_corrupted_frames_total", "Frames in which a link inverted a bit.", |d| d.corrupted),
    ("ringway_link_duplicated_frames_total", "Frames that left a link twice.", |d| d.duplicated),
    ("ringway_link_reordered_frames_total", "Frames that overtook another one on a link.", |d| d.reordered),
];

pub fn write(views: &Views, all: &mut Exposition) {
    ports(views, all);
    links(views, all);
}

fn ports(views: &Views, all: &mut Exposition) {
    let help = "A port, with its kind and what it is connected to.";
    let mut family = all.family(Type::Gauge, "ringway_port_info", help, &["port", "kind", "to"]);
    views.ports.iter().for_each(|port| family.sample(&[&port.name, &port.kind, &port.to], 1));
    let help = "Whether a port has a peer that can send and receive.";
    let mut family = all.family(Type::Gauge, "ringway_port_up", help, &["port"]);
    views.ports.iter().for_each(|port| family.flag(&[&port.name], port.state == "up"));
    let stats = &views.stats.ports;
    for (name, help, read) in OF_QUEUES {
        let mut family = all.family(Type::Counter, name, help, &["port", "queue"]);
        for port in stats {
            for (number, queue) in port.queues.iter().enumerate() {
                family.sample(&[&port.name, &number.to_string()], read(queue));
            }
        }
    }
    for (name, help, read) in OF_PORTS {
        let mut family = all.family(Type::Counter, name, help, &["port"]);
        stats.iter().for_each(|port| family.sample(&[&port.name], read(&port.total)));
    }
    let help = "Bytes in memory of the files that a port's peer shares.";
    let mut family = all.family(Type::Gauge, "ringway_port_memory_resident_bytes", help, &["port"]);
    stats.iter().for_each(|port| family.sample(&[&port.name], port.total.memory_resident));
    let help = "Dropped frames that a port's peer sent (transmit) or was to get (receive).";
    let labels = &["port", "direction", "reason"];
    let mut family = all.family(Type::Counter, "ringway_port_drops_total", help, labels);
    for port in stats {
        for (direction, drops) in [("transmit", &port.total.tx_drops), ("receive", &port.total.rx_drops)] {
            every_reason(drops).for_each(|(reason, count)| {
                family.sample(&[&port.name, direction, reason], count);
            });
        }
    }
}

/// The drops of each reason, zeros too: Prometheus does not see the first increase of a series that begins with it.
fn every_reason(drops: &BTreeMap<String, u64>) -> impl Iterator<Item = (&'static str, u64)> {
    let reasons = Reason::ALL.iter().map(|reason| reason.name());
    reasons.map(|name| (name, drops.get(name).copied().unwrap_or(0)))
}

fn links(views: &Views, all: &mut Exposition) {
    let labels = &["link", "from", "to"];
    let directions =
        || views.links.iter().flat_map(|link| link.directions.iter().map(move |one| (link, one)));
    for (name, help, read) in OF_LINKS {
        let mut family = all.family(Type::Counter, name, help, labels);
        directions().for_each(|(link, one)| family.sample(&[&link.name, &one.from, &one.to], read(one)));
    }
    let help = "Frames that a link dropped.";
    let labels_of_drops = &["link", "from", "to", "reason"];
    let mut family = all.family(Type::Counter, "ringway_link_drops_total", help, labels_of_drops);
    for (link, one) in directions() {
        every_reason(&one.drops).for_each(|(reason, count)| {
            family.sample(&[&link.name, &one.from, &one.to, reason], count);
        });
    }
    let gauges: [Counter<DirectionView>; 3] = [
        ("ringway_link_queued_frames", "Frames in a link's queue.", |d| d.queued),
        ("ringway_link_queued_bytes", "Bytes in a link's queue.", |d| d.queued_bytes),
        ("ringway_link_in_flight_frames", "Frames that are under way on a link.", |d| d.in_flight),
    ];
    for (name, help, read) in gauges {
        let mut family = all.family(Type::Gauge, name, help, labels);
        directions().for_each(|(link, one)| family.sample(&[&link.name, &one.from, &one.to], read(one)));
    }
    let help = "Mean time of a frame in a link since its settings changed.";
    let mut family = all.family(Type::Gauge, "ringway_link_delay_seconds", help, labels);
    directions().for_each(|(link, one)| {
        family.seconds(&[&link.name, &one.from, &one.to], one.delay_mean);
    });
}
