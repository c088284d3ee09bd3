//! `IDSRules(RULE, ..., FLOWS)`: searches packets by rules in the language of Snort's rule files; reports and
//! drops.
//!
//! A rule is `ACTION PROTOCOL ADDRESS PORT -> ADDRESS PORT (OPTIONS)`, or with `<>` for both directions. `alert`
//! reports a packet, `drop` (`block`, `reject`) also drops it. Of the options, `content` (with `nocase`, `offset`,
//! `depth`, `!` and bytes as `|90 90|`), `msg`, `sid` and `rev` have an effect; `flow`, `classtype`, `reference`,
//! `metadata`, `priority` and the like are ignored. Variables such as `$HOME_NET` stand for every address and port.
//! Rules that need anything else, such as `pcre`, are skipped and counted.
//!
//! A report is a line like those of Snort: `[**] [1:SID:REV] MSG [**] {TCP} SADDR:SPORT -> DADDR:DPORT`.
//!
//! Ports: one push input; output 0: packets that no `drop` rule matches; output 1 (optional): the others, otherwise
//! dropped. Packets need a marked IP header; of TCP and UDP the payload is searched, of others all bytes after the IP
//! headers.
//!
//! Arguments:
//! - `RULE`: a rule; `file NAME` includes those of a file, one per line. Rules with commas are written by the handler.
//!   At most 65536 rules.
//! - `FLOWS`: number of TCP connections, counted per direction, that are followed across segments, as by IDSMatcher;
//!   0 by default. A rule without `offset`, `depth` and `!` then also matches contents that are split over consecutive
//!   segments. At most 1048576.
//!
//! Handlers: `packets`, `alerts` (packets that matched), `drops` (of those, packets to be dropped), `count` (rules),
//! `skipped` (rules that need something else), `skips` (why, by line) (read); `table` (read): SID, packets and message
//! of each rule that matched; with FLOWS `split` (matches across segments), `flows`, `evictions`, `gaps` (read);
//! `reset`, `rules` (write). A text written to `rules` replaces all rules, one per line; a `\` at the end of a line
//! continues it, and lines that begin with `#` are comments. If one is wrong, nothing changes; packets wait meanwhile.
use super::ids_matcher::{segment, text};
use super::patterns::Patterns;
use super::rule::{Fields, NoRule, Rule};
use super::streams::Streams;
use crate::flow::connection::{Connection6, Headers};
use crate::flow::table::USUAL;
use alloc::collections::BTreeMap;
use core::fmt;
use core::fmt::Write;
use core::net::Ipv6Addr;
use ringway_click::prelude::*;
use ringway_click_lang::config;
use ringway_wire::Protocol;

pub static CLASS: Class = Class::new("IDSRules", || Box::<IdsRules>::default())
    .ports("1/1-2")
    .processing("h")
    .metadata(Metadata::Keeps);

/// Maximum number of rules. Attack: a text of rules that exhausts memory.
const MOST: usize = 1 << 16;
/// Rules compared per packet. Attack: payload with the contents of all rules.
const MAX_COMPARED: usize = 256;

/// Rules and the patterns by which they are found.
#[derive(Debug, Default)]
struct Rules {
    rules: Vec<Rule>,
    /// The longest content of each rule; equal ones once.
    patterns: Option<Patterns>,
    /// The rules of each pattern.
    lists: Vec<Vec<u32>>,
    longest: usize,
    skips: Vec<(usize, String)>,
}

