//! The settings of one direction of a link, as texts by key: so they are in the file, the API and the command line.

use ringway_link::{Capacity, CoDelSettings, Delay, Loss, Profile, ProfileError, Queue};
use ringway_spec::file::units::{self, bits, share};
use ringway_spec::names::shown;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Texts by key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings(pub BTreeMap<String, String>);

/// A wrong value: its key, what is wrong, and the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// The key.
    pub key: &'static str,
    /// What is wrong.
    pub what: String,
    /// What to write.
    pub fix: String,
}

type Read<T> = Result<T, (String, String)>;

/// Most entries of a trace. Attack: a trace without end, sent at run time.
const TRACE: usize = 65_536;

impl Settings {
    /// Every key.
    pub const KEYS: [&str; 18] = [
        "rate",
        "overhead",
        "mtu",
        "delay",
        "jitter",
        "distribution",
        "delay-trace",
        "reorder",
        "loss",
        "loss-trace",
        "mark",
        "corrupt",
        "duplicate",
        "queue",
        "limit",
        "ecn",
        "memory",
        "seed",
    ];

    /// The value of a key, if it is set.
    fn get<T>(&self, key: &'static str, read: impl FnOnce(&str) -> Read<T>) -> Result<Option<T>, Wrong> {
        let read = self.0.get(key).map(|text| read(text)).transpose();
        read.map_err(|(what, fix)| Wrong { key, what: format!("`{key}`: {what}"), fix })
    }

    /// The profile, and the seed of all directions: each mixes its name into it.
    ///
    /// # Errors
    /// The first wrong value.
    pub fn profile(&self) -> Result<(Profile, u64), Wrong> {
        let default = Profile::default();
        let profile = Profile {
            rate: self.get("rate", bits)?,
            overhead: self.get("overhead", |text| whole(text, 0, 1000))?.unwrap_or(0) as u32,
            mtu: self.get("mtu", |text| whole(text, 68, 65_535))?.map(|mtu| mtu as u32),
            queue: self.queue()?,
            delay: self.delay()?,
            reorder: self.get("reorder", boolean)?.unwrap_or(false),
            loss: self.loss()?,
            mark: self.get("mark", share)?.unwrap_or(0.0),
            corrupt: self.get("corrupt", share)?.unwrap_or(0.0),
            duplicate: self.get("duplicate", share)?.unwrap_or(0.0),
            memory: self.get("memory", memory)?.map_or(default.memory, |bytes| bytes as usize),
        };
        profile.check().map_err(|error| {
            let (key, fix) = match error {
                ProfileError::NoRate => ("limit", "set `rate` too"),
                _ => ("queue", "change it, or leave it out"),
            };
            Wrong { key, what: format!("`{key}`: {error}"), fix: fix.into() }
        })?;
        Ok((profile, self.get("seed", |text| whole(text, 0, u64::MAX))?.unwrap_or(1)))
    }

    /// All wrong values. What follows from another wrong value is left out.
    pub fn wrong(&self) -> Vec<Wrong> {
        let (mut rest, mut list) = (self.clone(), Vec::new());
        // Each wrong value is replaced by none, or by one that nothing else can be wrong with.
        while let Err(wrong) = rest.profile() {
            let is_new = rest.0.remove(wrong.key).is_some();
            if wrong.key == "rate" {
                rest.0.insert("rate".into(), "1Gbit".into());
            }
            list.push(wrong);
            if !is_new {
                break;
            }
        }
        list
    }

    fn delay(&self) -> Result<Delay, Wrong> {
        let trace = self.get("delay-trace", |text| {
            let delays: Vec<u64> = text.split_whitespace().map(time).collect::<Read<_>>()?;
            bounded(delays)
        })?;
        if let Some(trace) = trace {
            self.excludes("delay-trace", &["delay", "jitter", "distribution"])?;
            return Ok(Delay::Trace(trace.into()));
        }
        let delay = self.get("delay", time)?.unwrap_or(0);
        let jitter = self.get("jitter", time)?.unwrap_or(0);
        let shape = self.get("distribution", |text| one_of(text, &["uniform", "normal", "pareto"]))?;
        Ok(match (jitter, shape.unwrap_or(0)) {
            (0, _) => Delay::Constant(delay),
            (_, 0) => Delay::Uniform { delay, jitter },
            (_, 1) => Delay::Normal { delay, jitter },
            _ => Delay::Pareto { delay, jitter },
        })
    }

    fn loss(&self) -> Result<Loss, Wrong> {
        let trace = self.get("loss-trace", |text| {
            let bits: Vec<u8> = text.bytes().filter(|bit| !bit.is_ascii_whitespace()).collect();
            if !bits.iter().all(|bit| b"01".contains(bit)) {
                let fix = "write 1 for each lost frame and 0 for each other, such as \"0010\"";
                return Err(("the trace has something else than 0 and 1".into(), fix.into()));
            }
            bounded(bits.into_iter().map(|bit| bit == b'1').collect())
        })?;
        if let Some(trace) = trace {
            self.excludes("loss-trace", &["loss"])?;
            return Ok(Loss::Trace(trace.into()));
        }
        Ok(self.get("loss", loss)?.unwrap_or_default())
    }

    /// An error if one of `others` is set beside `key`.
    fn excludes(&self, key: &'static str, others: &[&str]) -> Result<(), Wrong> {
        match others.iter().find(|other| self.0.contains_key(**other)) {
            None => Ok(()),
            Some(other) => Err(Wrong {
                key,
                what: format!("`{key}` and `{other}` are both set"),
                fix: "keep one".into(),
            }),
        }
    }

