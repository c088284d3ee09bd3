//! The match of a flow: the values of some fields, in `ovs-ofctl`'s words.

use crate::Ports;
use crate::field::{self, Field, Needs, PROTOCOLS};
use crate::key::{Key, Place, TAGGED, place};
use crate::text::{FlowError, Piece};
use core::fmt::Write as _;
use ringway_wire::{EtherType, Protocol};

/// What a flow matches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Match {
    /// The fields' values; 0 where the mask is.
    pub key: Key,
    /// The bits that must be equal.
    pub mask: Key,
}

impl Match {
    /// Whether a frame matches.
    pub fn has(&self, key: &Key) -> bool {
        key.masked(&self.mask) == self.key
    }

    /// Whether every frame that `other` matches is matched by this too.
    pub fn contains(&self, other: &Match) -> bool {
        other.mask.covers(&self.mask) && self.has(&other.key)
    }

    /// Requires bits of a field; whether they do not contradict those before.
    fn add(&mut self, place: Place, value: u128, mask: u128) -> bool {
        let (own, own_mask) = (self.key.get(place), self.mask.get(place));
        let both = own_mask & mask;
        self.key.set(place, own | value);
        self.mask.set(place, own_mask | mask);
        (own ^ value) & both == 0
    }
}

/// Reads the words of a match, one after the other.
#[derive(Default)]
pub(crate) struct MatchReader {
    found: Match,
    /// The fields that were given, with the column of each, to check what they need.
    given: Vec<(&'static Field, usize)>,
}

impl MatchReader {
    /// Reads a word; `false` if it is none of a match.
    pub(crate) fn read(&mut self, word: Piece<'_>, ports: &dyn Ports) -> Result<bool, FlowError> {
        let Some((name, value)) = word.split_once("=") else { return self.protocol(word) };
        let set = |reader: &mut MatchReader, place: Place, value: u128, mask: u128| match reader
            .found
            .add(place, value, mask)
        {
            true => Ok(true),
            false => Err(name.error(format!("`{}` contradicts what is before it", name.text))),
        };
        let vlan = u128::from(TAGGED);
        match name.text {
            // 0xffff says, as in OpenFlow 1.0, that there is no tag.
            "dl_vlan" if value.number(0xffff)? == 0xffff => set(self, place::VLAN_TCI, 0, 0xffff),
            "dl_vlan" => {
                let number = u128::from(value.number(0xfff)?);
                set(self, place::VLAN_VID, number | vlan, 0xfff | vlan)
            }
            "dl_vlan_pcp" | "vlan_pcp" => {
                let priority = u128::from(value.number(7)?);
                set(self, place::VLAN_TCI, priority << 13 | vlan, 7 << 13 | vlan)
            }
            "nw_tos" => {
                let tos = value.number(0xff)?;
                if tos & 3 != 0 {
                    let what =
                        format!("`{}`: the lowest two bits are nw_ecn's, and must be 0", value.shown());
                    return Err(value.error(what));
                }
                self.needs("ip_dscp", name.column);
                set(self, place::DSCP, u128::from(tos >> 2), 0x3f)
            }
            other => {
                let Some(field) = field::find(other) else { return Ok(false) };
                if value.text.contains('/') && !field.is_maskable() {
                    return Err(value.error(format!("`{}` has no mask", name.text)));
                }
                let (number, mask) = field.read(value.text, ports).map_err(|what| value.error(what))?;
                self.given.push((field, name.column));
                // Types and codes of ICMP are compared by all bits of the ports' place, whose others are 0.
                set(self, field.place, number, mask)
            }
        }
    }

    fn needs(&mut self, name: &str, column: usize) {
        self.given.extend(field::find(name).map(|field| (field, column)));
    }

    /// Reads a word without a value.
    fn protocol(&mut self, word: Piece<'_>) -> Result<bool, FlowError> {
        let row = PROTOCOLS.iter().find(|(name, ..)| *name == word.text);
        let Some((name, ether_type, protocol)) = row else { return Ok(false) };
        let is_new = self.found.add(place::ETH_TYPE, ether_type.get().into(), 0xffff)
            && protocol.is_none_or(|protocol| self.found.add(place::NW_PROTO, protocol.0.into(), 0xff));
        match is_new {
            true => Ok(true),
            false => Err(word.error(format!("`{name}` contradicts what is before it"))),
        }
    }

