//! Flows: their text, and what is stored of them.

use crate::action::{Action, read_all, read_table, show_all};
use crate::matching::{Match, MatchReader};
use crate::text::{FlowError, LONGEST, Longest, Piece, port};
use crate::{Ports, TABLES};
use core::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// The priority of a flow that gives none.
pub const PRIORITY: u16 = 0x8000;

/// A flow as its text says it: what `add` and `mod` take. Flows are equal that differ by `reset_counts` only, which
/// says how one is added.
#[derive(Clone, Debug)]
pub struct FlowMod {
    /// Its table.
    pub table: u8,
    /// Of several flows that match, the one with the highest priority is taken.
    pub priority: u16,
    /// What it matches.
    pub of: Match,
    /// A number that whoever adds it may choose.
    pub cookie: u64,
    /// Seconds without a frame after which it is removed; 0: never.
    pub idle_timeout: u16,
    /// Seconds after which it is removed; 0: never.
    pub hard_timeout: u16,
    /// What becomes of frames; without actions they are dropped.
    pub actions: Box<[Action]>,
    /// Whether `add` and `mod` set the counters to 0.
    pub reset_counts: bool,
}

impl PartialEq for FlowMod {
    fn eq(&self, other: &FlowMod) -> bool {
        let all = |flow: &FlowMod| {
            (flow.table, flow.priority, flow.of, flow.cookie, flow.idle_timeout, flow.hard_timeout)
        };
        all(self) == all(other) && self.actions == other.actions
    }
}

impl Eq for FlowMod {}

/// Which flows `mod`, `del` and `dump` mean.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlowFilter {
    /// Those of this table; otherwise of all.
    pub table: Option<u8>,
    /// Those whose match this one contains.
    pub of: Match,
    /// Those with this priority, and exactly this match.
    pub strict: Option<u16>,
    /// Those whose cookie has these values of these bits.
    pub cookie: (u64, u64),
    /// Those with an action that outputs to this port.
    pub out_port: Option<u16>,
    /// Those with an action that goes on in this group.
    pub out_group: Option<u32>,
}

/// What has been read of a flow.
#[derive(Default)]
struct Read<'t> {
    table: Option<u8>,
    priority: Option<u16>,
    cookie: Option<(u64, Option<u64>, Piece<'t>)>,
    timeouts: [u16; 2],
    out_port: Option<u16>,
    out_group: Option<u32>,
    reset_counts: bool,
    of: Match,
}

/// Without `--strict`, flows of all priorities are meant.
const NOT_STRICT: &str = "`priority` chooses flows with --strict only";

/// Words of a dump that say nothing of the flow itself.
const IGNORED: [&str; 5] = ["duration", "n_packets", "n_bytes", "idle_age", "hard_age"];

fn read<'t>(before: Piece<'t>, ports: &dyn Ports) -> Result<Read<'t>, FlowError> {
    let (mut read, mut matching) = (Read::default(), MatchReader::default());
    for word in before.items() {
        if word.text == "reset_counts" {
            read.reset_counts = true;
            continue;
        }
        if matching.read(word, ports)? {
            continue;
        }
        let Some((name, value)) = word.split_once("=") else { return Err(unknown(word)) };
        match name.text {
            "table" => read.table = Some(read_table(value)?),
            "priority" => read.priority = Some(value.number(0xffff)? as u16),
            "cookie" => {
                let (value, mask) = match value.split_once("/") {
                    None => (value, None),
                    Some((value, mask)) if mask.text == "-1" => (value, Some(u64::MAX)),
                    Some((value, mask)) => (value, Some(mask.number(u64::MAX)?)),
                };
                read.cookie = Some((value.number(u64::MAX)?, mask, value));
            }
            "idle_timeout" => read.timeouts[0] = value.number(0xffff)? as u16,
            "hard_timeout" => read.timeouts[1] = value.number(0xffff)? as u16,
            "out_port" => {
                read.out_port = Some(port(value.text, ports).map_err(|what| value.error(what))?);
            }
            "out_group" => read.out_group = Some(value.number(u64::from(crate::group::LARGEST))? as u32),
            name if IGNORED.contains(&name) => {}
            _ => return Err(unknown(name)),
        }
    }
    read.of = matching.end()?;
    Ok(read)
}