impl Rules {
    /// Reads rules with their line numbers.
    fn read<'a>(lines: impl Iterator<Item = (usize, &'a str)>) -> Result<Self, Vec<String>> {
        let (mut own, mut errors) = (Self::default(), Vec::new());
        let mut numbers: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
        let mut keys: Vec<Vec<u8>> = Vec::new();
        for (line, text) in lines {
            match Rule::parse(text) {
                Ok(rule) => {
                    let key = rule.key().to_ascii_lowercase();
                    let number = *numbers.entry(key.clone()).or_insert(keys.len());
                    if number == keys.len() {
                        own.longest = own.longest.max(key.len());
                        keys.push(key);
                        own.lists.push(Vec::new());
                    }
                    own.lists[number].push(own.rules.len() as u32);
                    own.rules.push(rule);
                }
                Err(NoRule::Unsupported(what)) => own.skips.push((line, what)),
                Err(NoRule::Wrong(what)) => errors.push(format!("line {line}: {what}")),
            }
            if own.rules.len() > MOST {
                errors.push("too many rules".into());
                break;
            }
        }
        if errors.is_empty() && !keys.is_empty() {
            match Patterns::new(keys, true) {
                Ok(patterns) => own.patterns = Some(patterns),
                Err(error) => errors.push(error.to_string()),
            }
        }
        if errors.is_empty() { Ok(own) } else { Err(errors) }
    }

    /// Calls `found` with the rules that a payload satisfies; with `across` it is the border of two segments.
    fn search(&self, text: &[u8], fields: &Fields, across: bool, mut found: impl FnMut(usize)) {
        let Some(patterns) = &self.patterns else { return };
        let mut left = MAX_COMPARED;
        // A pattern that occurs often is compared once.
        let mut seen: [u32; 8] = [u32::MAX; 8];
        let mut place = 0;
        patterns.find_each(text, &mut |pattern| {
            if seen.contains(&(pattern as u32)) {
                return false;
            }
            seen[place % seen.len()] = pattern as u32;
            place += 1;
            for number in self.lists.get(pattern).into_iter().flatten() {
                let Some(less) = left.checked_sub(1) else { return true };
                left = less;
                let rule = self.rules.get(*number as usize);
                if rule.is_some_and(|rule| !(across && rule.is_bound()) && rule.holds(fields, text)) {
                    found(*number as usize);
                }
            }
            false
        });
    }
}

#[derive(Debug, Default)]
pub struct IdsRules {
    rules: Rules,
    counts: Vec<u64>,
    streams: Option<Streams>,
    flows: u32,
    packets: u64,
    alerts: u64,
    drops: u64,
    split: u64,
    /// The rules that the current packet satisfies.
    found: Vec<usize>,
}

/// An address, IPv4 where it is mapped, and a port.
struct End((u128, u16));

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (address, port) = self.0;
        let address = Ipv6Addr::from_bits(address);
        match address.to_ipv4_mapped() {
            Some(address) => write!(f, "{address}")?,
            None => write!(f, "{address}")?,
        }
        if port > 0 { write!(f, ":{port}") } else { Ok(()) }
    }
}

/// The fields of a packet that rules look at.
fn fields(packet: &Packet) -> Option<Fields> {
    let connection: Connection6 = match Headers::of(packet) {
        Some(headers) => headers.connection.into(),
        None => Headers::of_ip6(packet)?.connection,
    };
    let Connection6 { source, destination, source_port, destination_port, protocol } = connection;
    Some(Fields { protocol, source: (source, source_port), destination: (destination, destination_port) })
}

fn protocol_name(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::TCP => "TCP",
        Protocol::UDP => "UDP",
        Protocol::ICMP | Protocol::ICMPV6 => "ICMP",
        _ => "IP",
    }
}

/// Rules of a text, one per line, each with the number of its first line.
fn lines(text: &str) -> Vec<(usize, String)> {
    let mut rules = Vec::new();
    let mut open: Option<(usize, String)> = None;
    for (number, line) in text.lines().enumerate() {
        let (begin, mut rule) = open.take().unwrap_or((number + 1, String::new()));
        let line = line.trim();
        match line.strip_suffix('\\') {
            Some(part) => {
                rule.push_str(part);
                open = Some((begin, rule));
            }
            None => {
                rule.push_str(line);
                rules.push((begin, rule));
            }
        }
    }
    rules.extend(open);
    rules.retain(|(_, rule)| !rule.is_empty() && !rule.starts_with('#'));
    rules
}

impl IdsRules {
    /// Uses these rules from now on.
    fn set(&mut self, rules: Rules, cx: &mut Context<'_>) {
        self.counts = vec![0; rules.rules.len()];
        let longest_before = core::mem::replace(&mut self.rules, rules).longest;
        // Connections are kept, unless more of their bytes are needed.
        if self.flows > 0 && (self.streams.is_none() || self.rules.longest > longest_before) {
            self.streams = Some(Streams::seeded(self.flows, self.rules.longest, cx));
        }
    }

    fn set_rules(&mut self, text: &str, cx: &mut Context<'_>) -> Result<(), HandlerError> {
        let lines = lines(text);
        let rules = Rules::read(lines.iter().map(|(number, rule)| (*number, rule.as_str())));
        let rules = rules.map_err(|errors| HandlerError::failed(errors.join("\n")))?;
        self.set(rules, cx);
        Ok(())
    }

