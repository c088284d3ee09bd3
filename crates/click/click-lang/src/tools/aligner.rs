use super::alignment::Alignment;
use super::router::RouterElement;
use crate::check::Flow;
use crate::config::{integer, parse_keyword, split_arguments};

/// A class's effect on the alignment of packets, and the alignment that it requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Aligner {
    /// Keeps the alignment; requires what its successors require.
    Default,
    /// Creates packets with this alignment; requires none.
    Generates(Alignment),
    /// Removes this number of bytes.
    Shifts(i64),
    /// Requires this alignment.
    Wants(Alignment),
    /// Removes this number of bytes, and requires this alignment.
    ShiftsAndWants(i64, Alignment),
    /// Requires the same alignment at all inputs, with a modulus of at least 4.
    Classifier,
    /// Receives packets at input 0 and ARP responses at input 1.
    ArpQuerier,
    /// No effect and no requirement.
    Nothing,
}

const WORD: Alignment = Alignment::At(4, 0);
const FRAME: Alignment = Alignment::At(4, 2);

impl Aligner {
    /// The aligner of an element; `None` if the element's configuration is invalid.
    pub fn of(element: &RouterElement) -> Option<Self> {
        let text = &element.configuration;
        Some(match element.class_name() {
            "Align" => Self::Generates(Alignment::parse(text, false)?),
            "Strip" => Self::Shifts(number(text, "LENGTH")?),
            "Unstrip" => Self::Shifts(-number(text, "LENGTH")?),
            "CheckIPHeader" | "CheckIPHeader2" | "MarkIPHeader" => {
                let offset = number(text, "OFFSET").or_else(|| second_number(text)).unwrap_or(0);
                Self::Wants(WORD.shifted(-offset))
            }
            "Classifier" => Self::Classifier,
            "EtherEncap" => Self::Shifts(-14),
            "FromHost" | "FromDevice" | "PollDevice" => Self::Generates(device(text)?),
            "ToHost" => Self::Wants(device(text)?),
            "SR2SetChecksum" | "SR2CheckHeader" | "SetSRChecksum" | "CheckSRHeader" => Self::Generates(FRAME),
            "ICMPError" => match keyword(text, "ETHER").as_deref() {
                Some("true" | "1" | "yes" | "t" | "y") => Self::Default,
                _ => Self::Generates(WORD),
            },
            "InfiniteSource" | "RatedSource" => Self::Generates(WORD),
            "Idle" => Self::Generates(Alignment::Universal),
            "IPEncap"
            | "UDPIPEncap"
            | "ICMPPingEncap"
            | "RandomUDPIPEncap"
            | "RoundRobinUDPIPEncap"
            | "RoundRobinTCPIPEncap"
            | "StoreUDPTimeSeqRecord" => Self::Wants(WORD),
            "ARPResponder" => Self::Wants(Alignment::At(2, 0)),
            "ARPQuerier" => Self::ArpQuerier,
            "IPInputCombo" => Self::ShiftsAndWants(14, FRAME),
            "GridEncap" => Self::ShiftsAndWants(98, WORD),
            "Discard" => Self::Nothing,
            _ => Self::Default,
        })
    }

    /// Computes the alignments of outputs from those of inputs.
    pub fn have(self, inputs: &[Alignment], outputs: &mut [Alignment], flow: &Flow) {
        let all = inputs.iter().copied().reduce(Alignment::or).unwrap_or(Alignment::At(1, 0));
        for (port, output) in outputs.iter_mut().enumerate() {
            *output = match self {
                Self::Nothing => return,
                Self::Generates(alignment) => alignment,
                Self::Shifts(bytes) | Self::ShiftsAndWants(bytes, _) => all.shifted(bytes),
                Self::ArpQuerier if port > 0 => FRAME,
                Self::ArpQuerier => match inputs.first() {
                    Some(input) => input.shifted(-14),
                    None => return,
                },
                Self::Default | Self::Wants(_) | Self::Classifier => {
                    let reaching = inputs.iter().enumerate().filter(|(input, _)| flow.joins(*input, port));
                    reaching.fold(Alignment::Empty, |sum, (_, input)| sum.or(*input))
                }
            };
        }
    }

    /// Computes the required alignments of inputs from those of outputs.
    pub fn want(self, inputs: &mut [Alignment], outputs: &[Alignment], flow: &Flow) {
        let all = outputs.iter().copied().reduce(Alignment::and).unwrap_or(Alignment::At(1, 0));
        for (port, input) in inputs.iter_mut().enumerate() {
            *input = match self {
                Self::Nothing => return,
                Self::Generates(_) => Alignment::Empty,
                Self::Wants(alignment) | Self::ShiftsAndWants(_, alignment) => alignment,
                Self::Shifts(bytes) => all.shifted(-bytes),
                Self::ArpQuerier => match outputs.first() {
                    Some(output) if port == 0 => output.shifted(14),
                    _ => Alignment::At(2, 0),
                },
                Self::Default | Self::Classifier => {
                    let reached = outputs.iter().enumerate().filter(|(output, _)| flow.joins(port, *output));
                    reached.fold(Alignment::Empty, |sum, (_, output)| sum.and(*output))
                }
            };
        }
    }

    /// Sets the requirement of a class that accepts several alignments according to the actual ones.
    pub fn adjust(self, inputs: &mut [Alignment]) {
        if self == Self::Classifier {
            let all = inputs.iter().copied().reduce(Alignment::or).unwrap_or(Alignment::At(1, 0));
            let (modulus, offset) = all.numbers();
            let wanted = if modulus < 4 { Alignment::At(4, offset) } else { all };
            inputs.fill(wanted);
        }
    }
}

/// A device's alignment: from `ALIGNMENT 4 2`, or by its `TYPE`.
fn device(text: &str) -> Option<Alignment> {
    match (keyword(text, "ALIGNMENT"), keyword(text, "TYPE").as_deref()) {
        (Some(alignment), _) => Alignment::parse(&alignment, true),
        (None, Some("IP")) => Some(WORD),
        _ => Some(FRAME),
    }
}

/// A keyword's value, or else the first argument, as a number.
fn number(text: &str, name: &str) -> Option<i64> {
    let first = || integer(split_arguments(text).first()?);
    keyword(text, name)
        .and_then(|value| integer(&value))
        .or_else(first)
        .filter(|number| (0..1 << 20).contains(number))
}

/// The second argument as a number; in older configurations, the first has bad addresses.
fn second_number(text: &str) -> Option<i64> {
    integer(split_arguments(text).get(1)?).filter(|number| (0..1 << 20).contains(number))
}

fn keyword(text: &str, name: &str) -> Option<alloc::string::String> {
    let arguments = split_arguments(text);
    let found =
        arguments.iter().filter_map(|argument| parse_keyword(argument)).find(|(key, _)| *key == name)?;
    Some(found.1.into())
}
