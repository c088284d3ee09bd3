//! An eBPF program that drops pktgen's frames and judges them by their numbers, as an object file for
//! `ip link set xdp`.
//!
//! pktgen numbers the frames of a run from 1; copies of a frame have its number. What the program counts is in a map of
//! one entry, which `ip` pins in the BPF file system, where it is read as text. Other frames pass.

/// Name of the map, and of its file.
pub const MAP: &str = "seen";

/// What the program counts: the map's entry.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Frames of pktgen.
    pub frames: u64,
    /// The highest number.
    pub last: u64,
    /// Frames before that one that did not arrive.
    pub missing: u64,
    /// Frames that arrived twice, or after one with a higher number.
    pub wrong: u64,
}

/// Offset of a counter in the entry.
macro_rules! at {
    ($counter:ident) => {
        std::mem::offset_of!(Seen, $counter) as i16
    };
}

impl Seen {
    /// From the text of the map's file; `None` if it is another.
    pub fn parse(text: &str) -> Option<Seen> {
        let (_, fields) = text.lines().find_map(|line| line.trim().split_once("0: {"))?;
        let mut fields = fields.split([',', '}']).map(|field| field.trim().parse());
        let mut next = || fields.next()?.ok();
        Some(Seen { frames: next()?, last: next()?, missing: next()?, wrong: next()? })
    }
}

/// Offsets in a frame of pktgen's header (after Ethernet, IPv4 and UDP) and of its number, and the header's end.
const MAGIC_AT: i16 = 42;
const NUMBER_AT: i16 = 46;
const END: i32 = 58;
/// The header's first word, 0xbe9be955, as a little-endian machine loads it.
const MAGIC: i32 = 0x55e9_9bbe;

/// Operation codes (RFC 9669).
const LOAD_WORD: u8 = 0x61;
const LOAD: u8 = 0x79;
const STORE: u8 = 0x7b;
const STORE_WORD: u8 = 0x62;
const LOAD_ADDRESS: u8 = 0x18;
const MOVE: u8 = 0xbf;
const MOVE_NUMBER: u8 = 0xb7;
const ADD: u8 = 0x07;
const SUBTRACT: u8 = 0x1f;
const BIG_ENDIAN: u8 = 0xdc;
const IF_ZERO: u8 = 0x15;
const IF_EQUAL: u8 = 0x1d;
const IF_ABOVE: u8 = 0x2d;
const IF_NOT_WORD: u8 = 0x56;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
const MAP_LOOKUP: i32 = 1;
const XDP_DROP: i32 = 1;
const XDP_PASS: i32 = 2;