    /// Fills `found` with the rules that a packet satisfies, alone or together with the preceding bytes of its stream.
    fn find(&mut self, packet: &Packet, fields: &Fields, now: u64) {
        let found = &mut self.found;
        found.clear();
        self.rules.search(text(packet), fields, false, |rule| {
            if !found.contains(&rule) {
                found.push(rule);
            }
        });
        let Some(streams) = &mut self.streams else { return };
        let across = segment(packet).and_then(|(headers, segment)| streams.take(&headers, segment, now));
        let Some(across) = across else { return };
        let alone = found.len();
        self.rules.search(across, fields, true, |rule| {
            if !found.contains(&rule) {
                found.push(rule);
            }
        });
        self.split += u64::from(found.len() > alone);
    }

    /// Reports the rules that a packet satisfies; returns whether one of them drops it.
    fn report(&mut self, fields: &Fields, cx: &mut Context<'_>) -> bool {
        let mut drops = false;
        for number in &self.found {
            let (Some(rule), Some(count)) = (self.rules.rules.get(*number), self.counts.get_mut(*number))
            else {
                continue;
            };
            *count += 1;
            drops |= rule.drops;
            let Rule { message, sid, revision, .. } = rule;
            let action = if rule.drops { "[drop] " } else { "" };
            let (from, to) = (End(fields.source), End(fields.destination));
            let protocol = protocol_name(fields.protocol);
            cx.chatter(format_args!(
                "{action}[**] [1:{sid}:{revision}] {message} [**] {{{protocol}}} {from} -> {to}"
            ));
        }
        drops
    }

    fn table(&self) -> String {
        let mut out = String::new();
        for (rule, count) in self.rules.rules.iter().zip(&self.counts).filter(|(_, count)| **count > 0) {
            let _ = writeln!(out, "{} {count} {}", rule.sid, rule.message);
        }
        out
    }

    fn skips(&self) -> String {
        self.rules.skips.iter().map(|(line, what)| format!("line {line}: {what}\n")).collect()
    }
}

impl Element for IdsRules {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        args.read("FLOWS", &mut self.flows);
        args.result()?;
        let mut all = Vec::new();
        for argument in args.take_rest() {
            let words = config::split_words(&argument);
            match &words[..] {
                [file, name] if file == "file" => match cx.console().read_file(&config::unquote_text(name)) {
                    Ok(bytes) => all.extend(lines(&String::from_utf8_lossy(&bytes))),
                    Err(error) => args.error(error),
                },
                _ => all.push((all.len() + 1, argument)),
            }
        }
        args.complete()?;
        if self.flows > USUAL {
            return Err(cx.error("FLOWS too large, bound 1048576"));
        }
        match Rules::read(all.iter().map(|(number, rule)| (*number, rule.as_str()))) {
            Ok(rules) => {
                for (number, what) in &rules.skips {
                    cx.warning(format!("rule {number} is skipped: {what}"));
                }
                self.set(rules, cx);
                Ok(())
            }
            Err(errors) => {
                for error in errors {
                    let _ = cx.error(error.replacen("line", "rule", 1));
                }
                Err(Failed)
            }
        }
    }

    fn push(&mut self, _: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        let (now, diverted) = (cx.coarse_now(), cx.noutputs() > 1);
        self.packets += burst.len() as u64;
        burst.filter_map(|packet| {
            let Some(fields) = fields(&packet) else { return Some(packet) };
            self.find(&packet, &fields, now);
            if self.found.is_empty() {
                return Some(packet);
            }
            self.alerts += 1;
            if !self.report(&fields, cx) {
                return Some(packet);
            }
            self.drops += 1;
            if diverted {
                cx.push(1, packet);
            }
            None
        });
    }

    fn reseed(&mut self, cx: &mut Context<'_>) {
        self.streams.iter_mut().for_each(|streams| streams.reseed(cx));
    }

    fn handlers(&self) -> Vec<Handler> {
        let mut handlers = Vec::from([
            Handler::write("rules", Self::set_rules),
            Handler::read("count", |e: &Self| e.rules.rules.len()),
            Handler::read("skipped", |e: &Self| e.rules.skips.len()),
            Handler::read("skips", Self::skips),
            Handler::counter("packets", |e: &mut Self| &mut e.packets),
            Handler::counter("alerts", |e: &mut Self| &mut e.alerts),
            Handler::counter("drops", |e: &mut Self| &mut e.drops),
            Handler::read("table", Self::table),
        ]);
        if self.flows > 0 {
            handlers.push(Handler::read("split", |e: &Self| e.split));
            handlers.extend(Streams::handlers(|e: &Self| e.streams.as_ref()));
        }
        handlers.push(Handler::button("reset", |e: &mut Self, _| {
            (e.packets, e.alerts, e.drops, e.split) = (0, 0, 0, 0);
            e.counts.fill(0);
        }));
        handlers
    }
}
