//! Groups: several lists of actions, of which a frame gets one or all.

use crate::Ports;
use crate::action::{Action, count_all, read_all, show_all};
use crate::classifier::mix;
use crate::key::{Key, place};
use crate::text::{FlowError, Longest, Piece};
use core::fmt::Write as _;
use ringway_wire::{EtherType, Protocol};

/// The greatest number of a group, as in OpenFlow.
pub const LARGEST: u32 = 0xffff_ff00;
/// Most buckets of a group. Attack: a group of which a frame gets copies without end.
pub const BUCKETS: usize = 256;
/// Most groups of a switch.
pub const GROUPS: usize = 4096;
/// Most actions of a group. Attack: a group whose text is longer when it is shown than when it was given, so that it
/// can't be read again.
pub const GROUP_ACTIONS: usize = 4096;
/// Most bytes of a group's text: more than the longest group has when it is shown. Attack: as of `text::LONGEST`.
const LONGEST: usize = 1 << 20;

/// Which buckets a frame gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupKind {
    /// Each of them, one after the other, each with the frame as it came.
    All,
    /// One, chosen by the frame's flow and the buckets' weights; the same for both directions.
    Select,
    /// The only one.
    Indirect,
}

/// A list of actions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// Its number, by which `select` knows it again if others come and go.
    pub id: u32,
    /// Its share of flows.
    pub weight: u16,
    /// What becomes of a frame.
    pub actions: Box<[Action]>,
}

/// A group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its number.
    pub id: u32,
    /// Which buckets a frame gets.
    pub kind: GroupKind,
    /// Its buckets.
    pub buckets: Box<[Bucket]>,
}

const KINDS: [(&str, GroupKind); 3] =
    [("all", GroupKind::All), ("select", GroupKind::Select), ("indirect", GroupKind::Indirect)];

impl Group {
    /// Reads a group, as `ovs-ofctl add-group` does.
    ///
    /// # Errors
    /// A word is unknown, a value is wrong, or the number or the type is missing.
    pub fn read(text: &str, ports: &dyn Ports) -> Result<Group, FlowError> {
        if text.len() > LONGEST {
            return Err(FlowError::new(1, format!("a group has more than {LONGEST} bytes")));
        }
        let (mut id, mut kind, mut buckets, mut weighted) = (None, None, Vec::new(), None);
        let mut actions = 0;
        let mut rest = Piece::new(text);
        let first = rest.text.find("bucket=").unwrap_or(rest.text.len());
        let (before, behind) = rest.split_at(first);
        for word in before.items() {
            let Some((name, value)) = word.split_once("=") else { return Err(unknown(word)) };
            match name.text {
                "group_id" => id = Some(value.number(u64::from(LARGEST))? as u32),
                "type" => kind = Some(read_kind(value)?),
                _ => return Err(unknown(name)),
            }
        }
        rest = behind;
        while let Some((_, behind)) = rest.split_once("bucket=") {
            let end = behind.text.find("bucket=").unwrap_or(behind.text.len());
            let (bucket, next) = behind.split_at(end);
            if buckets.len() >= BUCKETS {
                return Err(bucket.error(format!("a group has more than {BUCKETS} buckets")));
            }
            let (new, weight) = read_bucket(bucket, buckets.len() as u32, ports)?;
            actions += count_all(&new.actions);
            if actions > GROUP_ACTIONS {
                return Err(bucket.error(format!("a group has more than {GROUP_ACTIONS} actions")));
            }
            if buckets.iter().any(|own: &Bucket| own.id == new.id) {
                return Err(bucket.error(format!("a bucket before has the bucket_id {} too", new.id)));
            }
            buckets.push(new);
            weighted = weighted.or(weight);
            rest = next;
        }
        let id = id.ok_or_else(|| FlowError::new(1, "a group needs group_id=NUMBER"))?;
        let kind =
            kind.ok_or_else(|| FlowError::new(1, "a group needs type=all, type=select or type=indirect"))?;
        if let Some(weight) = weighted.filter(|_| kind != GroupKind::Select) {
            return Err(weight.error("only groups of type select have weights"));
        }
        if kind == GroupKind::Indirect && buckets.len() != 1 {
            return Err(FlowError::new(1, "a group of type indirect has one bucket"));
        }
        Ok(Group { id, kind, buckets: buckets.into() })
    }

