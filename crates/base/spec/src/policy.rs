//! Policy on ports: what a switch lets a port send and receive.

use crate::MacAddress;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// What the switch of a port lets it send and receive; by default, everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// Its VLANs; without them it carries all VLANs with tags, and VLAN 0 without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlans: Option<Vlans>,
    /// Whether no frames pass between it and other isolated ports.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub isolated: bool,
    /// The MAC address that its frames must be from; otherwise any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_mac: Option<MacAddress>,
    /// The IP addresses that its frames may be from; all if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<IpNet>,
    /// The rate of frames from it; otherwise any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_from: Option<Rate>,
    /// The rate of frames to it; otherwise any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_to: Option<Rate>,
    /// The number of frames a second from it that are flooded; otherwise any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storm: Option<u64>,
    /// The number of addresses a second that its switch learns from it; otherwise any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub learn_rate: Option<u64>,
    /// The frames that it gets copies of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mirror: Option<Mirror>,
    /// Whether segments of one flow are joined into large frames for it, if it takes these; by default, as its kind has
    /// it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reassembly: Option<bool>,
}

/// Frames of other ports, of which a port gets copies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mirror {
    /// The ports that are mirrored.
    pub ports: Vec<String>,
    /// A switch whose ports are mirrored, except those that get copies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switch: Option<String>,
    /// The directions that are mirrored.
    pub direction: Mirrored,
    /// First and last number of each range of VLANs whose frames are mirrored; without them, all frames are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vlans: Vec<(u16, u16)>,
    /// Most bytes of a frame that are copied, if not all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snap: Option<u32>,
    /// The VLAN whose tag each copy gets in front of its own tags.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<u16>,
}

/// Which frames of a port are mirrored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mirrored {
    /// Those that its peer sends.
    From,
    /// Those that its peer receives.
    To,
    /// Both.
    #[default]
    Both,
}

impl Mirrored {
    /// Every one, by name.
    pub const ALL: [(&'static str, Mirrored); 3] =
        [("from", Mirrored::From), ("to", Mirrored::To), ("both", Mirrored::Both)];

    /// Its name.
    pub fn name(self) -> &'static str {
        Mirrored::ALL.iter().find(|(_, own)| *own == self).map_or("both", |(name, _)| name)
    }
}

/// A rate of frames, and how much of it may come at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rate {
    /// Bits a second, of whole frames.
    pub bits: u64,
    /// Bytes that may come at once, if that is said.
    pub burst: Option<u64>,
}

impl Rate {
    /// Bytes that may come at once: by default as many as in 10 ms, and 128 KB at least, so that a frame of 64 KB with
    /// pending segmentation passes while another one has just passed.
    pub fn burst_or_default(&self) -> u64 {
        self.burst.unwrap_or_else(|| (self.bits / 8 / 100).max(128 << 10))
    }
}

impl Policy {
    /// Most networks in [`Policy::allow`], so that a check stays short.
    pub const MOST_NETWORKS: usize = 1024;

    /// Most ports in [`Mirror::ports`].
    pub const MOST_MIRRORED: usize = 1024;

    /// Whether it says nothing.
    pub fn is_empty(&self) -> bool {
        *self == Policy::default()
    }

    /// Whether its switch has nothing to apply: [`Policy::mirror`] and [`Policy::reassembly`] are for ports without a
    /// switch, too.
    pub fn restricts_nothing(&self) -> bool {
        let Policy { mirror, reassembly, .. } = self;
        *self == Policy { mirror: mirror.clone(), reassembly: *reassembly, ..Policy::default() }
    }
}

/// The VLANs of a port, by the rules of Open vSwitch's modes `access`, `trunk`, `native-untagged` and
/// `dot1q-tunnel`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Vlans {
    /// Frames without tags are in this VLAN; no others pass.
    Access(u16),
    /// Frames with the tags of these VLANs pass.
    Trunk {
        /// First and last number of each range of VLANs.
        carried: Vec<(u16, u16)>,
        /// The VLAN of frames without tags, which don't pass otherwise.
        native: Option<u16>,
        /// Whether their tags are service tags (IEEE 802.1Q, 9.5: type 0x88a8), behind which there may be others.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        service: bool,
    },
    /// All frames, with whatever tags, are in this VLAN: on a trunk it has a tag in front of theirs.
    Customer(u16),
}

impl Vlans {
    /// Number of VLANs, with those that no frame can be in: 0 and 4095 (IEEE 802.1Q, 9.6).
    pub const COUNT: u16 = 4096;
}
