//! The features that a port offers to its guest.

use super::Config;
use ringway_vhost_user::Offer;
use ringway_vhost_user::feature::{protocol, virtio};

/// Features that can be left out, by their names in the specification.
const VIRTIO: [(&str, u64); 26] = [
    ("csum", virtio::NET_CSUM),
    ("guest-csum", virtio::NET_GUEST_CSUM),
    ("mtu", virtio::NET_MTU),
    ("mac", virtio::NET_MAC),
    ("guest-tso4", virtio::NET_GUEST_TSO4),
    ("guest-tso6", virtio::NET_GUEST_TSO6),
    ("guest-ecn", virtio::NET_GUEST_ECN),
    ("host-tso4", virtio::NET_HOST_TSO4),
    ("host-tso6", virtio::NET_HOST_TSO6),
    ("host-ecn", virtio::NET_HOST_ECN),
    ("mrg-rxbuf", virtio::NET_MRG_RXBUF),
    ("status", virtio::NET_STATUS),
    ("ctrl-vq", virtio::NET_CTRL_VQ),
    ("guest-announce", virtio::NET_GUEST_ANNOUNCE),
    ("mq", virtio::NET_MQ),
    ("guest-uso", virtio::NET_GUEST_USO4 | virtio::NET_GUEST_USO6),
    ("host-uso", virtio::NET_HOST_USO),
    ("any-layout", virtio::ANY_LAYOUT),
    ("indirect-desc", virtio::INDIRECT_DESC),
    ("event-idx", virtio::EVENT_IDX),
    ("version-1", virtio::VERSION_1),
    ("access-platform", virtio::ACCESS_PLATFORM),
    ("packed", virtio::RING_PACKED),
    ("in-order", virtio::IN_ORDER),
    ("protocol-features", virtio::PROTOCOL_FEATURES),
    ("log-all", virtio::LOG_ALL),
];

/// Protocol features that can be left out, by their names in the specification.
const PROTOCOL: [(&str, u64); 10] = [
    ("protocol-mq", protocol::MQ),
    ("log-shmfd", protocol::LOG_SHMFD),
    ("rarp", protocol::RARP),
    ("reply-ack", protocol::REPLY_ACK),
    ("protocol-mtu", protocol::MTU),
    ("backend-req", protocol::BACKEND_REQ),
    ("config", protocol::CONFIG),
    ("reset-device", protocol::RESET_DEVICE),
    ("configure-mem-slots", protocol::CONFIGURE_MEM_SLOTS),
    ("protocol-status", protocol::STATUS),
];

/// Each feature requires one of the features next to it (virtio 1.3, 5.1.3.1 and 6).
const NEEDS: [(u64, u64); 18] = [
    (virtio::NET_GUEST_TSO4, virtio::NET_GUEST_CSUM),
    (virtio::NET_GUEST_TSO6, virtio::NET_GUEST_CSUM),
    (virtio::NET_GUEST_USO4, virtio::NET_GUEST_CSUM),
    (virtio::NET_GUEST_USO6, virtio::NET_GUEST_CSUM),
    (virtio::NET_GUEST_ECN, virtio::NET_GUEST_TSO4 | virtio::NET_GUEST_TSO6),
    (virtio::NET_HOST_TSO4, virtio::NET_CSUM),
    (virtio::NET_HOST_TSO6, virtio::NET_CSUM),
    (virtio::NET_HOST_USO, virtio::NET_CSUM),
    (virtio::NET_HOST_ECN, virtio::NET_HOST_TSO4 | virtio::NET_HOST_TSO6),
    (virtio::RING_PACKED, virtio::VERSION_1),
    (virtio::IN_ORDER, virtio::VERSION_1),
    (virtio::ACCESS_PLATFORM, virtio::VERSION_1),
    (virtio::ACCESS_PLATFORM, virtio::PROTOCOL_FEATURES),
    (virtio::NET_GUEST_ANNOUNCE, virtio::NET_CTRL_VQ),
    (virtio::NET_GUEST_ANNOUNCE, virtio::NET_STATUS),
    (virtio::NET_MQ, virtio::NET_CTRL_VQ),
    (virtio::NET_MQ, virtio::PROTOCOL_FEATURES),
    (virtio::LOG_ALL, virtio::PROTOCOL_FEATURES),
];

/// Features to leave out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Without {
    /// Bits of [`virtio`].
    pub features: u64,
    /// Bits of [`protocol`].
    pub protocol: u64,
}