    /// The match.
    pub(crate) fn end(self) -> Result<Match, FlowError> {
        let MatchReader { found: Match { mut key, mut mask }, given } = self;
        for (field, column) in given {
            let is_met = match field.needs {
                // As in Open vSwitch, these are ARP's addresses too, and its operation.
                Needs::Ipv4 | Needs::Ip => {
                    field.needs.is_met(&key, &mask)
                        || matches!(field.place, place::NW_SRC | place::NW_DST | place::NW_PROTO)
                            && Needs::Arp.is_met(&key, &mask)
                }
                // As there, a type and a code may be called ports.
                Needs::Ports => field.needs.is_met(&key, &mask) || Needs::AnyIcmp.is_met(&key, &mask),
                // `vlan_vid` says itself that there is a tag.
                Needs::Tag => true,
                needs => needs.is_met(&key, &mask),
            };
            if !is_met {
                let what = format!("`{}` needs {} in the match", field.name(), field.needs.words());
                return Err(FlowError::new(column, what));
            }
        }
        if Needs::AnyIcmp.is_met(&key, &mask) {
            for at in [place::TP_SRC, place::TP_DST] {
                if key.get(at) > 0xff {
                    return Err(FlowError::new(1, "a type or a code of ICMP is a number from 0 to 255"));
                }
                mask.set(at, mask.get(at) & 0xff);
                key.set(at, key.get(at) & 0xff);
            }
        }
        Ok(Match { key, mask })
    }
}

/// Shows the words of a match, in the order of `ovs-ofctl`.
pub(crate) struct MatchText<'m> {
    of: &'m Match,
    ports: &'m dyn Ports,
    /// The words so far, each with a comma in front.
    text: String,
}

impl Match {
    /// The words in `ovs-ofctl`'s order, joined by commas.
    pub fn show(&self, ports: &dyn Ports) -> String {
        let mut text = MatchText { of: self, ports, text: String::new() };
        text.all();
        text.text.strip_prefix(',').unwrap_or_default().to_string()
    }
}

