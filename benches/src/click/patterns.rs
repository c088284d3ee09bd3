//! Patterns for an intrusion detection system, and payloads without them.
//!
//! `RULES=FILE` names rules in Snort's language, such as those published by Emerging Threats; each rule
//! contributes its longest content of at least four bytes, and the first distinct ones are used. Otherwise
//! patterns are generated with the distribution of lengths and letters of that set (Emerging Threats Open for
//! Suricata 4, 17,209 longest contents), 71% of them text, with random bytes. Contents of fewer than four
//! bytes, 2% of that set, are left out: they match most payloads, so rules combine them with others.

use super::frames::Numbers;
use aho_corasick::AhoCorasick;
use std::collections::BTreeSet;
use std::path::Path;

/// Minimum length of a pattern in bytes.
const LEAST: usize = 4;
/// Of a thousand patterns, how many are at most this many bytes long, and longer than the previous row's.
const LENGTHS: [(u64, u64); 13] = [
    (4, 23),
    (5, 23),
    (6, 24),
    (8, 67),
    (10, 74),
    (12, 84),
    (16, 170),
    (20, 151),
    (24, 120),
    (32, 98),
    (48, 101),
    (64, 23),
    (128, 19),
];
/// Number of text patterns in a thousand.
const TEXT: u64 = 710;
/// Letters, and the frequency of each.
const LETTERS: [(&[u8], u64); 15] = [
    (b"e", 62),
    (b"to", 46),
    (b"aisnr", 39),
    (b"p", 35),
    (b"c", 31),
    (b"l", 28),
    (b"./ dm", 25),
    (b"hug-", 17),
    (b"0bAfw", 12),
    (b"1y=_", 9),
    (b"C:2?xv", 8),
    (b"46E", 7),
    (b"k35SD", 6),
    (b"7TB9UF", 5),
    (b"j8MI%\"P", 4),
];

/// Reproducible distinct patterns.
pub fn patterns(count: usize) -> Vec<Vec<u8>> {
    match std::env::var("RULES").ok().and_then(|path| std::fs::read(path).ok()) {
        Some(rules) => of_rules(&String::from_utf8_lossy(&rules), count),
        None => made(count),
    }
}

fn made(count: usize) -> Vec<Vec<u8>> {
    let letters = Letters::new();
    let mut numbers = Numbers(count as u64);
    let mut distinct = BTreeSet::new();
    let mut all = Vec::new();
    while all.len() < count {
        let length = length(&mut numbers);
        let text = numbers.below(1000) < TEXT;
        let byte = |_| if text { letters.any(&mut numbers) } else { numbers.next() as u8 };
        let pattern: Vec<u8> = (0..length).map(byte).collect();
        if distinct.insert(pattern.clone()) {
            all.push(pattern);
        }
    }
    all
}

fn length(numbers: &mut Numbers) -> u64 {
    let mut place = numbers.below(LENGTHS.iter().map(|(_, share)| share).sum());
    let mut least = LEAST as u64;
    for (most, share) in LENGTHS {
        if place < share {
            return least + numbers.below(most + 1 - least);
        }
        (place, least) = (place - share, most + 1);
    }
    least
}

/// The longest content of each rule.
fn of_rules(rules: &str, count: usize) -> Vec<Vec<u8>> {
    let mut distinct = BTreeSet::new();
    let mut all = Vec::new();
    for rule in rules.lines().filter(|line| line.trim_start_matches(['#', ' ']).starts_with("alert")) {
        let contents = rule.split("content:").skip(1).filter_map(content);
        let longest = contents.max_by_key(Vec::len).filter(|content| content.len() >= LEAST);
        if let Some(pattern) = longest.filter(|pattern| distinct.insert(pattern.clone())) {
            all.push(pattern);
        }
        if all.len() >= count {
            break;
        }
    }
    all
}

/// Parses a content: text, `\\` before special characters, bytes in hexadecimal between bars.
fn content(text: &str) -> Option<Vec<u8>> {
    let mut bytes = text.trim_start().strip_prefix('"')?.bytes();
    let (mut out, mut digits, mut hex) = (Vec::new(), String::new(), false);
    loop {
        match (bytes.next()?, hex) {
            (b'"', false) => return Some(out),
            (b'|', _) => hex = !hex,
            (b'\\', false) => out.push(bytes.next()?),
            (byte, false) => out.push(byte),
            (byte, true) if byte.is_ascii_hexdigit() => digits.push(byte.into()),
            _ => {}
        }
        if digits.len() == 2 {
            out.push(u8::from_str_radix(&digits, 16).ok()?);
            digits.clear();
        }
    }
}

/// Payload bytes of each kind.
const SAMPLE: usize = 4 << 20;
/// Maximum bytes taken from a file.
const FILE: usize = 256 << 10;

/// Real payload from this machine's files: HTML, text and programs in turn.
pub struct Files {
    kinds: [Vec<u8>; 3],
    at: usize,
}