impl Without {
    /// The features of these names; the first unknown name as an error.
    pub fn named<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Without, &'a str> {
        let mut without = Without::default();
        for name in names {
            let find =
                |table: &[(&str, u64)]| table.iter().find(|(known, _)| *known == name).map(|row| row.1);
            match (find(&VIRTIO), find(&PROTOCOL)) {
                (Some(bits), _) => without.features |= bits,
                (None, Some(bits)) => without.protocol |= bits,
                (None, None) => return Err(name),
            }
        }
        Ok(without)
    }

    /// Every name that [`Without::named`] accepts.
    pub fn names() -> impl Iterator<Item = &'static str> {
        VIRTIO.iter().chain(&PROTOCOL).map(|(name, _)| *name)
    }
}

/// The features that a port with `config` offers. They depend on nothing else, so that they are the same when a
/// front-end reconnects.
pub(super) fn offer(config: &Config) -> Offer {
    let mut features = VIRTIO.iter().fold(0, |all, (_, bits)| all | bits) & !config.without.features;
    let mut agreed = PROTOCOL.iter().fold(0, |all, (_, bits)| all | bits) & !config.without.protocol;
    if config.mac.is_none() {
        features &= !virtio::NET_MAC;
    }
    if config.mtu.is_none() {
        features &= !virtio::NET_MTU;
        agreed &= !protocol::MTU;
    }
    if config.queues < 2 {
        features &= !virtio::NET_MQ;
        // QEMU and DPDK count pairs of queues, Cloud Hypervisor counts queues, of which it would miss one. Without
        // this feature there is one pair for all of them.
        agreed &= !protocol::MQ;
    }
    // Twice, since a row may remove a feature that an earlier row requires.
    for (feature, needs) in NEEDS.iter().chain(&NEEDS) {
        if features & needs == 0 {
            features &= !feature;
        }
    }
    if features & virtio::PROTOCOL_FEATURES == 0 {
        agreed = 0;
    }
    let control = u16::from(features & virtio::NET_CTRL_VQ != 0);
    Offer {
        features,
        protocol: agreed,
        rings: 2 * config.queues + control,
        queues: config.queues,
        slots: ringway_mem::REGIONS as u16,
    }
}

/// Negotiated features, for display: `packed mrg-rxbuf csum`.
pub(super) fn describe(features: u64) -> String {
    let named = VIRTIO.iter().filter(|(_, bits)| features & bits != 0).map(|(name, _)| *name);
    named.filter(|name| *name != "protocol-features").collect::<Vec<_>>().join(" ")
}

/// The names of features, and the numbers of those without one.
pub(super) fn names(features: u64, is_protocol: bool) -> String {
    let table: &[(&str, u64)] = if is_protocol { &PROTOCOL } else { &VIRTIO };
    let named = table.iter().filter(|(_, bits)| features & bits != 0).map(|(name, _)| name.to_string());
    let known = table.iter().fold(0, |all, (_, bits)| all | bits);
    let rest = (0..u64::BITS).filter(|bit| features & !known & (1 << bit) != 0);
    named.chain(rest.map(|bit| format!("number {bit}"))).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_feature_is_withdrawn_with_its_dependencies() {
        let without = Without::named(["guest-csum", "version-1"]).unwrap();
        let offer = offer(&Config { without, ..Config::default() });
        for gone in [virtio::NET_GUEST_TSO4, virtio::NET_GUEST_ECN, virtio::RING_PACKED, virtio::IN_ORDER] {
            assert_eq!(offer.features & gone, 0);
        }
        assert_ne!(offer.features & virtio::NET_HOST_TSO4, 0);
    }

    #[test]
    fn features_without_a_name_are_named_by_their_number() {
        assert_eq!(names(virtio::RING_PACKED | 1 << 63, false), "packed, number 63");
        assert_eq!(names(protocol::MQ, true), "protocol-mq");
    }

    #[test]
    fn an_unknown_feature_name_is_reported() {
        assert_eq!(Without::named(["packed", "paked"]), Err("paked"));
        assert!(Without::named(Without::names()).is_ok());
    }

    #[test]
    fn mac_and_mtu_are_offered_if_configured() {
        let none = offer(&Config::default());
        assert_eq!(none.features & (virtio::NET_MAC | virtio::NET_MTU | virtio::NET_MQ), 0);
        let config =
            Config { mac: Some([2, 0, 0, 0, 0, 1]), mtu: Some(9000), queues: 4, ..Config::default() };
        let all = virtio::NET_MAC | virtio::NET_MTU | virtio::NET_MQ;
        assert_eq!(offer(&config).features & all, all);
        assert_eq!((offer(&config).rings, offer(&config).queues), (9, 4));
        assert_eq!(
            [none.protocol, offer(&config).protocol].map(|bits| bits & protocol::MQ),
            [0, protocol::MQ]
        );
        let without = Without::named(["ctrl-vq"]).unwrap();
        let plain = offer(&Config { without, ..config });
        assert_eq!(plain.features & (virtio::NET_MQ | virtio::NET_GUEST_ANNOUNCE), 0);
        assert_eq!(plain.rings, 8);
    }
}