fn unknown(word: Piece<'_>) -> FlowError {
    let known = "the fields are those of `man ovs-fields`; before them may be table, priority, cookie, \
    idle_timeout, \
                 hard_timeout";
    word.error(format!("unknown word `{}`; {known}", word.shown()))
}

/// The text before the actions and the actions, if there are any.
fn split(text: &str) -> Result<(Piece<'_>, Option<Piece<'_>>), FlowError> {
    if text.len() > LONGEST {
        return Err(FlowError::new(1, format!("a flow has more than {LONGEST} bytes")));
    }
    let whole = Piece::new(text);
    // The word may be part of no other one.
    let starts = ["actions=", "action="].into_iter().filter_map(|word| {
        let mut places = text.match_indices(word).map(|(at, _)| at);
        let place = places.find(|at| {
            let before = text[..*at].chars().next_back();
            before.is_none_or(|letter| letter == ',' || letter.is_whitespace())
        })?;
        Some((place, word.len()))
    });
    Ok(match starts.min() {
        None => (whole, None),
        Some((at, length)) => {
            let (before, behind) = whole.split_at(at);
            (before, Some(behind.split_at(length).1))
        }
    })
}

impl FlowMod {
    /// Reads a flow, as `ovs-ofctl add-flow` does.
    ///
    /// # Errors
    /// A word is unknown, a value is wrong, a field is not one of the frames that are matched, or there are no actions.
    pub fn read(text: &str, ports: &dyn Ports) -> Result<FlowMod, FlowError> {
        let (flow, read) = FlowMod::read_both(text, ports)?;
        let filter = read.filter(None);
        if filter.out_port.is_some() || filter.out_group.is_some() {
            return Err(FlowError::new(
                1,
                "a flow has no out_port and no out_group; they choose flows to delete",
            ));
        }
        if filter.cookie.1 != 0 {
            return Err(FlowError::new(
                1,
                "a flow's cookie has no mask; it chooses flows to modify or delete",
            ));
        }
        Ok(flow)
    }

    /// Reads what `mod` takes: flows, chosen by a match, and by a cookie with a mask, and their new actions; with
    /// `is_strict` those with exactly this match and priority.
    ///
    /// # Errors
    /// As of [`FlowMod::read`]; or there is a priority without `is_strict`.
    pub fn read_mod(
        text: &str,
        is_strict: bool,
        ports: &dyn Ports,
    ) -> Result<(FlowMod, FlowFilter), FlowError> {
        let (flow, read) = FlowMod::read_both(text, ports)?;
        if !is_strict && read.priority.is_some() {
            return Err(FlowError::new(1, NOT_STRICT));
        }
        let filter = read.filter(is_strict.then_some(flow.priority));
        Ok((flow, filter))
    }

    /// Whether its time may end.
    pub fn is_timed(&self) -> bool {
        (self.idle_timeout, self.hard_timeout) != (0, 0)
    }

