//! The option negotiation automaton (RFC 1661, 4), without passive states: it opens by itself, and a layer that it gave
//! up is closed.
use super::packet::{Control, are_options, code, options};
use super::session::Turn;
use ringway_click::prelude::*;

/// A moment that never comes.
pub(super) const NEVER: u64 = u64::MAX;
/// The restart timer (RFC 1661, 4.6).
pub(super) const RESTART: u64 = 3 * SECOND;
/// Time that the peer has to begin. A request that comes before the peer listens would be lost, and repeated late.
const PASSIVE_TIME: u64 = SECOND;
/// Max-Configure and Max-Terminate.
const MAX_CONFIGURE: u8 = 10;
const MAX_TERMINATE: u8 = 2;
/// Max-Failure: Configure-Naks until options are rejected instead.
const MAX_FAILURE: u8 = 5;
/// Attack: a peer that refuses every request. Most Configure-Naks and Configure-Rejects to answer.
const MAX_REFUSED: u8 = 20;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum State {
    #[default]
    Closed,
    RequestSent,
    AckReceived,
    AckSent,
    Opened,
    Closing,
}

/// What an event did to the layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Nothing,
    /// The layer is open.
    Up,
    /// The layer was open, and negotiates again.
    Down,
    /// The peer closed it.
    Ended,
    /// The peer does not answer or agree.
    GaveUp,
}

/// The options of a protocol.
pub(super) trait Layer {
    /// Appends the options to request.
    fn request(&self, out: &mut Vec<u8>);

