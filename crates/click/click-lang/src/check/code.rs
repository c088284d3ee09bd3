//! Port properties of classes, in Click's codes.
use super::Processing;
use alloc::vec::Vec;

/// The permitted numbers of ports of a class: a port count code such as `1/1-2`, `1-/=` or `-/-`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortCount {
    inputs: (usize, usize),
    outputs: Outputs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outputs {
    Between(usize, usize),
    /// As many outputs as inputs, plus this number.
    InputsPlus(usize),
}

impl PortCount {
    /// Parses a code; `None` if it is malformed.
    pub fn parse(code: &str) -> Option<Self> {
        let (inputs, outputs) = code.split_once('/').unwrap_or((code, code));
        let inputs = range(inputs)?;
        let outputs = match outputs.strip_prefix('=') {
            Some(plus) if plus.bytes().all(|byte| byte == b'+') => Outputs::InputsPlus(plus.len()),
            _ => {
                let (least, most) = range(outputs)?;
                Outputs::Between(least, most)
            }
        };
        Some(Self { inputs, outputs })
    }

    /// The permitted numbers that are nearest to the numbers in use.
    pub fn fit(&self, inputs: usize, outputs: usize) -> (usize, usize) {
        let inputs = inputs.max(self.inputs.0).min(self.inputs.1);
        let outputs = match self.outputs {
            Outputs::Between(least, most) => outputs.max(least).min(most),
            Outputs::InputsPlus(more) => inputs + more,
        };
        (inputs, outputs)
    }
}

/// Parses `2`, `1-3`, `1-`, `-3` or `-`; a missing limit means any number.
fn range(text: &str) -> Option<(usize, usize)> {
    let number = |text: &str, open| if text.is_empty() { Some(open) } else { text.parse().ok() };
    match text.split_once('-') {
        Some((least, most)) => Some((number(least, 0)?, number(most, usize::MAX)?)),
        None => number(text, 0).map(|count| (count, count)),
    }
}

/// The processing of `count` inputs or outputs by a processing code such as `h/lh` or `a/ah`, whose last
/// letter applies to all further ports.
pub(super) fn processing(code: &str, output: bool, count: usize, mut last: Processing) -> Vec<Processing> {
    let mut halves = code.splitn(2, '/');
    let first = halves.next().unwrap_or_default();
    let letters = if output { halves.next().unwrap_or(first) } else { first };
    let mut letters = letters.chars();
    let next = |_| {
        if let Some(kind) = letters.next().and_then(letter) {
            last = kind;
        }
        last
    };
    (0..count).map(next).collect()
}

fn letter(letter: char) -> Option<Processing> {
    Some(match letter {
        'h' | 'H' => Processing::Push,
        'l' | 'L' => Processing::Pull,
        'a' | 'A' => Processing::Agnostic,
        _ => return None,
    })
}

/// The outputs that packets from each input may reach: a flow code such as `x/x`, `x/y` or `[xy]/x#`.
#[derive(Clone, Debug)]
pub struct Flow {
    inputs: Vec<Set>,
    outputs: Vec<Set>,
}

/// A set of letters, possibly with `#` for the port's own number, or the complement of such a set.
#[derive(Clone, Copy, Debug, Default)]
struct Set {
    letters: u64,
    own: bool,
    negated: bool,
}

impl Flow {
    /// Parses a code; an empty one means `x/x`.
    pub fn parse(code: &str) -> Self {
        let code = if code.is_empty() { "x/x" } else { code };
        let (inputs, outputs) = code.split_once('/').unwrap_or((code, code));
        Self { inputs: sets(inputs), outputs: sets(outputs) }
    }

    /// Whether a packet from `input` may leave by `output`.
    pub fn joins(&self, input: usize, output: usize) -> bool {
        let at = |sets: &[Set], port: usize| sets.get(port).or(sets.last()).copied().unwrap_or_default();
        let (from, to) = (at(&self.inputs, input), at(&self.outputs, output));
        let share = |one: Set, other: Set| {
            let letters =
                if other.negated { one.letters & !other.letters } else { one.letters & other.letters };
            letters != 0 || (one.own && (other.own && input == output) != other.negated)
        };
        match (from.negated, to.negated) {
            (true, true) => true,
            (true, false) => share(to, from),
            _ => share(from, to),
        }
    }
}

fn sets(half: &str) -> Vec<Set> {
    let mut all = Vec::new();
    let mut letters = half.bytes();
    while let Some(byte) = letters.next() {
        let mut set = Set::default();
        if byte != b'[' {
            set.add(byte);
        } else {
            for byte in letters.by_ref().take_while(|&byte| byte != b']') {
                match byte {
                    b'^' => set.negated = true,
                    other => set.add(other),
                }
            }
        }
        all.push(set);
    }
    all
}

impl Set {
    fn add(&mut self, byte: u8) {
        match byte {
            b'a'..=b'z' => self.letters |= 1 << (byte - b'a'),
            b'A'..=b'Z' => self.letters |= 1 << (26 + byte - b'A'),
            b'#' => self.own = true,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_counts() {
        let fit = |code, used: (usize, usize)| PortCount::parse(code).unwrap().fit(used.0, used.1);
        assert_eq!(fit("1/1-2", (0, 5)), (1, 2));
        assert_eq!(fit("1", (3, 0)), (1, 1));
        assert_eq!(fit("-/-", (3, 2)), (3, 2));
        assert_eq!(fit("1-/=", (3, 0)), (3, 3));
        assert_eq!(fit("1-/=+", (2, 0)), (2, 3));
        assert_eq!(fit("-2/0", (3, 0)), (2, 0));
        assert!(PortCount::parse("x/1").is_none() && PortCount::parse("1/=x").is_none());
    }

    #[test]
    fn processing_codes_continue_with_their_last_part() {
        use Processing::*;
        assert_eq!(processing("h/lh", true, 3, Push), [Pull, Push, Push]);
        assert_eq!(processing("a", true, 2, Push), [Agnostic, Agnostic]);
        assert_eq!(processing("hl/a", false, 3, Push), [Push, Pull, Pull]);
    }

    #[test]
    fn flows() {
        let joined = |code: &str| {
            let flow = Flow::parse(code);
            [(0, 0), (0, 1), (1, 0), (1, 1)].map(|(input, output)| flow.joins(input, output))
        };
        assert_eq!(joined("x/x"), [true; 4]);
        assert_eq!(joined("x/y"), [false; 4]);
        assert_eq!(joined("xy/[xy]y"), [true, false, true, true]);
        assert_eq!(joined("#/#"), [true, false, false, true]);
        assert_eq!(joined("#/[^#]"), [false, true, true, false]);
        assert_eq!(joined("xy/x[^x]"), [true, false, false, true]);
        assert_eq!(joined("[^x]/[^y]"), [true; 4]);
    }
}
