//! The actions of a flow, in `ovs-ofctl`'s words.

use crate::Ports;
use crate::field::{self, Field, Needs};
use crate::key::{Place, TAGGED, place};
use crate::matching::Match;
use crate::text::{FlowError, Form, Piece, port, show_port};
use ringway_wire::EtherType;

/// Most actions of a flow or of a bucket, those in `clone` counted. Attack: a flow that makes a worker edit each frame
/// for ever.
pub const ACTIONS: usize = 256;
/// How deep `clone` may be within `clone`.
const NESTED: usize = 8;
/// The bits of a VLAN's number.
const VLAN: u16 = 0xfff;

/// Bits of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bits {
    /// The field.
    pub field: &'static Field,
    /// The lowest bit.
    pub first: u8,
    /// The number of bits.
    pub count: u8,
}

impl Bits {
    /// Where they are in a key.
    pub fn place(&self) -> Place {
        self.field.bits().part(self.first, self.count)
    }

    fn is_whole(&self) -> bool {
        self.first == 0 && self.count == self.field.bits().bits()
    }
}

/// An action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// To a port, except that from which the frame came.
    Output(u16),
    /// To the port whose number bits have.
    OutputBits(Bits),
    /// To the port from which the frame came.
    InPort,
    /// To every port of the switch, except that from which the frame came.
    All,
    /// As `All`.
    Flood,
    /// As a switch without flows does.
    Normal,
    /// Sets bits of a field.
    Set {
        /// The field.
        field: &'static Field,
        /// The bits' values.
        value: u128,
        /// The bits.
        mask: u128,
    },
    /// Copies bits of a field.
    Move(Bits, Bits),
    /// Sets the number of the VLAN, in a new tag if there is none.
    ModVlanVid(u16),
    /// Sets the priority, in a new tag if there is none.
    ModVlanPcp(u8),
    /// Adds a tag of this type in front of the others, with the number 0 and the priority 0.
    PushVlan(EtherType),
    /// Removes the first tag.
    StripVlan,
    /// Decrements the time to live; a frame whose time ends here is dropped.
    DecTtl,
    /// Looks up the frame in another table, as if it came from another port, and goes on behind.
    Resubmit(Option<u16>, Option<u8>),
    /// Goes on in a later table.
    Goto(u8),
    /// Goes on in a group.
    Group(u32),
    /// Drops frames beyond a meter's rate.
    Meter(u32),
    /// Runs actions whose changes to the frame are undone behind them.
    Clone(Box<[Action]>),
    /// Ends the frame's way.
    Exit,
}

/// Words that Open vSwitch has and this switch has not, each with its reason.
const REFUSED: &[(&str, &str)] = &[
    ("controller", "there is no controller; `ringway capture` and `ringway trace --live` show frames"),
    ("local", "a switch has no port of the host; add a port of kind tap, and output to it"),
    ("learn", "actions that write flows are not there; `normal` learns addresses"),
    ("ct", "connections are not tracked; a function with IPFilter or a NAT does"),
    ("table", "`table` is for a controller's frames; use resubmit(,TABLE)"),
    ("enqueue", "ports have no queues to choose; the rates of ports are policy, and `meter` is one of flows"),
    (
        "set_queue",
        "ports have no queues to choose; the rates of ports are policy, and `meter` is one of flows",
    ),
    ("set_tunnel", "a switch has no tunnels; wires between fabrics are ports"),
    ("write_actions", "there is no action set; list the actions behind `actions=`"),
    ("clear_actions", "there is no action set; list the actions behind `actions=`"),
];

/// Reads a list of actions. `of`: the match of their flow, if they are a flow's.
pub(crate) fn read_all(
    list: Piece<'_>,
    of: Option<&Match>,
    ports: &dyn Ports,
) -> Result<Box<[Action]>, FlowError> {
    let mut reader = Reader { of: of.copied(), ports, left: ACTIONS };
    let items: Vec<Piece<'_>> = list.items().collect();
    if items.is_empty() {
        return Err(list.error("an action is missing, such as output:PORT, normal or drop"));
    }
    if let Some(drop) = items.iter().find(|item| item.text.eq_ignore_ascii_case("drop")) {
        return match items.len() {
            1 => Ok(Box::default()),
            _ => Err(drop.error("`drop` stands alone; a frame that no action sends is dropped")),
        };
    }
    reader.list(&items, 0)
}