    /// Judges the peer's options: appends those to change, with better values, to `nak`, and unacceptable ones to
    /// `reject`.
    fn check_options(&mut self, options: &[u8], turn: &mut Turn<'_>, nak: &mut Vec<u8>, reject: &mut Vec<u8>);

    /// The peer wants other values, or if `rejected` no such options; returns whether that is acceptable.
    fn refused(&mut self, options: &[u8], rejected: bool, turn: &mut Turn<'_>) -> bool;
}

#[derive(Debug)]
pub(super) struct Automaton {
    protocol: u16,
    pub(super) state: State,
    /// The identifier of the last request.
    id: u8,
    /// The identifier of the last packet that was no request.
    other_id: u8,
    /// The restart counter.
    left: u8,
    naks: u8,
    refused: u8,
    /// When the restart timer expires.
    pub(super) due: u64,
}

impl Automaton {
    pub(super) fn new(protocol: u16) -> Self {
        Self { protocol, state: State::Closed, id: 0, other_id: 0, left: 0, naks: 0, refused: 0, due: NEVER }
    }

    pub(super) fn is_open(&self) -> bool {
        self.state == State::Opened
    }

    /// Begins to negotiate in a moment, or as soon as the peer does.
    pub(super) fn open_later(&mut self, now: u64) {
        self.due = now + PASSIVE_TIME;
    }

    /// Begins to negotiate.
    pub(super) fn open(&mut self, layer: &impl Layer, turn: &mut Turn<'_>) {
        (self.left, self.naks, self.refused) = (MAX_CONFIGURE, 0, 0);
        self.state = State::RequestSent;
        self.send_request(layer, turn);
    }

    /// Asks the peer to close it.
    pub(super) fn close(&mut self, turn: &mut Turn<'_>) {
        self.left = MAX_TERMINATE;
        self.state = State::Closing;
        self.send_terminate(turn);
    }

    /// Closes it without a word.
    pub(super) fn stop(&mut self) {
        (self.state, self.due) = (State::Closed, NEVER);
    }

    fn send_request(&mut self, layer: &impl Layer, turn: &mut Turn<'_>) {
        self.id = self.id.wrapping_add(1);
        self.left = self.left.saturating_sub(1);
        self.due = turn.now + RESTART;
        turn.out.send(self.protocol, code::CONFIGURE_REQUEST, self.id, |out| layer.request(out));
    }

    fn send_terminate(&mut self, turn: &mut Turn<'_>) {
        self.id = self.id.wrapping_add(1);
        self.left = self.left.saturating_sub(1);
        self.due = turn.now + RESTART;
        turn.out.send(self.protocol, code::TERMINATE_REQUEST, self.id, |_| ());
    }

    /// An identifier for a packet that is not a request.
    pub(super) fn next_id(&mut self) -> u8 {
        self.other_id = self.other_id.wrapping_add(1);
        self.other_id
    }

    /// Handles a packet.
    pub(super) fn receive(
        &mut self,
        packet: &Control<'_>,
        layer: &mut impl Layer,
        turn: &mut Turn<'_>,
    ) -> Change {
        match packet.code {
            code::CONFIGURE_REQUEST => self.asked(packet, layer, turn),
            code::CONFIGURE_ACK => self.acknowledged(packet, layer, turn),
            code::CONFIGURE_NAK | code::CONFIGURE_REJECT => self.refused(packet, layer, turn),
            code::TERMINATE_REQUEST => {
                turn.out.send(self.protocol, code::TERMINATE_ACK, packet.id, |_| ());
                self.stop();
                Change::Ended
            }
            code::TERMINATE_ACK => match self.state {
                State::Closing => {
                    self.stop();
                    Change::Ended
                }
                State::Opened => {
                    self.open(layer, turn);
                    Change::Down
                }
                _ => Change::Nothing,
            },
            // The peer does without codes that this side never sends; it must know the first seven.
            code::CODE_REJECT => match packet.data.first() {
                Some(code::CONFIGURE_REQUEST..=code::CODE_REJECT) => {
                    self.stop();
                    Change::GaveUp
                }
                _ => Change::Nothing,
            },
            _ => {
                let id = self.next_id();
                turn.out.reject_code(self.protocol, id, packet);
                Change::Nothing
            }
        }
    }

    fn asked(&mut self, packet: &Control<'_>, layer: &mut impl Layer, turn: &mut Turn<'_>) -> Change {
        if self.state == State::Closing || !are_options(packet.data) {
            return Change::Nothing;
        }
        let change = if self.is_open() { Change::Down } else { Change::Nothing };
        if matches!(self.state, State::Opened | State::Closed) {
            self.open(layer, turn);
        }
        let (mut nak, mut reject) = (Vec::new(), Vec::new());
        layer.check_options(packet.data, turn, &mut nak, &mut reject);
        if reject.is_empty() && !nak.is_empty() && self.naks >= MAX_FAILURE {
            // Attack: a peer that asks for the same for ever. It has to do without.
            let wanted = |kind| options(&nak).any(|option| option.kind == kind);
            for option in options(packet.data).filter(|option| wanted(option.kind)) {
                reject.extend_from_slice(option.bytes);
            }
        }
        let (answer, data) = match (reject.is_empty(), nak.is_empty()) {
            (false, _) => (code::CONFIGURE_REJECT, &*reject),
            (true, false) => (code::CONFIGURE_NAK, &*nak),
            (true, true) => (code::CONFIGURE_ACK, packet.data),
        };
        turn.out.send(self.protocol, answer, packet.id, |out| out.extend_from_slice(data));
        self.naks = self.naks.saturating_add(u8::from(answer == code::CONFIGURE_NAK));
        match (answer, self.state) {
            (code::CONFIGURE_ACK, State::AckReceived) => return self.opened(),
            (code::CONFIGURE_ACK, _) => self.state = State::AckSent,
            (_, State::AckSent) => self.state = State::RequestSent,
            _ => {}
        }
        change
    }

    fn opened(&mut self) -> Change {
        (self.state, self.due) = (State::Opened, NEVER);
        Change::Up
    }

    fn acknowledged(&mut self, packet: &Control<'_>, layer: &impl Layer, turn: &mut Turn<'_>) -> Change {
        let mut sent = Vec::new();
        layer.request(&mut sent);
        if packet.id != self.id || packet.data != sent {
            return Change::Nothing;
        }
        match self.state {
            State::RequestSent => {
                (self.state, self.left) = (State::AckReceived, MAX_CONFIGURE);
                Change::Nothing
            }
            State::AckSent => self.opened(),
            State::AckReceived => {
                self.state = State::RequestSent;
                self.send_request(layer, turn);
                Change::Nothing
            }
            State::Opened => {
                self.open(layer, turn);
                Change::Down
            }
            State::Closed | State::Closing => Change::Nothing,
        }
    }

    fn refused(&mut self, packet: &Control<'_>, layer: &mut impl Layer, turn: &mut Turn<'_>) -> Change {
        let negotiates = !matches!(self.state, State::Closed | State::Closing);
        if packet.id != self.id || !negotiates || !are_options(packet.data) {
            return Change::Nothing;
        }
        self.refused += 1;
        let rejected = packet.code == code::CONFIGURE_REJECT;
        if self.refused > MAX_REFUSED || !layer.refused(packet.data, rejected, turn) {
            self.stop();
            return Change::GaveUp;
        }
        match self.state {
            State::Opened => {
                let refused = self.refused;
                self.open(layer, turn);
                self.refused = refused;
                return Change::Down;
            }
            State::AckReceived => self.state = State::RequestSent,
            _ => {}
        }
        self.left = MAX_CONFIGURE;
        self.send_request(layer, turn);
        Change::Nothing
    }

    /// Repeats the last request, or gives up.
    pub(super) fn timeout(&mut self, layer: &impl Layer, turn: &mut Turn<'_>) -> Change {
        if self.state == State::Closed {
            self.open(layer, turn);
            return Change::Nothing;
        }
        if self.left == 0 || self.is_open() {
            self.stop();
            return Change::GaveUp;
        }
        if self.state == State::Closing {
            self.send_terminate(turn);
            return Change::Nothing;
        }
        if self.state == State::AckReceived {
            self.state = State::RequestSent;
        }
        self.send_request(layer, turn);
        Change::Nothing
    }
}
