//! The directions of an emulated link, each a port that `[link.NAME]` describes: `kind = "link"` is not in the file.

use super::{Described, PortControl};
use ringway_port::link::{KIND, Settings};
use ringway_spec::file::{Diagnostics, Section};
use ringway_spec::{Kind, Port, To};
use std::collections::BTreeMap;

pub struct Link;

impl PortControl for Link {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn check_settings(&self, kind: &Kind) -> Result<(), serde_json::Error> {
        kind.settings::<Settings>().map(drop)
    }

    fn read(&self, _section: &mut Section<'_>, _diagnostics: &Diagnostics) -> Described {
        Described { kind: Kind::new(self.name(), &Settings::default()), socket: None, queues: 1 }
    }

    fn is_in_file(&self) -> bool {
        false
    }

    fn changes(&self, from: &Port, to: &Port) -> bool {
        Port { kind: to.kind.clone(), ..from.clone() } == *to && seed(from) == seed(to)
    }
}

fn seed(port: &Port) -> Option<String> {
    port.kind.settings::<Settings>().ok().and_then(|settings| settings.0.get("seed").cloned())
}

/// The port of the frames of one direction of link `link`, from `from` to `to`.
pub fn direction(link: &str, from: &str, to: To, settings: BTreeMap<String, String>) -> Port {
    let kind = Kind::new(KIND.name, &Settings(settings));
    Port::new(&name(link, from), kind, Some(to))
}

/// The direction's port with other settings.
pub fn with(port: &Port, settings: BTreeMap<String, String>) -> Port {
    Port { kind: Kind::new(KIND.name, &Settings(settings)), ..port.clone() }
}

/// The name of the port of the direction from `from`.
pub fn name(link: &str, from: &str) -> String {
    format!("{link}/{from}")
}

/// Link, first port and settings of a direction, if the port is one.
pub fn of(port: &Port) -> Option<(&str, &str, BTreeMap<String, String>)> {
    let (link, from) = port.name.split_once('/').filter(|_| port.kind.name() == KIND.name)?;
    Some((link, from, port.kind.settings::<Settings>().ok()?.0))
}

/// Every key of a direction.
pub const KEYS: &[&str] = &Settings::KEYS;

/// The wrong values: the key of each, what is wrong, and the remedy.
pub fn check(settings: &BTreeMap<String, String>) -> Vec<(&'static str, String, String)> {
    let wrong = Settings(settings.clone()).wrong();
    wrong.into_iter().map(|wrong| (wrong.key, wrong.what, wrong.fix)).collect()
}