    fn read_both<'t>(text: &'t str, ports: &dyn Ports) -> Result<(FlowMod, Read<'t>), FlowError> {
        let (before, actions) = split(text)?;
        let Some(actions) = actions else {
            let column = text.chars().count() + 1;
            return Err(FlowError::new(column, "a flow needs actions, as in actions=output:PORT"));
        };
        let read = read(before, ports)?;
        let (table, actions_at) = (read.table.unwrap_or(0), actions.column);
        let actions = read_all(actions, Some(&read.of), ports)?;
        if let Some(Action::Goto(to)) =
            actions.last().filter(|last| matches!(last, Action::Goto(to) if *to <= table))
        {
            let what = format!("goto_table:{to} does not go on in a later table than {table}");
            return Err(FlowError::new(actions_at, what));
        }
        let flow = FlowMod {
            table,
            priority: read.priority.unwrap_or(PRIORITY),
            of: read.of,
            cookie: read.cookie.map_or(0, |(value, ..)| value),
            idle_timeout: read.timeouts[0],
            hard_timeout: read.timeouts[1],
            actions,
            reset_counts: read.reset_counts,
        };
        Ok((flow, read))
    }

    /// As it is read again, in `ovs-ofctl`'s order.
    pub fn show(&self, ports: &dyn Ports) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = write!(text, "cookie={:#x},table={},", self.cookie, self.table);
        let rest = self.show_rest(ports);
        match rest.strip_prefix(' ') {
            Some(actions) => format!("{} {actions}", text.trim_end_matches(',')),
            None => text + &rest,
        }
    }

    /// As [`FlowMod::show`], without cookie and table; [`PRIORITY`] is left out. A flow that matches all frames begins
    /// with a space.
    pub fn show_rest(&self, ports: &dyn Ports) -> String {
        let mut text = String::new();
        for (name, seconds) in [("idle_timeout", self.idle_timeout), ("hard_timeout", self.hard_timeout)] {
            if seconds != 0 {
                let _ = write!(text, "{name}={seconds},");
            }
        }
        if self.priority != PRIORITY {
            let _ = write!(text, "priority={},", self.priority);
        }
        let of = self.of.show(ports);
        let text = text + &of;
        format!("{} actions={}", text.trim_end_matches(','), show_all(&self.actions, ports))
    }
}

impl Read<'_> {
    fn filter(&self, strict: Option<u16>) -> FlowFilter {
        let cookie = self.cookie.map_or((0, 0), |(value, mask, _)| {
            let mask = mask.unwrap_or(0);
            (value & mask, mask)
        });
        FlowFilter {
            table: self.table,
            of: self.of,
            strict,
            cookie,
            out_port: self.out_port,
            out_group: self.out_group,
        }
    }
}

impl FlowFilter {
    /// Reads which flows are meant, as `ovs-ofctl dump-flows` and `del-flows` do; with `is_strict`, as `--strict` does.
    ///
    /// # Errors
    /// A word is unknown, a value is wrong, or there are actions.
    pub fn read(text: &str, is_strict: bool, ports: &dyn Ports) -> Result<FlowFilter, FlowError> {
        let (before, actions) = split(text)?;
        if let Some(actions) = actions {
            return Err(actions.error("flows are chosen by their match; leave the actions out"));
        }
        let read = read(before, ports)?;
        if let Some((_, None, value)) = &read.cookie {
            return Err(value.error("flows are chosen by a cookie with a mask, as in cookie=0x1/-1"));
        }
        let strict = is_strict.then(|| read.priority.unwrap_or(PRIORITY));
        if strict.is_none() && read.priority.is_some() {
            return Err(before.error(NOT_STRICT));
        }
        Ok(read.filter(strict))
    }

    /// Whether a flow is meant.
    pub fn has(&self, flow: &FlowMod) -> bool {
        let is_matched = match self.strict {
            Some(priority) => flow.priority == priority && flow.of == self.of,
            None => self.of.contains(&flow.of),
        };
        let any = |wanted: &dyn Fn(&Action) -> bool| has_any(&flow.actions, wanted);
        is_matched
            && self.table.is_none_or(|table| flow.table == table)
            && flow.cookie & self.cookie.1 == self.cookie.0
            && self.out_port.is_none_or(|port| any(&|action| *action == Action::Output(port)))
            && self.out_group.is_none_or(|group| any(&|action| *action == Action::Group(group)))
    }
}

/// Whether any action is wanted, those in `clone` included.
pub(crate) fn has_any(actions: &[Action], wanted: &dyn Fn(&Action) -> bool) -> bool {
    actions
        .iter()
        .any(|action| wanted(action) || matches!(action, Action::Clone(inner) if has_any(inner, wanted)))
}

