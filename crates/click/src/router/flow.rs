//! Flow, port count and processing codes (Click's Element class documentation).

/// A member of a flow code's sets: a letter, or a port's own number, which `#` stands for.
#[derive(Clone, Copy)]
enum Symbol {
    Letter(char),
    Port(usize),
}

/// Whether packets may go from an input to an output.
pub(super) fn flows(code: &str, input: usize, output: usize) -> bool {
    let (inputs, outputs) = code.split_once('/').unwrap_or((code, code));
    let (Some(from), Some(to)) = (item(inputs, input), item(outputs, output)) else { return false };
    let letters = ('a'..='z').chain('A'..='Z').map(Symbol::Letter);
    let ports = [input, output].map(Symbol::Port);
    letters.chain(ports).any(|symbol| has(from, input, symbol) && has(to, output, symbol))
}

/// The item for a port: `x`, `#` or `[..]`; the last one repeats.
fn item(code: &str, port: usize) -> Option<&str> {
    let mut rest = code;
    let mut last = None;
    for _ in 0..=port {
        if rest.is_empty() {
            break;
        }
        let end = if rest.starts_with('[') { rest.find(']')? + 1 } else { 1 };
        let (item, behind) = rest.split_at_checked(end)?;
        last = Some(item);
        rest = behind;
    }
    last
}

/// Whether a port's item has a symbol; `[^..]` has all others.
fn has(item: &str, port: usize, symbol: Symbol) -> bool {
    let listed = match symbol {
        Symbol::Letter(letter) => item.contains(letter),
        Symbol::Port(number) => number == port && item.contains('#'),
    };
    listed != item.starts_with("[^")
}

/// A range of port counts.
#[derive(Clone, Copy)]
struct Range {
    least: usize,
    most: usize,
}

impl Range {
    fn parse(code: &str) -> Option<Self> {
        let (least, most) = match code.split_once('-') {
            None => return code.parse().ok().map(|count| Self { least: count, most: count }),
            Some((least, most)) => (least, most),
        };
        let least = if least.is_empty() { 0 } else { least.parse().ok()? };
        let most = if most.is_empty() { usize::MAX } else { most.parse().ok()? };
        Some(Self { least, most })
    }
}

/// How many inputs and outputs an element has of whose some are in use.
pub(super) fn port_counts(code: &str, inputs: usize, outputs: usize) -> Option<(usize, usize)> {
    let (left, right) = code.split_once('/').unwrap_or((code, code));
    let Range { least, most } = Range::parse(left)?;
    let inputs = inputs.clamp(least, most.max(least));
    if let Some(more) = right.strip_prefix('=') {
        return Some((inputs, inputs + more.len()));
    }
    let Range { least, most } = Range::parse(right)?;
    Some((inputs, outputs.clamp(least, most.max(least))))
}

/// What a class says of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Processing {
    Push,
    Pull,
    Agnostic,
}

/// The processing of a port by a class's code.
pub(super) fn processing(code: &str, output: bool, port: usize) -> Processing {
    let (inputs, outputs) = code.split_once('/').unwrap_or((code, code));
    let side = if output { outputs } else { inputs };
    let letter = side.chars().nth(port).or_else(|| side.chars().last());
    match letter {
        Some('h' | 'H') => Processing::Push,
        Some('l' | 'L') => Processing::Pull,
        _ => Processing::Agnostic,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flow_codes() {
        assert!(flows("x/x", 3, 7));
        assert!(!flows("x/y", 0, 0));
        assert!(flows("xy/x", 0, 0) && !flows("xy/x", 1, 0) && !flows("xy/x", 2, 0));
        assert!(flows("#/#", 2, 2) && !flows("#/#", 2, 1));
        assert!(!flows("#/[^#]", 2, 2) && flows("#/[^#]", 2, 1));
        assert!(flows("x/[xy]", 0, 0));
    }

    #[test]
    fn port_count_codes() {
        assert_eq!(port_counts("1/1", 0, 5), Some((1, 1)));
        assert_eq!(port_counts("1-/=", 3, 0), Some((3, 3)));
        assert_eq!(port_counts("1/1-2", 1, 2), Some((1, 2)));
        assert_eq!(port_counts("-/=+", 2, 0), Some((2, 3)));
        assert_eq!(port_counts("2", 0, 0), Some((2, 2)));
        assert_eq!(port_counts("what", 0, 0), None);
    }

    #[test]
    fn processing_codes() {
        assert_eq!(processing("a/ah", true, 0), Processing::Agnostic);
        assert_eq!(processing("a/ah", true, 3), Processing::Push);
        assert_eq!(processing("h/l", false, 1), Processing::Push);
        assert_eq!(processing("l", true, 0), Processing::Pull);
    }
}