struct Reader<'r> {
    /// The match, with the tag that an action before has made.
    of: Option<Match>,
    ports: &'r dyn Ports,
    left: usize,
}

impl Reader<'_> {
    fn list(&mut self, items: &[Piece<'_>], depth: usize) -> Result<Box<[Action]>, FlowError> {
        let mut actions = Vec::with_capacity(items.len());
        for (at, item) in items.iter().enumerate() {
            self.left = self.left.checked_sub(1).ok_or_else(|| {
                item.error(format!("a flow has more than {ACTIONS} actions; use another table"))
            })?;
            let action = self.action(*item, depth)?;
            if matches!(action, Action::Goto(_)) && (at + 1 < items.len() || depth > 0) {
                return Err(item.error("`goto_table` is the last action"));
            }
            self.of.iter_mut().for_each(|of| follow(&action, of));
            actions.push(action);
        }
        Ok(actions.into())
    }

    fn action(&mut self, item: Piece<'_>, depth: usize) -> Result<Action, FlowError> {
        let end = item.text.find([':', '(', '=']).unwrap_or(item.text.len());
        let (name, rest) = item.split_at(end);
        let word = name.text.to_ascii_lowercase();
        if let Some((_, reason)) = REFUSED.iter().find(|(refused, _)| *refused == word) {
            return Err(name.error(format!("`{}` is not supported: {reason}", name.text)));
        }
        let has_value = !rest.text.is_empty();
        let value = rest.split_at(usize::from(has_value)).1;
        if !has_value && let Some(action) = self.plain(&word, name)? {
            return Ok(action);
        }
        if rest.text.starts_with('(') {
            return self.called(&word, name, value, depth);
        }
        self.valued(&word, name, value)
    }

    /// An action without a value.
    fn plain(&mut self, word: &str, name: Piece<'_>) -> Result<Option<Action>, FlowError> {
        Ok(Some(match word {
            "in_port" => Action::InPort,
            "all" => Action::All,
            "flood" => Action::Flood,
            "normal" => Action::Normal,
            "strip_vlan" | "pop_vlan" => Action::StripVlan,
            "dec_ttl" => self.checked(Action::DecTtl, name)?,
            "exit" => Action::Exit,
            "drop" => return Err(name.error("`drop` stands alone")),
            _ => match self.ports.number(name.text.trim_matches('"')) {
                Some(number) => Action::Output(number),
                None if is_valued(word) => {
                    return Err(name.error(format!("`{word}` needs a value, as in {word}:VALUE")));
                }
                None => return Err(unknown(name)),
            },
        }))
    }

    /// An action whose arguments are in parentheses; `inside` still has the closing one.
    fn called(
        &mut self,
        word: &str,
        name: Piece<'_>,
        inside: Piece<'_>,
        depth: usize,
    ) -> Result<Action, FlowError> {
        let Some(length) = inside.text.strip_suffix(')').map(str::len) else {
            return Err(name.error(format!("`{}` has no closing parenthesis", name.shown())));
        };
        let inside = inside.split_at(length).0;
        match word {
            "resubmit" => {
                if inside.text.trim() == "," || inside.text.trim().is_empty() {
                    return Err(name.error("`resubmit` needs a port or a table, as in resubmit(,TABLE)"));
                }
                let (port, table) = inside.split_once(",").unwrap_or((inside, inside.split_at(length).1));
                let port = match port.trim() {
                    none if none.text.is_empty() => None,
                    given => self.resubmit_port(given)?,
                };
                let table = match table.trim() {
                    none if none.text.is_empty() => None,
                    given => Some(read_table(given)?),
                };
                Ok(Action::Resubmit(port, table))
            }
            "clone" if depth >= NESTED => {
                Err(name.error(format!("`clone` is nested more than {NESTED} times")))
            }
            "clone" => {
                let before = self.of;
                let items: Vec<Piece<'_>> = inside.items().collect();
                let actions = self.list(&items, depth + 1)?;
                self.of = before;
                Ok(Action::Clone(actions))
            }
            _ => Err(unknown(name)),
        }
    }

    fn resubmit_port(&self, text: Piece<'_>) -> Result<Option<u16>, FlowError> {
        match text.text.eq_ignore_ascii_case("in_port") {
            true => Ok(None),
            false => port(text.text, self.ports).map(Some).map_err(|what| text.error(what)),
        }
    }

    /// An action with a value.
    fn valued(&self, word: &str, name: Piece<'_>, value: Piece<'_>) -> Result<Action, FlowError> {
        let set = |reader: &Reader<'_>, field: &str| reader.set(field, name, value);
        match word {
            "output" => self.output(value),
            "resubmit" => Ok(Action::Resubmit(self.resubmit_port(value)?, None)),
            "group" => value.number(u64::from(crate::group::LARGEST)).map(|id| Action::Group(id as u32)),
            "meter" => value.number(u64::from(crate::meter::LARGEST)).map(|id| Action::Meter(id as u32)),
            "goto_table" => read_table(value).map(Action::Goto),
            "set_field" => self.set_field(value),
            "load" => self.load(value),
            "move" => self.move_bits(value),
            "write_metadata" => set(self, "metadata"),
            "mod_dl_src" => set(self, "eth_src"),
            "mod_dl_dst" => set(self, "eth_dst"),
            "mod_nw_src" => set(self, "ip_src"),
            "mod_nw_dst" => set(self, "ip_dst"),
            "mod_nw_ecn" => set(self, "nw_ecn"),
            "mod_nw_ttl" => set(self, "nw_ttl"),
            "mod_tp_src" => set(self, "tp_src"),
            "mod_tp_dst" => set(self, "tp_dst"),
            "mod_nw_tos" => self.tos(name, value),
            "mod_vlan_vid" => value.number(0xfff).map(|number| Action::ModVlanVid(number as u16)),
            "mod_vlan_pcp" => value.number(7).map(|priority| Action::ModVlanPcp(priority as u8)),
            "push_vlan" => {
                let tag = EtherType::new(value.number(0xffff)? as u16);
                if !tag.is_tag() {
                    return Err(value.error(format!("`{}` is none of 0x8100, 0x88a8", value.shown())));
                }
                Ok(Action::PushVlan(tag))
            }
            _ => Err(unknown(name)),
        }
    }

    fn output(&self, value: Piece<'_>) -> Result<Action, FlowError> {
        let word = value.text.to_ascii_lowercase();
        if let Some((_, reason)) = REFUSED.iter().find(|(refused, _)| *refused == word) {
            return Err(value.error(format!("`{}` is not supported: {reason}", value.text)));
        }
        match word.as_str() {
            "in_port" => Ok(Action::InPort),
            "all" => Ok(Action::All),
            "flood" => Ok(Action::Flood),
            "normal" => Ok(Action::Normal),
            _ if value.text.contains('[') => {
                let bits = read_bits(value)?;
                match bits.count <= 16 {
                    true => Ok(Action::OutputBits(bits)),
                    false => {
                        Err(value.error("a port's number has at most 16 bits, as in output:reg0[0..15]"))
                    }
                }
            }
            _ => port(value.text, self.ports).map(Action::Output).map_err(|what| value.error(what)),
        }
    }

    /// `VALUE[/MASK]->FIELD`.
    fn set_field(&self, value: Piece<'_>) -> Result<Action, FlowError> {
        let Some((value, field)) = value.split_once("->") else {
            return Err(value.error("`set_field` needs VALUE->FIELD"));
        };
        match field.text {
            "nw_tos" => self.tos(field, value),
            name => self.set(name, field, value),
        }
    }

    /// DSCP as the upper bits of a type of service.
    fn tos(&self, name: Piece<'_>, value: Piece<'_>) -> Result<Action, FlowError> {
        let tos = value.number(0xff)?;
        if tos & 3 != 0 {
            return Err(value.error("the lowest two bits are nw_ecn's, and must be 0"));
        }
        let field = named("ip_dscp", name)?;
        self.checked(Action::Set { field, value: u128::from(tos >> 2), mask: 0x3f }, name)
    }

    fn set(&self, field: &str, name: Piece<'_>, value: Piece<'_>) -> Result<Action, FlowError> {
        let field = named(field, name)?;
        if field.form == Form::Vlan {
            return self.set_vlan(field, name, value);
        }
        let (value, mask) = field.read(value.text, self.ports).map_err(|what| value.error(what))?;
        self.checked(Action::Set { field, value, mask }, name)
    }

    /// A VLAN's number with the bit 0x1000, or a part of one with a mask.
    fn set_vlan(&self, field: &'static Field, name: Piece<'_>, text: Piece<'_>) -> Result<Action, FlowError> {
        let most = u64::from(TAGGED | VLAN);
        let (value, mask) = match text.split_once("/") {
            Some((value, mask)) => (value.number(most)?, mask.number(most)?),
            None => (text.number(most)?, most),
        };
        if mask & u64::from(TAGGED) & !value != 0 {
            let what = format!("a tag stays; write {}, or strip_vlan", value | u64::from(TAGGED));
            return Err(text.error(what));
        }
        let mask = u128::from(mask) & u128::from(VLAN);
        self.checked(Action::Set { field, value: u128::from(value) & mask, mask }, name)
    }

    /// `NUMBER->FIELD[FIRST..LAST]`.
    fn load(&self, text: Piece<'_>) -> Result<Action, FlowError> {
        let Some((value, bits)) = text.split_once("->") else {
            return Err(text.error("`load` needs NUMBER->FIELD[FIRST..LAST]"));
        };
        let to = read_bits(bits)?;
        let all = crate::key::ones(to.count);
        let number = crate::text::number(value.text, all).map_err(|what| value.error(what))?;
        let (value, mask) = (number << to.first, all << to.first);
        self.checked(Action::Set { field: to.field, value, mask }, bits)
    }

    /// `FIELD[FIRST..LAST]->FIELD[FIRST..LAST]`.
    fn move_bits(&self, text: Piece<'_>) -> Result<Action, FlowError> {
        let Some((from, to)) = text.split_once("->") else {
            return Err(text.error("`move` needs FIELD[FIRST..LAST]->FIELD[FIRST..LAST]"));
        };
        let (source, destination) = (read_bits(from)?, read_bits(to)?);
        if source.count != destination.count {
            let what = format!("{} bits do not fit into {}", source.count, destination.count);
            return Err(to.error(what));
        }
        let is_source_there = |of: &Match| source.field.needs.is_met(&of.key, &of.mask);
        let place = if self.of.as_ref().is_none_or(is_source_there) { to } else { from };
        self.checked(Action::Move(source, destination), place)
    }

    /// An action, if it writes only what may be written, and frames of the match have what it needs.
    fn checked(&self, action: Action, name: Piece<'_>) -> Result<Action, FlowError> {
        if let Action::Set { field, .. } | Action::Move(_, Bits { field, .. }) = &action
            && !field.is_writable
        {
            return Err(name.error(format!("`{}` can't be written", field.name())));
        }
        match self.of.as_ref().and_then(|of| lack(&action, of)) {
            Some(what) => Err(name.error(what)),
            None => Ok(action),
        }
    }
}

