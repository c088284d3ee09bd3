//! An eBPF program that drops each frame, as an object file for `ip link set xdp`.

/// Machine type of eBPF, and that of a relocatable file.
const BPF: u16 = 247;
const RELOCATABLE: u16 = 1;
/// `r0 = XDP_DROP; exit`.
const CODE: [u8; 16] = [0xb7, 0, 0, 0, 1, 0, 0, 0, 0x95, 0, 0, 0, 0, 0, 0, 0];
/// Section names and the function's name, each at its offset.
const NAMES: &[u8] = b"\0.strtab\0xdp\0license\0.symtab\0drop\0";
const STRTAB: u32 = 1;
const XDP: u32 = 9;
const LICENSE: u32 = 13;
const SYMTAB: u32 = 21;
const DROP: u32 = 29;

/// Sizes of the file's header, a section header, a symbol.
const HEADER: u64 = 64;
const SECTION: u16 = 64;
const SYMBOL: u64 = 24;

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Two 32-bit fields.
fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

/// The object file (ELF, System V ABI): the program in section `xdp`, its licence, and its symbol.
pub fn object() -> Vec<u8> {
    // A global function in section 2; the first symbol is empty.
    let symbol = [[0; 3], [pair(DROP, 0x12 | 2 << 16), 0, CODE.len() as u64]].concat();
    let contents = [NAMES.to_vec(), CODE.to_vec(), b"GPL\0".to_vec(), words(&symbol)];
    let mut body = Vec::new();
    let places = contents.map(|mut content| {
        let (at, len) = (HEADER + body.len() as u64, content.len() as u64);
        content.resize(content.len().next_multiple_of(8), 0);
        body.append(&mut content);
        (at, len)
    });
    // Name and type, flags; of the symbols: the section with their names and the first global one, the size of each.
    let heads = [
        (pair(STRTAB, 3), 0, 0, 0),
        (pair(XDP, 1), 6, 0, 0),
        (pair(LICENSE, 1), 2, 0, 0),
        (pair(SYMTAB, 2), 0, pair(1, 1), SYMBOL),
    ];
    let sections = heads
        .iter()
        .zip(places)
        .flat_map(|(&(kind, flags, more, each), (at, len))| words(&[kind, flags, 0, at, len, more, 8, each]));
    let sections: Vec<u8> = [0; SECTION as usize].into_iter().chain(sections).collect();
    let mut file = vec![0x7f, b'E', b'L', b'F', 2, 1, 1];
    file.resize(16, 0);
    file.extend([RELOCATABLE, BPF].iter().flat_map(|half| half.to_le_bytes()));
    file.extend(1_u32.to_le_bytes());
    file.extend(words(&[0, 0, HEADER + body.len() as u64]));
    file.extend(0_u32.to_le_bytes());
    let tail = [HEADER as u16, 0, 0, SECTION, heads.len() as u16 + 1, 1];
    file.extend(tail.iter().flat_map(|half| half.to_le_bytes()));
    [file, body, sections].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_where_the_sections_say() {
        let name = |at: u32| NAMES[at as usize..].split(|byte| *byte == 0).next().unwrap();
        let names = [STRTAB, XDP, LICENSE, SYMTAB, DROP].map(name);
        assert_eq!(names, [&b".strtab"[..], b"xdp", b"license", b".symtab", b"drop"]);
        let object = object();
        let sections = u64::from_le_bytes(object[40..48].try_into().unwrap());
        assert_eq!(object.len() as u64, sections + 5 * u64::from(SECTION));
    }
}