/// Nanoseconds by which the time of the last frame may be wrong: timeouts are seconds.
const BLUR: u64 = 10_000_000;

/// What is counted of a flow. Workers that have frames of it write one cache line, at two places.
#[derive(Debug, Default)]
#[repr(align(32))]
pub struct Counters {
    /// Its frames.
    pub frames: AtomicU64,
    /// Their bytes.
    pub bytes: AtomicU64,
    /// When the last one came, in nanoseconds, and up to 10 ms earlier.
    pub used: AtomicU64,
}

impl Counters {
    /// Adds frames. Called once a burst and flow, not for each frame.
    pub(crate) fn add(&self, frames: u64, bytes: u64, now: u64) {
        self.frames.fetch_add(frames, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
        if now.saturating_sub(self.used.load(Relaxed)) >= BLUR {
            self.used.store(now, Relaxed);
        }
    }
}

/// A flow in a table.
#[derive(Debug)]
pub struct Flow {
    /// What it is.
    pub flow: FlowMod,
    /// What is counted of it, also before its actions were changed.
    pub counters: Arc<Counters>,
    /// When it was added, in nanoseconds.
    pub created: u64,
    /// When it was added or its actions were changed: its time until `hard_timeout` begins then.
    pub modified: u64,
    /// Most bytes of its line, as [`Longest`] has them.
    pub(crate) longest: u32,
}

impl Flow {
    /// A new flow.
    pub fn new(flow: FlowMod, now: u64) -> Flow {
        let counters = Arc::new(Counters { used: AtomicU64::new(now), ..Counters::default() });
        let longest = flow.show(&Longest).len() as u32 + 1;
        Flow { flow, counters, created: now, modified: now, longest }
    }

    /// This flow with other actions and another cookie.
    pub(crate) fn changed(&self, flow: FlowMod, now: u64, resets: bool) -> Flow {
        let new = Flow::new(flow, now);
        let counters = if resets { new.counters } else { self.counters.clone() };
        Flow { counters, created: self.created, ..new }
    }

    /// A line as `ovs-ofctl dump-flows` shows it, without the space in front.
    pub fn show(&self, ports: &dyn Ports, now: u64) -> String {
        let FlowMod { cookie, table, .. } = &self.flow;
        let milliseconds = now.saturating_sub(self.created) / 1_000_000;
        let (frames, bytes) = (self.counters.frames.load(Relaxed), self.counters.bytes.load(Relaxed));
        format!(
            "cookie={cookie:#x}, duration={}.{:03}s, table={table}, n_packets={frames}, n_bytes={bytes}, {}",
            milliseconds / 1000,
            milliseconds % 1000,
            self.flow.show_rest(ports).trim_start()
        )
    }

    /// Whether its time has ended.
    pub fn is_expired(&self, now: u64) -> bool {
        let is_over = |seconds: u16, since: u64| {
            seconds != 0 && now.saturating_sub(since) >= u64::from(seconds) * 1_000_000_000
        };
        let FlowMod { idle_timeout, hard_timeout, .. } = self.flow;
        let used = self.counters.used.load(Relaxed).max(self.created);
        is_over(hard_timeout, self.modified) || is_over(idle_timeout, used)
    }
}

const _: () = assert!(TABLES <= 255);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Numbers;

    fn flow(text: &str) -> Result<FlowMod, FlowError> {
        FlowMod::read(text, &Numbers)
    }