/// What a match lacks for an action: then its frames need not have what the action reads or writes.
fn lack(action: &Action, of: &Match) -> Option<String> {
    let needs = |name: &str, needs: Needs| {
        let is_met = needs.is_met(&of.key, &of.mask);
        (!is_met).then(|| format!("`{name}` needs {} in the match", needs.words()))
    };
    let of_field = |field: &Field| needs(field.name(), field.needs);
    match action {
        Action::DecTtl => needs("dec_ttl", Needs::Ip),
        // A packet of SCTP has another checksum.
        Action::Set { field, .. } | Action::Move(_, Bits { field, .. })
            if field.needs == Needs::Ports && Needs::Sctp.is_met(&of.key, &of.mask) =>
        {
            Some("ports of SCTP can't be written".into())
        }
        Action::Set { field, .. } => of_field(field),
        Action::Move(from, to) => of_field(from.field).or_else(|| of_field(to.field)),
        _ => None,
    }
}

/// What a match lacks for a list of actions, if it does.
pub(crate) fn lack_of_all(actions: &[Action], of: &Match) -> Option<String> {
    let mut of = *of;
    actions.iter().find_map(|action| {
        let found = match action {
            Action::Clone(inner) => lack_of_all(inner, &of),
            action => lack(action, &of),
        };
        follow(action, &mut of);
        found
    })
}

