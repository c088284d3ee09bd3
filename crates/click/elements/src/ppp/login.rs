//! Authentication of a subscriber: PAP (RFC 1334) and CHAP with MD5 (RFC 1994).
use super::automaton::{NEVER, RESTART};
use super::lcp::Method;
use super::packet::{CHAP, Control, PAP};
use super::session::Turn;
use super::users::{LONGEST_NAME, Proof};
use alloc::vec::Vec;

const PAP_REQUEST: u8 = 1;
const PAP_ACK: u8 = 2;
const PAP_NAK: u8 = 3;
const CHAP_CHALLENGE: u8 = 1;
const CHAP_RESPONSE: u8 = 2;
const CHAP_SUCCESS: u8 = 3;
const CHAP_FAILURE: u8 = 4;
/// How often a challenge is sent.
const MAX_CHALLENGES: u8 = 10;
/// Bytes of a challenge, and of MD5.
const CHALLENGE: usize = 16;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Idle,
    /// The subscriber has to send its proof.
    Waiting,
    /// The proof is being checked.
    Checking,
    Passed,
}

#[derive(Debug)]
pub(super) struct Login {
    method: Method,
    stage: Stage,
    /// The name that the subscriber gave first.
    pub(super) name: Vec<u8>,
    /// The identifier of the current request or challenge.
    id: u8,
    challenge: [u8; CHALLENGE],
    left: u8,
    /// Number of the check that is going on; 0 if there is none.
    /// Attack: a subscriber that renegotiates, and gives another name, while a server still answers for the first one.
    pub(super) check: u64,
    /// When to send a challenge, again or anew.
    pub(super) due: u64,
}

impl Login {
    pub(super) fn new() -> Self {
        Self {
            method: Method::Pap,
            stage: Stage::Idle,
            name: Vec::new(),
            id: 0,
            challenge: [0; CHALLENGE],
            left: 0,
            check: 0,
            due: NEVER,
        }
    }

    /// Begins, as soon as the link is open.
    pub(super) fn begin(&mut self, method: Method, turn: &mut Turn<'_>) {
        self.name.clear();
        self.method = method;
        match method {
            Method::Pap => self.stage = Stage::Waiting,
            Method::Chap => self.challenge(turn),
        }
    }

    /// Sends a new challenge.
    fn challenge(&mut self, turn: &mut Turn<'_>) {
        self.id = self.id.wrapping_add(1);
        (self.stage, self.left, self.challenge) = (Stage::Waiting, MAX_CHALLENGES, turn.nonce.next());
        self.send_challenge(turn);
    }

    fn send_challenge(&mut self, turn: &mut Turn<'_>) {
        self.left -= 1;
        self.due = turn.now + RESTART;
        let (challenge, name) = (self.challenge, &turn.settings.name);
        turn.out.send(CHAP, CHAP_CHALLENGE, self.id, |out| {
            out.push(CHALLENGE as u8);
            out.extend_from_slice(&challenge);
            out.extend_from_slice(name.as_bytes());
        });
    }

    /// The challenge is repeated, or a new one sent; `false` if the subscriber does not answer.
    pub(super) fn timeout(&mut self, turn: &mut Turn<'_>) -> bool {
        self.due = NEVER;
        match self.stage {
            Stage::Waiting if self.left == 0 => return false,
            Stage::Waiting => self.send_challenge(turn),
            Stage::Passed => self.challenge(turn),
            Stage::Idle | Stage::Checking => {}
        }
        true
    }

    /// Handles a packet; returns a proof to check.
    pub(super) fn receive(
        &mut self,
        protocol: u16,
        packet: &Control<'_>,
        turn: &mut Turn<'_>,
    ) -> Option<Proof> {
        match (protocol, packet.code, self.method) {
            (PAP, PAP_REQUEST, Method::Pap) => self.request(packet, turn),
            (CHAP, CHAP_RESPONSE, Method::Chap) => self.response(packet, turn),
            _ => None,
        }
    }

    fn request(&mut self, packet: &Control<'_>, turn: &mut Turn<'_>) -> Option<Proof> {
        if self.stage == Stage::Passed {
            // The answer was lost.
            self.id = packet.id;
            self.say(true, b"", turn);
        }
        if self.stage != Stage::Waiting {
            return None;
        }
        let (length, rest) = packet.data.split_first()?;
        let (name, rest) = rest.split_at_checked((*length).into())?;
        let (length, rest) = rest.split_first()?;
        let password = rest.get(..usize::from(*length))?;
        self.id = packet.id;
        self.check(name, turn)?;
        Some(Proof::Password(password.into()))
    }

    fn response(&mut self, packet: &Control<'_>, turn: &mut Turn<'_>) -> Option<Proof> {
        if packet.id != self.id {
            return None;
        }
        if self.stage == Stage::Passed {
            self.say(true, b"", turn);
        }
        if self.stage != Stage::Waiting {
            return None;
        }
        let (length, rest) = packet.data.split_first()?;
        let (response, name) = rest.split_at_checked((*length).into())?;
        let response = response.try_into().ok()?;
        self.check(name, turn)?;
        Some(Proof::Hash { id: self.id, response, challenge: self.challenge })
    }

    /// Remembers the name.
    /// Attack: another subscriber's name in the answer to a later challenge.
    fn check(&mut self, name: &[u8], turn: &mut Turn<'_>) -> Option<()> {
        if !(1..=LONGEST_NAME).contains(&name.len()) || (!self.name.is_empty() && self.name != name) {
            return None;
        }
        if self.name.is_empty() {
            self.name = name.into();
        }
        (self.stage, self.due, self.check) = (Stage::Checking, NEVER, turn.nonce.serial());
        Some(())
    }

    /// The proof is right or wrong; says so to the subscriber.
    pub(super) fn checked(&mut self, passed: bool, message: &[u8], turn: &mut Turn<'_>) {
        if self.stage != Stage::Checking {
            return;
        }
        self.say(passed, message, turn);
        self.check = 0;
        self.stage = if passed { Stage::Passed } else { Stage::Idle };
        let rechallenge = turn.settings.rechallenge;
        if passed && self.method == Method::Chap && rechallenge > 0 {
            self.due = turn.now + rechallenge;
        }
    }

    fn say(&self, passed: bool, message: &[u8], turn: &mut Turn<'_>) {
        let message = message.get(..LONGEST_NAME).unwrap_or(message);
        match self.method {
            Method::Pap => turn.out.send(PAP, if passed { PAP_ACK } else { PAP_NAK }, self.id, |out| {
                out.push(message.len() as u8);
                out.extend_from_slice(message);
            }),
            Method::Chap => {
                let code = if passed { CHAP_SUCCESS } else { CHAP_FAILURE };
                turn.out.send(CHAP, code, self.id, |out| out.extend_from_slice(message));
            }
        }
    }

    /// Forgets everything.
    pub(super) fn stop(&mut self) {
        (self.stage, self.due, self.check) = (Stage::Idle, NEVER, 0);
    }
}