    /// As it is read again, in `ovs-ofctl`'s order.
    pub fn show(&self, ports: &dyn Ports) -> String {
        let kind = KINDS.iter().find(|(_, kind)| *kind == self.kind).map_or("", |(name, _)| name);
        let mut text = format!("group_id={},type={kind}", self.id);
        for Bucket { id, weight, actions } in &self.buckets {
            // Writing to a string does not fail.
            let _ = write!(text, ",bucket=bucket_id:{id},");
            if self.kind == GroupKind::Select {
                let _ = write!(text, "weight:{weight},");
            }
            let _ = write!(text, "actions={}", show_all(actions, ports));
        }
        text
    }

    /// Number of its actions.
    pub(crate) fn actions(&self) -> usize {
        self.buckets.iter().map(|bucket| count_all(&bucket.actions)).sum()
    }

    /// Most bytes of its line.
    pub(crate) fn longest(&self) -> usize {
        self.show(&Longest).len() + 1
    }

    /// The bucket of `select` for a frame: that with the highest score, so that few flows move if buckets change.
    pub(crate) fn select(&self, key: &Key, seed: u64) -> Option<&Bucket> {
        let hash = hash(key, seed);
        let weighted = self.buckets.iter().filter(|bucket| bucket.weight > 0);
        let scored = weighted.map(|bucket| (score(hash, bucket), bucket));
        scored.max_by(|one, other| one.0.total_cmp(&other.0)).map(|(_, bucket)| bucket)
    }
}

/// A score whose greatest one is that of each bucket by its weight: an exponential distribution of that rate (weighted
/// rendezvous hashing).
fn score(hash: u64, bucket: &Bucket) -> f64 {
    let hash = mix(mix(hash, u64::from(bucket.id) + 1), 1);
    // Between 0 and 1, and neither of them.
    let uniform = ((hash >> 12) as f64 + 0.5) / (1_u64 << 52) as f64;
    f64::from(bucket.weight) / -uniform.ln()
}

/// A hash of a frame's flow, the same for both directions, for requests and their replies, and for all fragments of
/// IPv4.
fn hash(key: &Key, seed: u64) -> u64 {
    let end = |eth: u128, v4: u128, v6: u128, port: u128| {
        let words = [(eth << 16 | port) as u64, v4 as u64, (v6 >> 64) as u64, v6 as u64];
        words.into_iter().fold(seed, mix)
    };
    let get = |at| key.get(at);
    let (ether_type, protocol) =
        (EtherType::new(key.get16(place::ETH_TYPE)), Protocol(key.get8(place::NW_PROTO)));
    if matches!(ether_type, EtherType::ARP | EtherType::RARP) {
        // Requests go to all, and an operation is no protocol.
        let ends = [get(place::NW_SRC), get(place::NW_DST)].map(|address| mix(seed, address as u64));
        return mix(ends[0].wrapping_add(ends[1]), u64::from(ether_type.get()));
    }
    let is_fragment = key.get8(place::FRAG) != 0;
    // ICMP's type is where ports are.
    let has_ports = protocol.has_ports() && !is_fragment;
    let port = |at| if has_ports { get(at) } else { 0 };
    let source = end(get(place::ETH_SRC), get(place::NW_SRC), get(place::IPV6_SRC), port(place::TP_SRC));
    let destination = end(get(place::ETH_DST), get(place::NW_DST), get(place::IPV6_DST), port(place::TP_DST));
    // Later fragments of IPv6 do not say what they are.
    let protocol = if is_fragment && ether_type == EtherType::IPV6 { Protocol::FRAGMENT } else { protocol };
    let rest = get(place::ETH_TYPE) << 32 | u128::from(protocol.0) << 16 | get(place::VLAN_VID);
    mix(source.wrapping_add(destination), rest as u64)
}

fn read_kind(value: Piece<'_>) -> Result<GroupKind, FlowError> {
    match KINDS.iter().find(|(name, _)| *name == value.text) {
        Some((_, kind)) => Ok(*kind),
        None if matches!(value.text, "fast_failover" | "ff") => {
            Err(value.error("type fast_failover is not supported: groups do not watch ports"))
        }
        None => Err(value.error(format!("`{}` is none of all, select, indirect", value.shown()))),
    }
}

fn unknown(word: Piece<'_>) -> FlowError {
    word.error(format!("unknown word `{}`; a group has group_id, type and bucket", word.shown()))
}