impl Files {
    pub fn new() -> Self {
        let html = |path: &Path, _: &[u8]| path.extension().is_some_and(|end| end == "html");
        let text =
            |path: &Path, bytes: &[u8]| !html(path, bytes) && bytes.iter().take(2000).all(u8::is_ascii);
        let program = |_: &Path, bytes: &[u8]| bytes.starts_with(b"\x7fELF");
        let sample = |folders: &[&str], fits: &dyn Fn(&Path, &[u8]) -> bool| {
            let mut bytes = Vec::new();
            folders.iter().for_each(|folder| gather(Path::new(folder), fits, &mut bytes));
            bytes
        };
        let kinds = [
            sample(&["/usr/share", "/usr/lib", "/usr/local", "/root", "/home"], &html),
            sample(&["/usr/share/doc", "/usr/share"], &text),
            sample(&["/usr/bin"], &program),
        ];
        Self { kinds, at: 0 }
    }

    /// The next payload of this length.
    pub fn next(&mut self, length: usize) -> Vec<u8> {
        let kinds = self.kinds.iter().filter(|kind| kind.len() > length);
        let kinds: Vec<&Vec<u8>> = kinds.collect();
        let Some(kind) = kinds.get(self.at % kinds.len().max(1)) else { return vec![0; length] };
        let from = self.at / kinds.len() * length % (kind.len() - length);
        self.at += 1;
        kind[from..from + length].to_vec()
    }
}

/// Appends the beginnings of files in a folder and its subfolders, ordered by name.
fn gather(folder: &Path, fits: &dyn Fn(&Path, &[u8]) -> bool, bytes: &mut Vec<u8>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        let Ok(about) = path.symlink_metadata() else { continue };
        if bytes.len() >= SAMPLE {
            return;
        }
        if about.is_dir() {
            gather(&path, fits, bytes);
        } else if about.is_file() && (4096..64 << 20).contains(&about.len()) {
            let file = std::fs::read(&path).unwrap_or_default();
            if fits(&path, &file) {
                bytes.extend_from_slice(&file[..file.len().min(FILE)]);
            }
        }
    }
}

/// Random letters.
struct Letters(Vec<u8>);

impl Letters {
    fn new() -> Self {
        let each =
            LETTERS.iter().flat_map(|(letters, share)| letters.iter().map(move |letter| (*letter, *share)));
        Letters(each.flat_map(|(letter, share)| std::iter::repeat_n(letter, share as usize)).collect())
    }

    fn any(&self, numbers: &mut Numbers) -> u8 {
        self.0[numbers.below(self.0.len() as u64) as usize]
    }
}

/// Generates payloads, four in five of them text.
pub struct Payloads {
    patterns: Vec<Vec<u8>>,
    all: Option<AhoCorasick>,
    letters: Letters,
    numbers: Numbers,
}

impl Payloads {
    /// Payloads that contain one of these patterns, or none.
    pub fn new(patterns: Vec<Vec<u8>>) -> Self {
        let all = AhoCorasick::new(&patterns).ok();
        Self { patterns, all, letters: Letters::new(), numbers: Numbers(31) }
    }

    /// A payload of this length; `matching`: it contains a pattern that is short enough, else it contains none.
    pub fn make(&mut self, length: usize, matching: bool) -> Vec<u8> {
        loop {
            let mut payload = self.any(length);
            if matching {
                self.plant(&mut payload);
                return payload;
            }
            if !self.all.as_ref().is_some_and(|all| all.is_match(&payload)) {
                return payload;
            }
        }
    }

    fn any(&mut self, length: usize) -> Vec<u8> {
        let text = self.numbers.below(5) < 4;
        let Self { letters, numbers, .. } = self;
        (0..length).map(|_| if text { letters.any(numbers) } else { numbers.next() as u8 }).collect()
    }

    fn plant(&mut self, payload: &mut [u8]) {
        let fitting: Vec<&Vec<u8>> = self.patterns.iter().filter(|own| own.len() <= payload.len()).collect();
        if fitting.is_empty() {
            return;
        }
        let pattern = fitting[self.numbers.below(fitting.len() as u64) as usize];
        let at = self.numbers.below((payload.len() - pattern.len() + 1) as u64) as usize;
        payload[at..at + pattern.len()].copy_from_slice(pattern);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_distinct_and_payloads_match_only_on_request() {
        let made = made(500);
        assert_eq!((made.len(), made.iter().collect::<BTreeSet<_>>().len()), (500, 500));
        assert!(made.iter().all(|pattern| (LEAST..=128).contains(&pattern.len())));
        let all = AhoCorasick::new(&made).unwrap();
        let mut payloads = Payloads::new(made);
        for number in 0..200 {
            assert_eq!(all.is_match(&payloads.make(300, number % 10 == 0)), number % 10 == 0);
        }
    }

    #[test]
    fn rule_contents_are_parsed() {
        let rules = "#alert tcp any any -> any any (content:\"ab\"; content:!\"longer than it\"; \
            content:\"|0d 0A|x\\\"y\";)\n\
            alert udp any any -> any any (uricontent:\"/path\"; nocase;)\npass tcp (content:\"nothing\";)";
        assert_eq!(of_rules(rules, 9), [b"\r\nx\"y".to_vec(), b"/path".to_vec()]);
    }
}