    #[test]
    fn golden_texts_of_ovs_ofctl() {
        let texts = [
            (
                "priority=5,tcp,in_port=1 actions=output:2",
                "cookie=0x0,table=0,priority=5,tcp,in_port=1 actions=output:2",
            ),
            (
                "table=3,cookie=5,idle_timeout=4,hard_timeout=9,ip,actions=normal",
                "cookie=0x5,table=3,idle_timeout=4,hard_timeout=9,ip actions=NORMAL",
            ),
            ("actions=drop", "cookie=0x0,table=0 actions=drop"),
            (
                " cookie=0x1, duration=1.234s, table=0, n_packets=4, n_bytes=240, priority=1,arp \
                 actions=FLOOD",
                "cookie=0x1,table=0,priority=1,arp actions=FLOOD",
            ),
        ];
        for (text, shown) in texts {
            let found = flow(text).unwrap();
            assert_eq!(found.show(&Numbers), shown);
            assert_eq!(flow(&found.show(&Numbers)), Ok(found));
        }
    }

    #[test]
    fn a_flow_is_shown_as_ovs_ofctl_dumps_it() {
        let own = Flow::new(flow("priority=5,tcp,tp_dst=80 actions=output:2").unwrap(), 1_000_000_000);
        own.counters.add(3, 180, 2_000_000_000);
        assert_eq!(
            own.show(&Numbers, 3_545_000_000),
            "cookie=0x0, duration=2.545s, table=0, n_packets=3, n_bytes=180, priority=5,tcp,tp_dst=80 \
             actions=output:2"
        );
        let all = Flow::new(flow("actions=drop").unwrap(), 0);
        assert!(all.show(&Numbers, 0).ends_with("n_bytes=0, actions=drop"));
    }

    #[test]
    fn errors_name_the_word_and_its_column() {
        let refused = |text: &str| flow(text).unwrap_err().to_string();
        assert!(refused("ip,ct_state=+trk,actions=drop").starts_with("column 4: unknown word `ct_state`"));
        assert!(refused("foo,actions=drop").contains("unknown word `foo`"));
        assert!(refused("table=255,actions=drop").contains("column 7: `255` is not a number from 0 to 254"));
        assert!(refused("priority=70000,actions=drop").contains("`70000`"));
        assert!(refused("ip").contains("column 3: a flow needs actions"));
        assert!(refused("cookie=1/1,actions=drop").contains("cookie has no mask"));
        assert!(refused("out_port=1,actions=drop").contains("out_port"));
        assert!(refused("table=3,actions=goto_table:3").contains("later table"));
        assert!(refused(&"x".repeat(LONGEST + 1)).contains("more than"));
        let filter = |text: &str| FlowFilter::read(text, false, &Numbers).unwrap_err().to_string();
        assert!(filter("cookie=1").contains("cookie=0x1/-1"));
        assert!(filter("priority=1").contains("--strict"));
        assert!(filter("ip,actions=drop").contains("leave the actions out"));
    }

    #[test]
    fn filters() {
        let own = flow("table=1,priority=5,cookie=0x12,tcp,actions=clone(group:4),output:2").unwrap();
        let has = |text: &str| FlowFilter::read(text, false, &Numbers).unwrap().has(&own);
        for text in ["", "ip", "table=1", "cookie=0x2/0xf", "out_port=2", "out_group=4", "tcp,out_port=2"] {
            assert!(has(text), "{text}");
        }
        for text in
            ["udp", "table=2", "cookie=0x3/0xf", "out_port=3", "out_group=5", "tcp,tp_dst=80", "cookie=2/-1"]
        {
            assert!(!has(text), "{text}");
        }
        let strict = |text: &str| FlowFilter::read(text, true, &Numbers).unwrap().has(&own);
        assert!(strict("tcp,priority=5") && !strict("ip,priority=5") && !strict("tcp"));
    }

    #[test]
    fn timeouts() {
        let second = 1_000_000_000;
        let own = Flow::new(flow("idle_timeout=2,hard_timeout=5,actions=drop").unwrap(), second);
        assert!(!own.is_expired(2 * second) && own.is_expired(3 * second));
        own.counters.add(1, 60, 3 * second);
        assert!(!own.is_expired(4 * second));
        own.counters.add(1, 60, 6 * second);
        assert!(own.is_expired(6 * second), "the hard one");
    }
}
