//! `kind = "xdp"`: an interface of the host, by AF_XDP.

use super::{Described, Opening, PortControl};
use crate::open::EngineHandle;
use crate::open::interface::{Conduct, keep};
use ringway_host::{KEEP_RULES, PageChoice};
use ringway_port::xdp::{KIND, Keep, Settings, open};
use ringway_spec::file::units::Wrong;
use ringway_spec::file::{Diagnostics, Section};
use ringway_spec::{Kind, Port};
use std::path::PathBuf;
use std::sync::Arc;

pub struct Xdp;

/// What stays with the host if the file does not say: the operator's connection.
const DEFAULT: Keep = Keep::Port(TCP, 22);
const TCP: u8 = 6;
const UDP: u8 = 17;

impl PortControl for Xdp {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn check_settings(&self, kind: &Kind) -> Result<(), serde_json::Error> {
        kind.settings::<Settings>().map(drop)
    }

    fn read(&self, section: &mut Section<'_>, _diagnostics: &Diagnostics) -> Described {
        let (interface, namespace) = super::existing_interface(section);
        let settings = Settings {
            interface,
            namespace,
            promiscuous: section.boolean("promiscuous").unwrap_or(true),
            generic: section.boolean("generic").unwrap_or(false),
            keep: rules(section),
        };
        let queues = section.number("queues", 1..=open::QUEUES.into()).unwrap_or(1) as u16;
        Described { kind: Kind::new(self.name(), &settings), socket: None, queues }
    }

    fn adopts(&self) -> bool {
        true
    }

    fn open(&self, port: &Port, engine: EngineHandle, _pages: PageChoice) -> Opening {
        let settings: Settings = engine.settings(port)?;
        let (wanted, queues) = (open::name(&settings), port.queues);
        // The rules are about the interface's own addresses, and chunks have room for frames of its MTU.
        let by_addresses = !settings.keep.is_empty();
        let conduct = Conduct { keep: false, by_addresses, by_mtu: true };
        let open = Arc::new(move || open::open(&settings, queues));
        Ok(Some(tokio::spawn(keep(engine, wanted, conduct, open))))
    }

    /// An interface has one XDP program.
    fn claims(&self, port: &Port) -> Option<(&'static str, String)> {
        let name = self.peer(port);
        (!name.is_empty()).then(|| ("interface", format!("{name} for XDP")))
    }

    fn needs(&self, port: &Port) -> Option<(&'static str, PathBuf)> {
        let Settings { interface, namespace, .. } = port.kind.settings().ok()?;
        Some(super::needs_interface(&interface, namespace.as_deref()))
    }

    fn peer(&self, port: &Port) -> String {
        let Ok(Settings { interface, namespace, .. }) = port.kind.settings() else { return String::new() };
        super::interface_in(interface, namespace)
    }
}

fn rules(section: &mut Section<'_>) -> Vec<Keep> {
    let Some(texts) = section.words("keep", "tcp 22") else { return vec![DEFAULT] };
    if texts.len() > KEEP_RULES {
        let what = format!("`keep` has {} rules, and {KEEP_RULES} are possible", texts.len());
        section.error("keep", what, "keep a whole protocol, such as \"tcp\", instead of many ports");
    }
    let read = |(index, text): (usize, &String)| section.checked(&format!("keep.{index}"), rule(text));
    texts.iter().enumerate().filter_map(read).collect()
}

/// Reads a rule.
fn rule(text: &str) -> Result<Keep, Wrong> {
    let wrong = || {
        let fix = "write \"tcp 22\", \"udp 68\", \"tcp\", \"udp\", \"icmp\", \"icmp6\", \"arp\" or \
                   \"ethertype 0x88cc\"";
        (format!("\"{text}\" names no frames that stay with the host"), fix.to_string())
    };
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    let port = |text: &str| text.parse::<u16>().ok().filter(|port| *port > 0).ok_or_else(wrong);
    match words[..] {
        ["arp"] => Ok(Keep::EtherType(0x0806)),
        ["icmp"] => Ok(Keep::Protocol(1)),
        ["icmp6"] => Ok(Keep::Protocol(58)),
        ["tcp"] => Ok(Keep::Protocol(TCP)),
        ["udp"] => Ok(Keep::Protocol(UDP)),
        ["tcp", text] => Ok(Keep::Port(TCP, port(text)?)),
        ["udp", text] => Ok(Keep::Port(UDP, port(text)?)),
        ["ethertype", text] => {
            let digits = text.strip_prefix("0x").ok_or_else(wrong)?;
            let number = u16::from_str_radix(digits, 16).ok().filter(|number| *number >= 0x600);
            number.map(Keep::EtherType).ok_or_else(wrong)
        }
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_words() {
        assert_eq!(rule("tcp 22"), Ok(Keep::Port(6, 22)));
        assert_eq!(rule(" udp  68"), Ok(Keep::Port(17, 68)));
        assert_eq!(rule("ethertype 0x88cc"), Ok(Keep::EtherType(0x88cc)));
        assert_eq!([rule("arp"), rule("icmp6")], [Ok(Keep::EtherType(0x806)), Ok(Keep::Protocol(58))]);
        for wrong in
            ["", "tcp 0", "tcp 65536", "tcp 22 23", "ssh", "ethertype 88cc", "ethertype 0x5ff", "arp 1"]
        {
            assert!(rule(wrong).is_err(), "{wrong}");
        }
    }
}