/// Reads a bucket; returns also where its weight is, if it has one.
fn read_bucket<'t>(
    text: Piece<'t>,
    number: u32,
    ports: &dyn Ports,
) -> Result<(Bucket, Option<Piece<'t>>), FlowError> {
    let (mut id, mut weight, mut weighted, mut rest) = (number, 1, None, text);
    loop {
        let start = rest.text.find(|letter: char| letter != ',' && !letter.is_whitespace());
        rest = rest.split_at(start.unwrap_or(rest.text.len())).1;
        let Some(item) = rest.items().next() else { break };
        if item.text.starts_with("actions=") {
            rest = rest.split_at("actions=".len()).1;
            break;
        }
        let split = item.split_once(":").or_else(|| item.split_once("="));
        match split.map(|(name, value)| (name.text, value)) {
            Some(("bucket_id", value)) => id = value.number(u64::from(LARGEST))? as u32,
            Some(("weight", value)) => {
                (weight, weighted) = (value.number(0xffff)? as u16, Some(item));
            }
            Some(("watch_port" | "watch_group", _)) => {
                return Err(
                    item.error("`watch_port` and `watch_group` are not supported: groups do not watch ports")
                );
            }
            _ => break,
        }
        rest = rest.split_at(item.text.len()).1;
    }
    let actions = read_all(rest, None, ports)?;
    if let Some(Action::Goto(_)) = actions.last() {
        return Err(rest.error("a bucket has no `goto_table`; write resubmit(,TABLE)"));
    }
    Ok((Bucket { id, weight, actions }, weighted))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Numbers;

    fn group(text: &str) -> Result<Group, FlowError> {
        Group::read(text, &Numbers)
    }

    #[test]
    fn texts() {
        let texts = [
            (
                "group_id=1,type=all,bucket=output:1,bucket=actions=mod_vlan_vid:5,output:2",
                "group_id=1,type=all,bucket=bucket_id:0,actions=output:1,bucket=bucket_id:1,\
                 actions=mod_vlan_vid:5,output:2",
            ),
            (
                "group_id=7 type=select bucket=weight:10,bucket_id:4,actions=output:1 bucket=weight:20,\
                 output:2",
                "group_id=7,type=select,bucket=bucket_id:4,weight:10,actions=output:1,bucket=bucket_id:1,\
                 weight:20,actions=output:2",
            ),
            (
                "group_id=3,type=indirect,bucket=actions=normal",
                "group_id=3,type=indirect,bucket=bucket_id:0,actions=NORMAL",
            ),
            ("group_id=3,type=select", "group_id=3,type=select"),
        ];
        for (text, shown) in texts {
            let found = group(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(found.show(&Numbers), shown);
            assert_eq!(group(shown), Ok(found));
        }
        let refused = |text: &str| group(text).unwrap_err().to_string();
        assert!(refused("type=all").contains("group_id=NUMBER"));
        assert!(refused("group_id=1").contains("type=all"));
        assert!(refused("group_id=1,type=ff").contains("column 17: type fast_failover"));
        assert!(refused("group_id=1,type=any").contains("`any`"));
        assert!(refused("group_id=1,type=all,foo=2").contains("column 21: unknown word `foo`"));
        assert!(refused("group_id=1,type=indirect").contains("one bucket"));
        assert!(refused("group_id=1,type=all,bucket=watch_port:1,output:1").contains("watch_port"));
        assert!(refused("group_id=1,type=all,bucket=foo:1").contains("column 28: unknown action `foo`"));
        assert!(refused("group_id=1,type=all,bucket=").contains("an action is missing"));
        assert!(
            refused("group_id=1,type=all,bucket=weight:3,output:1").contains("column 28: only groups of")
        );
        assert!(refused("group_id=1,type=all,bucket=1,bucket=bucket_id:0,2").contains("bucket_id 0 too"));
        assert!(refused("group_id=1,type=all,bucket=1,goto_table:3").contains("resubmit(,TABLE)"));
    }

    /// Ports with the longest names.
    struct Long;

    impl Ports for Long {
        fn number(&self, word: &str) -> Option<u16> {
            word.trim_end_matches('x').parse().ok().or_else(|| Numbers.number(word))
        }

        fn name(&self, number: u16) -> Option<String> {
            Some(format!("{number:x<64}"))
        }
    }

    #[test]
    fn the_longest_group_is_read_again() {
        let bucket = "bucket=weight:65535,".to_string() + &"1,".repeat(GROUP_ACTIONS / BUCKETS);
        let text = |id: u32| format!("group_id={id},type=select,") + &bucket.repeat(BUCKETS);
        let own = Group::read(&text(LARGEST), &Long).unwrap();
        let shown = own.show(&Long);
        assert!(shown.len() > 256 << 10, "{}", shown.len());
        assert_eq!(Group::read(&shown, &Long), Ok(own));
        let more = text(1).replacen("bucket=weight:65535,", "bucket=weight:65535,5,", 1);
        assert!(Group::read(&more, &Long).unwrap_err().what.contains("4096 actions"));
        // An IPv6 address and its mask are the longest value.
        let set = "set_field:1111:2222:3333:4444:5555:6666:7777:8888/7fff:ffff:ffff:ffff:ffff:ffff:ffff:fff1\
            ->ipv6_src,";
        let each = "bucket=".to_string() + &set.repeat(GROUP_ACTIONS / BUCKETS);
        let own = Group::read(&("group_id=1,type=all,".to_string() + &each.repeat(BUCKETS)), &Long).unwrap();
        assert_eq!(Group::read(&own.show(&Long), &Long), Ok(own));
    }

    #[test]
    fn select_spreads_by_weight_and_keeps_flows() {
        let of = |text: &str| group(text).unwrap();
        let three =
            of("group_id=1,type=select,bucket=weight:1,output:1,bucket=weight:2,output:2,bucket=weight:0,\
             output:3");
        let two = of("group_id=1,type=select,bucket=weight:1,output:1");
        let mut counts = [0; 3];
        for port in 0..30_000u16 {
            let key = key(&[(place::NW_PROTO, 6), (place::TP_SRC, port.into()), (place::TP_DST, 80)]);
            let back = key_back(&key);
            let own = three.select(&key, 7).unwrap();
            assert_eq!(Some(own), three.select(&back, 7), "both directions");
            counts[own.id as usize] += 1;
            assert_eq!(two.select(&key, 7).unwrap().id, 0);
        }
        assert_eq!(counts[2], 0);
        assert!((9_500..10_500).contains(&counts[0]) && counts[0] + counts[1] == 30_000, "{counts:?}");
        assert!(of("group_id=1,type=select").select(&Key::EMPTY, 7).is_none());
    }

    fn key(fields: &[(crate::Place, u128)]) -> Key {
        let mut key = Key::EMPTY;
        key.set(place::ETH_TYPE, EtherType::IPV4.get());
        fields.iter().for_each(|(place, value)| key.set(*place, *value));
        key
    }

    fn key_back(key: &Key) -> Key {
        let mut back = *key;
        let pairs = [
            (place::ETH_SRC, place::ETH_DST),
            (place::NW_SRC, place::NW_DST),
            (place::TP_SRC, place::TP_DST),
        ];
        for (one, other) in pairs {
            back.set(one, key.get(other));
            back.set(other, key.get(one));
        }
        back
    }

    #[test]
    fn requests_and_replies_and_fragments_stay_together() {
        let id = |number: u128, fields: &[(crate::Place, u128)]| {
            let base = [(place::NW_SRC, number), (place::NW_DST, 99)];
            hash(&key(&[&base, fields].concat()), 7)
        };
        for number in 0..64 {
            let echo = |kind: u128| id(number, &[(place::NW_PROTO, 1), (place::TP_SRC, kind)]);
            assert_eq!(echo(8), echo(0));
            let arp = |operation: u128, to: u128| {
                let own = (place::ETH_TYPE, u128::from(EtherType::ARP.get()));
                id(number, &[own, (place::NW_PROTO, operation), (place::ETH_DST, to)])
            };
            assert_eq!(arp(1, 0xffff_ffff_ffff), arp(2, 5));
            let fragment = |bits: u128, port: u128| {
                id(number, &[(place::NW_PROTO, 17), (place::FRAG, bits), (place::TP_DST, port)])
            };
            assert_eq!(fragment(1, 53), fragment(3, 0));
            assert_ne!(fragment(0, 53), fragment(0, 54));
            let v6 = |protocol: u128, bits: u128| {
                let own = (place::ETH_TYPE, u128::from(EtherType::IPV6.get()));
                id(number, &[own, (place::NW_PROTO, protocol), (place::FRAG, bits)])
            };
            assert_eq!(v6(17, 1), v6(44, 3));
        }
    }
}