/// What is known of frames behind an action: whether they have a tag.
fn follow(action: &Action, of: &mut Match) {
    let bits = match action {
        Action::ModVlanVid(_) | Action::ModVlanPcp(_) | Action::PushVlan(_) => TAGGED,
        // There may have been another one.
        Action::StripVlan => 0,
        _ => return,
    };
    of.key.set(place::VLAN_TCI, bits);
    of.mask.set(place::VLAN_TCI, bits);
}

fn named(field: &str, name: Piece<'_>) -> Result<&'static Field, FlowError> {
    field::find(field).ok_or_else(|| {
        name.error(format!("unknown field `{}`; the fields are those of `man ovs-fields`", name.shown()))
    })
}

fn unknown(name: Piece<'_>) -> FlowError {
    name.error(format!("unknown action `{}`", name.shown()))
}

/// Whether this is an action that needs a value.
fn is_valued(word: &str) -> bool {
    const VALUED: [&str; 20] = [
        "output",
        "resubmit",
        "group",
        "meter",
        "goto_table",
        "set_field",
        "load",
        "move",
        "write_metadata",
        "mod_dl_src",
        "mod_dl_dst",
        "mod_nw_src",
        "mod_nw_dst",
        "mod_nw_ecn",
        "mod_nw_ttl",
        "mod_nw_tos",
        "mod_tp_src",
        "mod_tp_dst",
        "mod_vlan_vid",
        "push_vlan",
    ];
    VALUED.contains(&word) || word == "mod_vlan_pcp"
}

pub(crate) fn read_table(text: Piece<'_>) -> Result<u8, FlowError> {
    text.number(crate::TABLES as u64 - 1).map(|table| table as u8)
}

/// `FIELD`, `FIELD[]`, `FIELD[BIT]` or `FIELD[FIRST..LAST]`.
fn read_bits(text: Piece<'_>) -> Result<Bits, FlowError> {
    let (name, rest) = text.split_at(text.text.find('[').unwrap_or(text.text.len()));
    let field = named(name.text, name)?;
    let width = field.bits().bits();
    let inside = match (rest.text, rest.text.strip_prefix('[').and_then(|text| text.strip_suffix(']'))) {
        ("", _) | (_, Some("")) => return Ok(Bits { field, first: 0, count: width }),
        (_, Some(inside)) => rest.split_at(1).1.split_at(inside.len()).0,
        (_, None) => return Err(rest.error("bits are written as in FIELD[0..15]")),
    };
    let last = u64::from(width) - 1;
    let (first, last) = match inside.split_once("..") {
        Some((first, end)) => (first.number(last)?, end.number(last)?),
        None => (inside.number(last)?, inside.number(last)?),
    };
    if last < first {
        return Err(inside.error(format!("bit {last} is before bit {first}")));
    }
    let bits = Bits { field, first: first as u8, count: (last - first + 1) as u8 };
    let is_across = width == 128 && !bits.is_whole() && first < 64 && last >= 64;
    match is_across {
        true => Err(inside.error("bits of an IPv6 address are all of them, or those of one half")),
        false => Ok(bits),
    }
}

/// Number of actions, those in `clone` included.
pub(crate) fn count_all(actions: &[Action]) -> usize {
    let inner = |action: &Action| if let Action::Clone(inner) = action { count_all(inner) } else { 0 };
    actions.iter().map(|action| 1 + inner(action)).sum()
}

/// Shows a list of actions.
pub fn show_all(actions: &[Action], ports: &dyn Ports) -> String {
    match actions {
        [] => "drop".to_string(),
        _ => actions.iter().map(|action| action.show(ports)).collect::<Vec<_>>().join(","),
    }
}

fn show_bits(bits: &Bits) -> String {
    let name = bits.field.names.get(1).unwrap_or(&bits.field.names[0]);
    match bits.count {
        _ if bits.is_whole() => format!("{name}[]"),
        1 => format!("{name}[{}]", bits.first),
        count => format!("{name}[{}..{}]", bits.first, bits.first + count - 1),
    }
}

impl Action {
    /// As `ovs-ofctl` shows it, except that fields are always set by `set_field`.
    pub fn show(&self, ports: &dyn Ports) -> String {
        let name = |number: u16| show_port(number, ports);
        match self {
            Action::Output(port) => format!("output:{}", name(*port)),
            Action::OutputBits(bits) => format!("output:{}", show_bits(bits)),
            Action::InPort => "IN_PORT".into(),
            Action::All => "ALL".into(),
            Action::Flood => "FLOOD".into(),
            Action::Normal => "NORMAL".into(),
            Action::Set { field, value, mask } => {
                let (form, all) = (field.form, field.all());
                // Other forms would take a part of a value for a whole one.
                let shown = match form {
                    Form::Vlan if *mask == u128::from(VLAN) => (value | u128::from(TAGGED)).to_string(),
                    Form::Vlan | Form::Flags if *mask != all => format!("{value:#x}/{mask:#x}"),
                    _ => form.show(*value, *mask, all, ports),
                };
                format!("set_field:{shown}->{}", field.name())
            }
            Action::Move(from, to) => format!("move:{}->{}", show_bits(from), show_bits(to)),
            Action::ModVlanVid(number) => format!("mod_vlan_vid:{number}"),
            Action::ModVlanPcp(priority) => format!("mod_vlan_pcp:{priority}"),
            Action::PushVlan(tag) => format!("push_vlan:{:#x}", tag.get()),
            Action::StripVlan => "pop_vlan".into(),
            Action::DecTtl => "dec_ttl".into(),
            Action::Resubmit(Some(port), None) => format!("resubmit:{}", name(*port)),
            Action::Resubmit(None, None) => "resubmit:in_port".into(),
            Action::Resubmit(port, table) => {
                let port = port.map(name).unwrap_or_default();
                format!("resubmit({port},{})", table.map(|table| table.to_string()).unwrap_or_default())
            }
            Action::Goto(table) => format!("goto_table:{table}"),
            Action::Group(id) => format!("group:{id}"),
            Action::Meter(id) => format!("meter:{id}"),
            Action::Clone(actions) => {
                let inside = if actions.is_empty() { String::new() } else { show_all(actions, ports) };
                format!("clone({inside})")
            }
            Action::Exit => "exit".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Numbers;
    use crate::flow::FlowMod;

    fn actions(text: &str) -> Result<String, FlowError> {
        FlowMod::read(text, &Numbers).map(|flow| show_all(&flow.actions, &Numbers))
    }

    /// What `ovs-ofctl -O OpenFlow13 parse-flow` 3.1 shows, except that it keeps `load`, `mod_vlan_vid`, and the older
    /// names of some fields.
    #[test]
    fn golden_texts_of_ovs_ofctl() {
        let texts = [
            ("actions=1,2,output:3", "output:1,output:2,output:3"),
            ("actions=normal,in_port,all,FLOOD", "NORMAL,IN_PORT,ALL,FLOOD"),
            ("actions=drop", "drop"),
            ("actions=set_field:02:00:00:00:00:09->eth_src", "set_field:02:00:00:00:00:09->eth_src"),
            ("actions=mod_dl_dst:02:00:00:00:00:09", "set_field:02:00:00:00:00:09->eth_dst"),
            (
                "ip,actions=mod_nw_dst:10.0.0.1,mod_nw_tos:8,mod_nw_ecn:2,mod_nw_ttl:7,dec_ttl",
                "set_field:10.0.0.1->ip_dst,set_field:2->ip_dscp,set_field:2->nw_ecn,set_field:7->nw_ttl,\
                 dec_ttl",
            ),
            ("tcp,actions=mod_tp_dst:80,set_field:81->tcp_src", "set_field:80->tp_dst,set_field:81->tcp_src"),
            (
                "arp,actions=set_field:2->arp_op,load:0x1->NXM_OF_ARP_OP[],\
                 move:NXM_OF_ARP_SPA[]->NXM_OF_ARP_TPA[]",
                "set_field:2->arp_op,set_field:1->arp_op,move:NXM_OF_ARP_SPA[]->NXM_OF_ARP_TPA[]",
            ),
            (
                "actions=load:5->NXM_NX_REG3[0..7],set_field:5/0xf->reg2,set_field:7->reg0,load:1->reg1[3]",
                "set_field:0x5/0xff->reg3,set_field:0x5/0xf->reg2,set_field:0x7->reg0,\
                 set_field:0x8/0x8->reg1",
            ),
            (
                "actions=move:reg0[0..15]->NXM_NX_REG1[16..31],output:reg1[16..31]",
                "move:NXM_NX_REG0[0..15]->NXM_NX_REG1[16..31],output:NXM_NX_REG1[16..31]",
            ),
            (
                "actions=push_vlan:0x8100,set_field:4101->vlan_vid,set_field:3->vlan_pcp,strip_vlan",
                "push_vlan:0x8100,set_field:4101->vlan_vid,set_field:3->vlan_pcp,pop_vlan",
            ),
            (
                "dl_vlan=5,actions=load:5->OXM_OF_VLAN_VID[],load:1->vlan_vid[4..7],\
                 set_field:0x5/0xfff->vlan_vid,set_field:0x5/0xf0f->vlan_vid",
                "set_field:4101->vlan_vid,set_field:0x10/0xf0->vlan_vid,set_field:4101->vlan_vid,\
                 set_field:0x5/0xf0f->vlan_vid",
            ),
            (
                "dl_vlan=5,actions=move:NXM_NX_REG0[0..11]->OXM_OF_VLAN_VID[]",
                "move:NXM_NX_REG0[0..11]->OXM_OF_VLAN_VID[]",
            ),
            ("tcp,action=set_field:32->nw_tos", "set_field:8->ip_dscp"),
            ("actions=mod_vlan_vid:7,mod_vlan_pcp:2", "mod_vlan_vid:7,mod_vlan_pcp:2"),
            (
                "actions=resubmit(,3),resubmit:4,resubmit(7,8),resubmit(1,),resubmit:in_port,\
                 resubmit(in_port,2)",
                "resubmit(,3),resubmit:4,resubmit(7,8),resubmit:1,resubmit:in_port,resubmit(,2)",
            ),
            (
                "actions=clone(output:4,clone(set_field:1->reg0,resubmit(,2))),exit",
                "clone(output:4,clone(set_field:0x1->reg0,resubmit(,2))),exit",
            ),
            (
                "actions=group:5,meter:7,write_metadata:0x5/0xff,goto_table:3",
                "group:5,meter:7,set_field:0x5/0xff->metadata,goto_table:3",
            ),
            (
                "ipv6,actions=set_field:fd00::1->ipv6_dst,set_field:fd00::/16->ipv6_src,\
                 set_field:5->ipv6_label",
                "set_field:fd00::1->ipv6_dst,set_field:fd00::/16->ipv6_src,set_field:0x00005->ipv6_label",
            ),
        ];
        for (text, shown) in texts {
            assert_eq!(actions(text).as_deref(), Ok(shown), "{text}");
            let of = text.split_once("action").unwrap().0;
            assert_eq!(actions(&format!("{of}actions={shown}")).as_deref(), Ok(shown));
        }
    }

    #[test]
    fn a_type_of_icmp_has_8_bits() {
        let text = "move:NXM_OF_ICMP_TYPE[]->NXM_NX_REG0[0..7]";
        assert_eq!(actions(&format!("icmp,actions={text}")).as_deref(), Ok(text));
    }

    /// Ports with names that are words or numbers.
    struct Named;

    const NAMES: [&str; 5] = ["all", "Normal", "7", "a b", "eth0"];

    impl Ports for Named {
        fn number(&self, word: &str) -> Option<u16> {
            NAMES.iter().position(|name| *name == word).map(|at| at as u16 + 10)
        }

        fn name(&self, number: u16) -> Option<String> {
            NAMES.get(usize::from(number).checked_sub(10)?).map(|name| name.to_string())
        }
    }

    #[test]
    fn names_of_ports_that_are_words_are_quoted() {
        let actions: Vec<Action> = (10..15).map(Action::Output).collect();
        let shown = show_all(&actions, &Named);
        assert_eq!(shown, "output:\"all\",output:\"Normal\",output:\"7\",output:\"a b\",output:eth0");
        for action in &actions {
            let text = format!("actions={}", show_all(std::slice::from_ref(action), &Named));
            assert_eq!(FlowMod::read(&text, &Named).unwrap().actions.first(), Some(action), "{text}");
        }
    }

    #[test]
    fn unknown_and_refused_words_are_named_with_their_columns() {
        let refused = |text: &str| actions(text).unwrap_err().to_string();
        assert_eq!(refused("actions=output:1,bar:4"), "column 18: unknown action `bar`");
        assert!(
            refused("actions=controller:3").contains("`controller` is not supported: there is no controller")
        );
        assert!(refused("actions=output:CONTROLLER").contains("column 16: `CONTROLLER` is not supported"));
        assert!(refused("actions=ct(commit)").contains("`ct` is not supported"));
        assert!(refused("actions=learn(table=1)").contains("`learn` is not supported"));
        assert!(refused("actions=output:1,drop").contains("column 18: `drop` stands alone"));
        assert!(refused("actions=clone(drop)").contains("`drop` stands alone"));
        assert!(refused("actions=mod_nw_src:10.0.0.1").contains("`ip_src` needs ip, tcp"));
        assert!(refused("actions=set_field:1->foo").contains("column 22: unknown field `foo`"));
        assert!(refused("actions=set_field:5->in_port").contains("`in_port` can't be written"));
        assert!(refused("actions=set_field:3->vlan_pcp").contains("`vlan_pcp` needs a VLAN"));
        assert!(refused("actions=strip_vlan,set_field:3->vlan_pcp").contains("`vlan_pcp` needs"));
        assert!(refused("dl_vlan=5,actions=set_field:5->vlan_vid").contains("write 4101"));
        assert!(refused("dl_vlan=5,actions=load:0x1005->OXM_OF_VLAN_VID[]").contains("0 to 4095"));
        assert!(refused("dl_vlan=5,actions=move:reg0[0..12]->OXM_OF_VLAN_VID[]").contains("13 bits"));
        assert!(refused("actions=resubmit(,)").contains("needs a port or a table"));
        assert!(refused("sctp,actions=mod_tp_src:5").contains("SCTP"));
        assert!(refused("actions=goto_table:3,output:1").contains("last"));
        assert!(refused("actions=output").contains("`output` needs a value"));
        assert!(refused("actions=load:5->reg1[3]").contains("`5` is not a number from 0 to 1"));
        assert!(refused("actions=move:reg0[]->reg1[0..3]").contains("32 bits do not fit into 4"));
        assert!(refused("actions=resubmit(,300)").contains("column 19"));
        assert!(refused("actions=clone(output:1").contains("parenthesis"));
        assert!(refused("actions=").contains("an action is missing"));
        assert!(refused(&format!("actions={}", "1,".repeat(ACTIONS + 1))).contains("more than 256"));
        let deep = format!("actions={}1{}", "clone(".repeat(NESTED + 1), ")".repeat(NESTED + 1));
        assert!(refused(&deep).contains("nested"));
    }
}