impl MatchText<'_> {
    fn word(&mut self, word: &str) {
        self.text.push(',');
        self.text.push_str(word);
    }

    /// A field by a name of its own, if anything of it is matched.
    fn named(&mut self, name: &str, field: &str) {
        let Some(field) = field::find(field) else { return };
        let mask = self.of.mask.get(field.place);
        if mask != 0 {
            let value = field.form.show(self.of.key.get(field.place), mask, field.all(), self.ports);
            // Writing to a string does not fail.
            let _ = write!(self.text, ",{name}={value}");
        }
    }

    fn field(&mut self, name: &str) {
        self.named(name, name);
    }

    fn exact(&self, place: Place) -> Option<u128> {
        (self.of.mask.get(place) == place.all()).then(|| self.of.key.get(place))
    }

    fn all(&mut self) {
        let ether_type = self.exact(place::ETH_TYPE).map(|value| EtherType::new(value as u16));
        let is_ip = matches!(ether_type, Some(EtherType::IPV4 | EtherType::IPV6));
        let is_arp = matches!(ether_type, Some(EtherType::ARP | EtherType::RARP));
        let protocol = self.exact(place::NW_PROTO).filter(|_| is_ip).map(|value| Protocol(value as u8));
        let named = |protocol: Option<Protocol>| {
            let row = PROTOCOLS.iter().find(|row| Some(row.1) == ether_type && row.2 == protocol);
            row.map(|row| row.0)
        };
        let (with, without) = (protocol.and_then(|own| named(Some(own))), named(None));
        with.or(without).into_iter().for_each(|name| self.word(name));
        (0..crate::key::REGISTERS).for_each(|number| self.field(&format!("reg{number}")));
        self.field("metadata");
        self.field("in_port");
        self.vlan();
        self.field("dl_src");
        self.field("dl_dst");
        if with.or(without).is_none() {
            self.field("dl_type");
        }
        match is_arp {
            true => ["arp_spa", "arp_tpa"].iter().for_each(|name| self.field(name)),
            false => ["nw_src", "nw_dst"].iter().for_each(|name| self.field(name)),
        }
        ["ipv6_src", "ipv6_dst", "ipv6_label"].iter().for_each(|name| self.field(name));
        if is_arp {
            ["arp_op", "arp_sha", "arp_tha"].iter().for_each(|name| self.field(name));
        } else if with.is_none() {
            self.field("nw_proto");
        }
        self.ip();
        self.transport(protocol);
    }

    /// The fields of IP behind its addresses.
    fn ip(&mut self) {
        let dscp = self.of.mask.get(place::DSCP);
        if dscp == place::DSCP.all() {
            let tos = self.of.key.get(place::DSCP) << 2;
            self.word(&format!("nw_tos={tos}"));
        } else if dscp != 0 {
            self.field("ip_dscp");
        }
        ["nw_ecn", "nw_ttl", "nw_frag"].iter().for_each(|name| self.field(name));
    }

    /// The fields behind IP's.
    fn transport(&mut self, protocol: Option<Protocol>) {
        match protocol {
            Some(Protocol::ICMP) => ["icmp_type", "icmp_code"].iter().for_each(|name| self.field(name)),
            Some(Protocol::ICMPV6) => {
                ["icmp_type", "icmp_code", "nd_target"].iter().for_each(|name| self.field(name));
                ["nd_sll", "nd_tll"].iter().for_each(|name| self.field(name));
            }
            _ => ["tp_src", "tp_dst", "tcp_flags"].iter().for_each(|name| self.field(name)),
        }
    }

    /// The tag: in the words of OpenFlow 1.0 where they say it.
    fn vlan(&mut self) {
        const PRIORITY: u16 = 7 << 13;
        const NUMBER: u16 = 0xfff;
        let (tci, mask) = (self.of.key.get16(place::VLAN_TCI), self.of.mask.get16(place::VLAN_TCI));
        let has_tag = tci & mask & TAGGED != 0;
        let (number, priority) = (mask & NUMBER, mask & PRIORITY);
        match (number, priority) {
            _ if mask == 0 => {}
            (0 | NUMBER, 0 | PRIORITY) if has_tag && (number, priority) != (0, 0) => {
                if number != 0 {
                    self.word(&format!("dl_vlan={}", tci & NUMBER));
                }
                if priority != 0 {
                    self.word(&format!("dl_vlan_pcp={}", tci >> 13));
                }
            }
            _ if mask == 0xffff => self.word(&format!("vlan_tci={tci:#06x}")),
            _ => self.word(&format!("vlan_tci={tci:#06x}/{mask:#06x}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Numbers;

    pub(crate) fn read(text: &str) -> Result<Match, FlowError> {
        let mut reader = MatchReader::default();
        for word in Piece::new(text).items() {
            if !reader.read(word, &Numbers)? {
                return Err(word.error("unknown"));
            }
        }
        reader.end()
    }

    /// Each is what `ovs-ofctl` 3.1 shows of the text before it.
    #[test]
    fn golden_texts_of_ovs_ofctl() {
        let texts = [
            (
                "tcp,in_port=1,dl_vlan=5,dl_vlan_pcp=3,nw_src=10.0.0.0/8,tp_dst=80,tcp_flags=+syn-ack,\
                 reg0=5/0xf,metadata=7",
                "tcp,reg0=0x5/0xf,metadata=0x7,in_port=1,dl_vlan=5,dl_vlan_pcp=3,nw_src=10.0.0.0/8,\
                 tp_dst=80,tcp_flags=+syn-ack",
            ),
            (
                "arp,arp_spa=1.2.3.4,arp_op=1,arp_sha=02:00:00:00:00:01",
                "arp,arp_spa=1.2.3.4,arp_op=1,arp_sha=02:00:00:00:00:01",
            ),
            ("vlan_tci=0x1005/0x1fff", "dl_vlan=5"),
            ("vlan_tci=0", "vlan_tci=0x0000"),
            ("vlan_vid=0", "vlan_tci=0x0000/0x1fff"),
            ("vlan_vid=0x0/0x1000", "vlan_tci=0x0000/0x1000"),
            ("icmp,tp_src=8", "icmp,icmp_type=8"),
            ("icmp6,tp_src=8,tp_dst=0", "icmp6,icmp_type=8,icmp_code=0"),
            ("arp,nw_proto=1,nw_src=10.0.0.1", "arp,arp_spa=10.0.0.1,arp_op=1"),
            ("dl_vlan=0xffff", "vlan_tci=0x0000"),
            ("vlan_tci=0x1000/0x1000", "vlan_tci=0x1000/0x1000"),
            (
                "icmp6,icmpv6_type=135,icmp_code=0,nd_target=fd00::2,nd_sll=02:00:00:00:00:01,\
                 ipv6_src=fd00::/16",
                "icmp6,ipv6_src=fd00::/16,icmp_type=135,icmp_code=0,nd_target=fd00::2,\
                 nd_sll=02:00:00:00:00:01",
            ),
            ("ip,nw_frag=later,nw_tos=32,nw_ecn=1,nw_ttl=5", "ip,nw_tos=32,nw_ecn=1,nw_ttl=5,nw_frag=later"),
            (
                "dl_dst=01:00:00:00:00:00/01:00:00:00:00:00,dl_type=0x88cc",
                "dl_dst=01:00:00:00:00:00/01:00:00:00:00:00,dl_type=0x88cc",
            ),
            ("udp,tp_src=0x100/0xff00", "udp,tp_src=0x100/0xff00"),
            ("ip,nw_proto=99", "ip,nw_proto=99"),
            ("sctp,tp_src=4", "sctp,tp_src=4"),
            ("tcp,tcp_flags=0x2/0x12", "tcp,tcp_flags=+syn-ack"),
            ("tcp,tcp_flags=0x12", "tcp,tcp_flags=syn|ack"),
            ("icmp,icmp_type=3,icmp_code=1", "icmp,icmp_type=3,icmp_code=1"),
            ("dl_vlan_pcp=3", "dl_vlan_pcp=3"),
            ("vlan_tci=0x1123/0x1f0f", "vlan_tci=0x1103/0x1f0f"),
            ("vlan_vid=0x1005/0x1fff,vlan_pcp=2", "dl_vlan=5,dl_vlan_pcp=2"),
            ("ip,nw_dst=10.1.2.3/255.0.255.0,nw_frag=no", "ip,nw_dst=10.0.2.0/255.0.255.0,nw_frag=no"),
            ("ip,nw_frag=not_later,ip_dscp=8", "ip,nw_tos=32,nw_frag=not_later"),
            ("udp6,tp_src=4,tp_dst=5", "udp6,tp_src=4,tp_dst=5"),
            ("dl_type=0x800,nw_proto=6,tp_dst=80", "tcp,tp_dst=80"),
            ("ipv6,ipv6_label=0x5", "ipv6,ipv6_label=0x00005"),
            ("reg0=0/3,metadata=0,dl_type=0x27", "reg0=0/0x3,metadata=0,dl_type=0x0027"),
            ("arp,nw_src=10.0.0.1", "arp,arp_spa=10.0.0.1"),
            ("rarp", "rarp"),
            ("", ""),
        ];
        for (text, shown) in texts {
            let found = read(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(found.show(&Numbers), shown);
            assert_eq!(read(shown), Ok(found), "{shown}");
        }
    }

    #[test]
    fn errors_name_the_word() {
        let refused = |text: &str| read(text).unwrap_err().to_string();
        assert_eq!(
            refused("in_port=1,nw_src=10.0.0.1"),
            "column 11: `ip_src` needs ip, tcp, udp or icmp in the match"
        );
        assert!(refused("tp_dst=80,ip").contains("`tp_dst` needs tcp, udp"));
        assert!(refused("tcp,udp").contains("column 5: `udp` contradicts"));
        assert!(refused("dl_vlan=5,dl_vlan=6").contains("column 11: `dl_vlan` contradicts"));
        assert!(refused("ip,nw_tos=3").contains("nw_ecn"));
        assert!(refused("icmp6,nd_target=fd00::1").contains("`nd_target` needs icmp6"));
        for text in ["arp,nw_frag=yes", "arp,nw_ttl=5", "arp,nw_tos=4", "arp,nw_ecn=1"] {
            assert!(refused(text).contains("needs ip or ipv6"), "{text}");
        }
        for text in ["ip,nw_proto=6/7", "dl_type=0x800/0xff00", "ip,nw_ttl=4/4", "icmp,icmp_type=8/8"] {
            assert!(refused(text).contains("has no mask"), "{text}");
        }
        assert!(refused("icmp,tp_src=256").contains("0 to 255"));
        assert!(refused("vlan_vid=5").contains("0x1000"));
        assert!(refused("ip,nw_src=10.0.0").contains("column 11"));
    }

    #[test]
    fn a_match_contains_narrower_ones() {
        let of = |text| read(text).unwrap();
        assert!(of("ip").contains(&of("tcp,nw_src=10.0.0.1")));
        assert!(of("tcp,nw_src=10.0.0.0/8").contains(&of("tcp,nw_src=10.9.0.0/16")));
        assert!(!of("tcp,nw_src=10.9.0.0/16").contains(&of("tcp,nw_src=10.0.0.0/8")));
        assert!(!of("udp").contains(&of("tcp")));
        assert!(of("").contains(&of("arp")));
    }
}