    fn queue(&self) -> Result<Queue, Wrong> {
        let limit = self.get("limit", capacity)?;
        let limit_or = |frames| limit.unwrap_or(Capacity::Frames(frames));
        let ecn = self.get("ecn", boolean)?.unwrap_or(true);
        let codel = |words: &[&str]| -> Read<CoDelSettings> {
            Ok(match words {
                [target, interval] => CoDelSettings { target: time(target)?, interval: time(interval)?, ecn },
                _ => CoDelSettings { ecn, ..CoDelSettings::default() },
            })
        };
        let queue = self.get("queue", |text| {
            let mut words = text.split_whitespace();
            let names = ["droptail", "codel", "fq-codel", "red"];
            let kind = one_of(words.next().unwrap_or_default(), &names)?;
            let words: Vec<&str> = words.collect();
            match (kind, &*words) {
                (0, []) => Ok(Queue::DropTail { limit: limit_or(1000), mark: None }),
                (0, ["mark", mark]) => {
                    Ok(Queue::DropTail { limit: limit_or(1000), mark: Some(units::size(mark)? as usize) })
                }
                (1, words @ ([] | [_, _])) => {
                    Ok(Queue::CoDel { settings: codel(words)?, limit: limit_or(1000) })
                }
                (2, words @ ([] | [_, _])) => {
                    let (settings, limit) = (codel(words)?, limit_or(10_240));
                    Ok(Queue::FqCoDel { settings, limit, flows: 1024, quantum: 1514 })
                }
                (3, [min, max, probability]) => Ok(Queue::Red {
                    min: units::size(min)? as usize,
                    max: units::size(max)? as usize,
                    probability: share(probability)?,
                    limit: limit_or(1000),
                    ecn,
                }),
                _ => Err((
                    format!("{} is not a queue", shown(text)),
                    "write \"droptail [mark SIZE]\", \"codel [TARGET INTERVAL]\", \
                     \"fq-codel [TARGET INTERVAL]\" or \"red MIN MAX PROBABILITY\""
                        .into(),
                )),
            }
        })?;
        Ok(queue.unwrap_or(Queue::DropTail { limit: limit_or(1000), mark: None }))
    }
}

fn whole(text: &str, least: u64, most: u64) -> Read<u64> {
    let value = text.parse().ok().filter(|value| (least..=most).contains(value));
    value.ok_or_else(|| {
        (format!("{} is not a whole number in range", shown(text)), format!("use {least} to {most}"))
    })
}

fn boolean(text: &str) -> Read<bool> {
    text.parse().map_err(|_| (format!("{} is not true or false", shown(text)), "write true or false".into()))
}

fn one_of(text: &str, names: &[&str]) -> Read<usize> {
    let fix = || format!("use {}", ringway_spec::file::either(names.iter().copied()));
    units::name(text, names).ok_or_else(|| (format!("there is no {}", shown(text)), fix()))
}

fn time(text: &str) -> Read<u64> {
    const MOST: u64 = 600_000_000_000;
    match units::duration(text)? {
        time if time <= MOST => Ok(time),
        _ => Err((format!("{text} is too long"), "use 600s at most".into())),
    }
}

fn memory(text: &str) -> Read<u64> {
    match units::size(text)? {
        size @ 65_536..=0x10_0000_0000 => Ok(size),
        _ => Err((format!("{text} is out of bounds"), "use 64KB to 64GB".into())),
    }
}

/// A capacity: `1000` frames, `64KB`, `1.5BDP`.
fn capacity(text: &str) -> Read<Capacity> {
    let wrong = || {
        let fix = "write frames, bytes or bandwidth-delay products, such as \"1000\", \"64KB\" or \"1.5BDP\"";
        (format!("{} is not a capacity", shown(text)), fix.to_string())
    };
    if let Some(number) = text.strip_suffix("BDP").or_else(|| text.strip_suffix("bdp")) {
        let units = number.trim().parse::<f64>().ok().filter(|units| *units > 0.0 && *units <= 1e6);
        return units.map(Capacity::BandwidthDelay).ok_or_else(wrong);
    }
    match text.parse::<usize>() {
        Ok(0) => Err(wrong()),
        Ok(frames) => Ok(Capacity::Frames(frames)),
        Err(_) => units::size(text)
            .ok()
            .filter(|size| *size > 0)
            .ok_or_else(wrong)
            .map(|size| Capacity::Bytes(size as usize)),
    }
}

/// Losses: `1%`, `random 1%`; `gemodel P R [1-H [1-K]]`, as netem has it.
fn loss(text: &str) -> Read<Loss> {
    let words: Vec<&str> = text.split_whitespace().collect();
    Ok(match &*words {
        ["gemodel", shares @ ..] if (2..=4).contains(&shares.len()) => {
            let shares: Vec<f64> = shares.iter().map(|text| share(text)).collect::<Read<_>>()?;
            let or = |index: usize, otherwise| shares.get(index).copied().unwrap_or(otherwise);
            Loss::GilbertElliott { worse: or(0, 0.0), better: or(1, 0.0), bad: or(2, 1.0), good: or(3, 0.0) }
        }
        [one] | ["random", one] => match share(one)? {
            0.0 => Loss::None,
            share => Loss::Random(share),
        },
        _ => {
            let fix = "write a share such as \"1%\", or \"gemodel P R [1-H [1-K]]\"";
            return Err((format!("{} is not a loss", shown(text)), fix.into()));
        }
    })
}

fn bounded<T>(trace: Vec<T>) -> Read<Vec<T>> {
    match trace.len() {
        1..=TRACE => Ok(trace),
        count => Err((format!("a trace of {count} values"), format!("use 1 to {TRACE}"))),
    }
}
