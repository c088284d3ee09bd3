//! Counters of subscribers, as reported to a RADIUS server (RFC 2866) and as kept when a session has ended.
use super::request::{FRAMED, Request, attribute};
use super::session::{Cause, Session};
use crate::packet::mac_text;
use crate::tunnel::pppoe_concentrator::Traffic;
use alloc::collections::VecDeque;
use core::net::Ipv4Addr;
use ringway_click::prelude::*;

/// Framed-Protocol PPP, NAS-Port-Type Ethernet (RFC 2865, 5).
const PPP: u32 = 1;
const ETHERNET: u32 = 15;
/// Acct-Authentic: RADIUS or local.
const BY_RADIUS: u32 = 1;
const LOCAL: u32 = 2;

/// Acct-Status-Type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    Start = 1,
    Stop = 2,
    Interim = 3,
}

/// Appends what every request says about a session.
pub(super) fn describe(request: &mut Request, session: &Session, (own, name): (Ipv4Addr, &str)) {
    request.put(attribute::USER_NAME, session.name());
    request.put_address(attribute::NAS_IP_ADDRESS, own);
    request.put(attribute::NAS_IDENTIFIER, name.as_bytes());
    request.put_number(attribute::NAS_PORT, session.id.into());
    request.put_number(attribute::NAS_PORT_TYPE, ETHERNET);
    request.put_number(attribute::SERVICE_TYPE, FRAMED);
    request.put_number(attribute::FRAMED_PROTOCOL, PPP);
    request.put(attribute::CALLING_STATION_ID, mac_text(session.peer).as_bytes());
}

/// Appends what a report says, with times in seconds.
pub(super) fn report(
    request: &mut Request,
    session: &Session,
    (status, cause): (Status, Option<Cause>),
    traffic: Traffic,
    (wall, seconds): (u64, u64),
) {
    request.put_number(attribute::ACCT_STATUS_TYPE, status as u32);
    let number = session.online.map_or(0, |online| online.number);
    request.put(attribute::ACCT_SESSION_ID, format!("{number:08X}").as_bytes());
    request.put_number(attribute::EVENT_TIMESTAMP, wall as u32);
    if let Some(grant) = &session.grant {
        request.put_address(attribute::FRAMED_IP_ADDRESS, grant.address);
        request.put_number(attribute::ACCT_AUTHENTIC, if grant.by_radius { BY_RADIUS } else { LOCAL });
        if !grant.class.is_empty() {
            request.put(attribute::CLASS, &grant.class);
        }
    }
    if status != Status::Start {
        request.put_number(attribute::ACCT_SESSION_TIME, seconds as u32);
        let Traffic { up, down } = traffic;
        let octets = [
            (attribute::ACCT_INPUT_OCTETS, attribute::ACCT_INPUT_GIGAWORDS, up.bytes),
            (attribute::ACCT_OUTPUT_OCTETS, attribute::ACCT_OUTPUT_GIGAWORDS, down.bytes),
        ];
        for (low, high, bytes) in octets {
            request.put_number(low, bytes as u32);
            request.put_number(high, (bytes >> 32) as u32);
        }
        request.put_number(attribute::ACCT_INPUT_PACKETS, up.packets as u32);
        request.put_number(attribute::ACCT_OUTPUT_PACKETS, down.packets as u32);
    }
    if let Some(cause) = cause {
        request.put_number(attribute::ACCT_TERMINATE_CAUSE, cause as u32);
    }
}

/// A subscriber's name as text.
/// Attack: a name with line breaks, in a table or a log.
pub(super) fn name_text(name: &[u8]) -> String {
    if name.is_empty() { "-".to_string() } else { name.escape_ascii().to_string().replace(' ', "\\x20") }
}

/// Address, seconds, packets and bytes from and to a subscriber.
pub(super) fn line(session: &Session, seconds: u64, Traffic { up, down }: Traffic) -> String {
    let address = session.grant.as_ref().map_or_else(|| "-".to_string(), |grant| grant.address.to_string());
    format!("{address} {seconds} {} {} {} {}", up.packets, up.bytes, down.packets, down.bytes)
}

/// Attack: subscribers that come and go. Most records kept.
const MOST: usize = 1000;

/// The records of sessions that have ended, as lines.
#[derive(Debug, Default)]
pub(super) struct Records {
    lines: VecDeque<String>,
}

impl Records {
    pub(super) fn add(&mut self, line: String) {
        if self.lines.len() >= MOST {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
    }

    /// Records from a number on.
    pub(super) fn onward(&self, number: usize) -> impl Iterator<Item = &String> {
        self.lines.iter().skip(number)
    }
}