/// A line of the program: operation, destination and source registers, then an offset and a number.
enum Line {
    Do(u8, u8, u8, i16, i32),
    /// A jump to a label, with a number.
    Go(u8, u8, u8, i32, &'static str),
    Label(&'static str),
}

use Line::{Do, Go, Label};

const PROGRAM: &[Line] = &[
    // r2: the frame, r3: its end.
    Do(LOAD_WORD, 2, 1, 0, 0),
    Do(LOAD_WORD, 3, 1, 4, 0),
    Do(MOVE, 4, 2, 0, 0),
    Do(ADD, 4, 0, 0, END),
    Go(IF_ABOVE, 4, 3, 0, "pass"),
    Do(LOAD_WORD, 5, 2, MAGIC_AT, 0),
    Go(IF_NOT_WORD, 5, 0, MAGIC, "pass"),
    // r7: the frame's number.
    Do(LOAD_WORD, 7, 2, NUMBER_AT, 0),
    Do(BIG_ENDIAN, 7, 0, 0, 32),
    // r0: the entry of key 0.
    Do(STORE_WORD, 10, 0, -4, 0),
    Do(MOVE, 2, 10, 0, 0),
    Do(ADD, 2, 0, 0, -4),
    Label("map"),
    Do(LOAD_ADDRESS, 1, 0, 0, 0),
    Do(0, 0, 0, 0, 0),
    Do(CALL, 0, 0, 0, MAP_LOOKUP),
    Go(IF_ZERO, 0, 0, 0, "pass"),
    // r2: the frames before this one.
    Do(LOAD, 2, 0, at!(frames), 0),
    Do(MOVE, 3, 2, 0, 0),
    Do(ADD, 3, 0, 0, 1),
    Do(STORE, 0, 3, at!(frames), 0),
    Do(LOAD, 4, 0, at!(last), 0),
    // A copy.
    Go(IF_EQUAL, 7, 4, 0, "drop"),
    Go(IF_ABOVE, 4, 7, 0, "wrong"),
    Do(STORE, 0, 7, at!(last), 0),
    // Its number says how many frames were sent before it.
    Do(ADD, 7, 0, 0, -1),
    Go(IF_ABOVE, 2, 7, 0, "wrong"),
    Do(SUBTRACT, 7, 2, 0, 0),
    Do(STORE, 0, 7, at!(missing), 0),
    Label("drop"),
    Do(MOVE_NUMBER, 0, 0, 0, XDP_DROP),
    Do(EXIT, 0, 0, 0, 0),
    Label("wrong"),
    Do(LOAD, 5, 0, at!(wrong), 0),
    Do(ADD, 5, 0, 0, 1),
    Do(STORE, 0, 5, at!(wrong), 0),
    Do(MOVE_NUMBER, 0, 0, 0, XDP_DROP),
    Do(EXIT, 0, 0, 0, 0),
    Label("pass"),
    Do(MOVE_NUMBER, 0, 0, 0, XDP_PASS),
    Do(EXIT, 0, 0, 0, 0),
];

/// The instruction's index of a label.
fn place(of: &str) -> usize {
    let before = PROGRAM.iter().take_while(|line| !matches!(line, Label(name) if *name == of));
    before.filter(|line| !matches!(line, Label(_))).count()
}

/// The program's instructions, eight bytes each.
fn code() -> Vec<u8> {
    let steps = PROGRAM.iter().filter(|line| !matches!(line, Label(_)));
    let encoded = steps.enumerate().map(|(index, line)| {
        let (operation, to, from, offset, number) = match *line {
            Do(operation, to, from, offset, number) => (operation, to, from, offset, number),
            Go(operation, to, from, number, label) => {
                (operation, to, from, (place(label) as i16) - (index as i16) - 1, number)
            }
            Label(_) => (0, 0, 0, 0, 0),
        };
        let mut bytes = vec![operation, to | from << 4];
        bytes.extend(offset.to_le_bytes());
        bytes.extend(number.to_le_bytes());
        bytes
    });
    encoded.collect::<Vec<_>>().concat()
}

/// Names, each followed by a zero; the first is empty.
struct Names(Vec<u8>);

impl Names {
    fn new() -> Names {
        Names(vec![0])
    }

    /// Adds a name and returns its offset; 0 if it is empty.
    fn add(&mut self, name: &str) -> u32 {
        if name.is_empty() {
            return 0;
        }
        let at = self.0.len() as u32;
        self.0.extend(name.as_bytes());
        self.0.push(0);
        at
    }
}

/// 32-bit words as bytes.
fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Kinds of BTF types.
const INT: u32 = 1;
const POINTER: u32 = 2;
const ARRAY: u32 = 3;
const STRUCT: u32 = 4;
const VARIABLE: u32 = 14;
const SECTION_OF_DATA: u32 = 15;
/// The map's type: an array; its description is a structure of so many pointers.
const ARRAY_MAP: u32 = 2;
const ATTRIBUTES: u32 = 5;
const POINTER_SIZE: u32 = 8;

/// The map's description in BTF, as libbpf reads it: each attribute is a pointer to its type, or to an array with as
/// many entries as its value.
fn btf() -> Vec<u8> {
    let mut names = Names::new();
    let mut types: Vec<u32> = Vec::new();
    // Numbered from 1.
    let mut add = |names: &mut Names, name: &str, kind: u32, size: u32, more: &[u32], count: u32| {
        types.extend([names.add(name), kind << 24 | count, size]);
        types.extend(more);
    };
    let field = |names: &mut Names, name: &str, kind: u32, at: u32| [names.add(name), kind, 8 * at];
    add(&mut names, "u32", INT, 4, &[32], 0);
    add(&mut names, "u64", INT, 8, &[64], 0);
    add(&mut names, "", ARRAY, 0, &[1, 1, ARRAY_MAP], 0);
    add(&mut names, "", POINTER, 3, &[], 0);
    add(&mut names, "", ARRAY, 0, &[1, 1, 1], 0);
    add(&mut names, "", POINTER, 5, &[], 0);
    add(&mut names, "", POINTER, 1, &[], 0);
    let fields =
        [("frames", at!(frames)), ("last", at!(last)), ("missing", at!(missing)), ("wrong", at!(wrong))];
    let fields = fields.map(|(name, at)| field(&mut names, name, 2, at as u32)).concat();
    add(&mut names, "entry", STRUCT, size_of::<Seen>() as u32, &fields, 4);
    add(&mut names, "", POINTER, 8, &[], 0);
    // One entry; pinned by its name.
    let attributes = [("type", 4), ("max_entries", 6), ("key", 7), ("value", 9), ("pinning", 6)];
    let attributes = (0..).zip(attributes);
    let attributes: Vec<_> =
        attributes.map(|(index, (name, kind))| field(&mut names, name, kind, index * POINTER_SIZE)).collect();
    let size = ATTRIBUTES * POINTER_SIZE;
    add(&mut names, "", STRUCT, size, &attributes.concat(), ATTRIBUTES);
    add(&mut names, MAP, VARIABLE, 10, &[1], 0);
    add(&mut names, ".maps", SECTION_OF_DATA, size, &[11, 0, size], 1);
    let (types, names) = (words(&types), names.0);
    let lengths = [types.len() as u32, types.len() as u32, names.len() as u32];
    // Version 1, a header of 24 bytes.
    let head = words(&[0xeb9f | 1 << 16, 24, 0, lengths[0], lengths[1], lengths[2]]);
    [head, types, names].concat()
}

/// Machine type of eBPF, and that of a relocatable file.
const BPF: u32 = 247;
const RELOCATABLE: u32 = 1;
/// Sizes of the file's header, a section header, a symbol, a relocation.
const HEADER: usize = 64;
const SECTION: u32 = 64;
const SYMBOL: u32 = 24;
const RELOCATION: u32 = 16;
/// Section types and flags.
const PROGBITS: u32 = 1;
const SYMTAB: u32 = 2;
const STRTAB: u32 = 3;
const REL: u32 = 9;
const WRITABLE: u32 = 3;
const EXECUTABLE: u32 = 6;
const ALLOCATED: u32 = 2;
/// Section numbers: of the program, of symbols, of maps.
const CODE: u32 = 2;
const SYMBOLS: u32 = 4;
const MAPS: u32 = 5;

/// A section: name, type, flags, content, its link and information, the size of each entry.
type Section = (&'static str, u32, u32, Vec<u8>, [u32; 3]);

/// The object file (ELF, System V ABI).
pub fn object() -> Vec<u8> {
    let (mut names, code) = (Names::new(), code());
    let size = ATTRIBUTES * POINTER_SIZE;
    // Global symbols: a function, a variable.
    let symbols = [
        [0; 6],
        [names.add("drop"), 0x12 | CODE << 16, 0, 0, code.len() as u32, 0],
        [names.add(MAP), 0x11 | MAPS << 16, 0, 0, size, 0],
    ];
    // The instruction's offset; a 64-bit address of symbol 2.
    let relocation = words(&[8 * place("map") as u32, 0, 1, 2]);
    let sections: [Section; 7] = [
        (".strtab", STRTAB, 0, Vec::new(), [0; 3]),
        ("xdp", PROGBITS, EXECUTABLE, code, [0; 3]),
        ("license", PROGBITS, ALLOCATED, b"GPL\0".to_vec(), [0; 3]),
        (".symtab", SYMTAB, 0, words(&symbols.concat()), [1, 1, SYMBOL]),
        (".maps", PROGBITS, WRITABLE, vec![0; size as usize], [0; 3]),
        (".BTF", PROGBITS, 0, btf(), [0; 3]),
        (".relxdp", REL, 0, relocation, [SYMBOLS, CODE, RELOCATION]),
    ];
    let named = sections.map(|section| (names.add(section.0), section));
    let (mut body, mut table) = (Vec::new(), vec![0; SECTION as usize]);
    for (name, (_, kind, flags, content, [link, information, each])) in named {
        let content = if kind == STRTAB { names.0.clone() } else { content };
        let (at, len) = ((HEADER + body.len()) as u32, content.len() as u32);
        body.extend(content);
        body.resize(body.len().next_multiple_of(8), 0);
        let header = [name, kind, flags, 0, 0, 0, at, 0, len, 0, link, information, 8, 0, each, 0];
        table.extend(words(&header));
    }
    let mut file = vec![0x7f, b'E', b'L', b'F', 2, 1, 1];
    file.resize(16, 0);
    let count = (table.len() / SECTION as usize) as u32;
    file.extend(words(&[RELOCATABLE | BPF << 16, 1, 0, 0, 0, 0]));
    file.extend(words(&[(HEADER + body.len()) as u32, 0, 0, HEADER as u32, SECTION << 16, count | 1 << 16]));
    [file, body, table].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where a run of the program finds its context, the frame, the map's entry and its stack.
    const CONTEXT: u64 = 0x1000;
    const FRAME: u64 = 0x2000;
    const ENTRY_AT: u64 = 0x3000;
    const STACK: u64 = 0x4000;

    /// Runs the program on a frame; returns its verdict.
    fn run(entry: &mut [u64; 4], frame: &[u8]) -> i32 {
        let (code, mut at) = (code(), 0_usize);
        let mut registers = [0; 11];
        (registers[1], registers[10]) = (CONTEXT, STACK);
        loop {
            let step = &code[8 * at..8 * at + 8];
            let (to, from) = (usize::from(step[1] & 15), usize::from(step[1] >> 4));
            let offset = i16::from_le_bytes([step[2], step[3]]);
            let number = i32::from_le_bytes(step[4..].try_into().unwrap());
            let [target, source] = [registers[to], registers[from]];
            let field = |base: u64| (base.wrapping_add_signed(offset.into()) - ENTRY_AT) as usize / 8;
            let mut jumps = false;
            match step[0] {
                LOAD_WORD => {
                    registers[to] = match source.wrapping_add_signed(offset.into()) {
                        CONTEXT => FRAME,
                        address if address == CONTEXT + 4 => FRAME + frame.len() as u64,
                        address => {
                            let word = &frame[(address - FRAME) as usize..][..4];
                            u32::from_le_bytes(word.try_into().unwrap()).into()
                        }
                    }
                }
                LOAD => registers[to] = entry[field(source)],
                STORE => entry[field(target)] = source,
                STORE_WORD => assert_eq!((target, number), (STACK, 0)),
                LOAD_ADDRESS => at += 1,
                MOVE => registers[to] = source,
                MOVE_NUMBER => registers[to] = number as u64,
                ADD => registers[to] = target.wrapping_add_signed(number.into()),
                SUBTRACT => registers[to] = target.wrapping_sub(source),
                BIG_ENDIAN => registers[to] = (target as u32).swap_bytes().into(),
                CALL => registers[0] = ENTRY_AT,
                EXIT => return registers[0] as i32,
                IF_ZERO => jumps = target == 0,
                IF_EQUAL => jumps = target == source,
                IF_ABOVE => jumps = target > source,
                IF_NOT_WORD => jumps = target as u32 != number as u32,
                other => panic!("an unknown operation {other:#x}"),
            }
            at = (at + 1).wrapping_add_signed(if jumps { offset.into() } else { 0 });
        }
    }

    fn frame(number: u32) -> Vec<u8> {
        let mut frame = vec![0; 60];
        frame[42..46].copy_from_slice(&0xbe9b_e955_u32.to_be_bytes());
        frame[46..50].copy_from_slice(&number.to_be_bytes());
        frame
    }

    fn judge(numbers: &[u32]) -> Seen {
        let mut entry = [0; 4];
        assert!(numbers.iter().all(|number| run(&mut entry, &frame(*number)) == XDP_DROP));
        let [frames, last, missing, wrong] = entry;
        Seen { frames, last, missing, wrong }
    }

    #[test]
    fn each_frame_is_judged_by_its_number() {
        assert_eq!(judge(&[1, 2, 3]), Seen { frames: 3, last: 3, missing: 0, wrong: 0 });
        assert_eq!(judge(&[1, 2, 4]), Seen { frames: 3, last: 4, missing: 1, wrong: 0 });
        assert_eq!(judge(&[1, 1, 1, 4, 4, 4]), Seen { frames: 6, last: 4, missing: 0, wrong: 0 });
        assert_eq!(judge(&[1, 1, 4, 4, 4, 7]), Seen { frames: 6, last: 7, missing: 1, wrong: 0 });
        assert_eq!(judge(&[1, 3, 2]).wrong, 1, "out of order");
        assert_eq!(judge(&[1, 1, 2]).wrong, 1, "one came twice");
        assert_eq!(judge(&[3]).missing, 2, "the first ones are lost");
    }

    #[test]
    fn other_frames_pass() {
        let mut entry = [0; 4];
        let (mut other, whole) = (frame(1), frame(1));
        other[45] ^= 1;
        assert_eq!(run(&mut entry, &other), XDP_PASS);
        assert_eq!(run(&mut entry, &whole[..57]), XDP_PASS);
        assert_eq!(entry, [0; 4]);
    }

    #[test]
    fn the_text_of_the_map_is_read() {
        let text = "# WARNING!! The output format will change\n0: {13,14,1,2,}\n";
        assert_eq!(Seen::parse(text), Some(Seen { frames: 13, last: 14, missing: 1, wrong: 2 }));
        assert_eq!(Seen::parse("cat: no such file"), None);
        assert_eq!(Seen::parse("0: {1,2}"), None);
    }

    #[test]
    fn sections_have_their_names() {
        let object = object();
        let word = |at: usize| u32::from_le_bytes(object[at..at + 4].try_into().unwrap()) as usize;
        let (table, count) = (word(40), word(60) & 0xffff);
        assert_eq!(object.len(), table + count * SECTION as usize);
        let names = word(table + SECTION as usize + 24);
        let name = |index: usize| {
            let at = names + word(table + index * SECTION as usize);
            object[at..].split(|byte| *byte == 0).next().unwrap()
        };
        let found: Vec<&[u8]> = (1..count).map(name).collect();
        let wanted = [".strtab", "xdp", "license", ".symtab", ".maps", ".BTF", ".relxdp"];
        assert_eq!(found, wanted.map(str::as_bytes));
    }
}
