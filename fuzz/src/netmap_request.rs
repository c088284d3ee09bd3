//! A netmap program's requests, by a `struct nmreq` and by a `struct nmreq_header` with options.

use ringway_fuzz_netmap::fuzzing::Request;

/// Names that no fabric has; one may have more behind it.
const NAMES: [&[u8]; 6] = [b"nothing", b"../x", b"nothing{", b"valenothing:", b"nothing}1", &[0xff; 64]];
/// The kind, two bytes for the size and four for the first words of an option.
const OPTION: usize = 7;
/// Requests, and commands of old ones, that change the ports of a fabric, which may run here.
const KINDS_OF_FABRIC: [u16; 4] = [3, 4, 8, 9];
const COMMANDS_OF_FABRIC: [u32; 4] = [1, 2, 6, 7];

/// Makes the request of `data`.
pub fn run(data: &[u8]) {
    let Some((&[form, kind, v0, v1, which, more, options], rest)) = data.split_first_chunk() else { return };
    let Some((suffix, rest)) = rest.split_at_checked(usize::from(more % 50)) else { return };
    let Some((options, rest)) = rest.split_at_checked(OPTION * usize::from(options % 8)) else { return };
    let name = match which {
        u8::MAX => Vec::new(),
        _ => [NAMES[usize::from(which) % NAMES.len()], suffix].concat(),
    };
    let mut body: Vec<u32> = rest.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect();
    body.resize(64, 0);
    let word = |low, high| u64::from(u16::from_le_bytes([low, high]));
    // Nothing is mapped at the lowest addresses, so that no control block is there.
    let option = |&[kind, s0, s1, a0, a1, b0, b1]: &[u8; OPTION]| {
        (u32::from(kind), word(s0, s1), [word(a0, a1), word(b0, b1)])
    };
    let request = Request {
        old: (form % 2 == 1).then_some(form & 2 != 0),
        kind: u16::from(kind % 20),
        version: match form >> 2 & 3 {
            0 => 14,
            1 => 15,
            _ => u16::from_le_bytes([v0, v1]),
        },
        name: &name,
        options: options.as_chunks().0.iter().map(option).collect(),
        body,
    };
    let is_of_fabric = match request.old {
        Some(_) => COMMANDS_OF_FABRIC.contains(&(request.body[10] >> 16)),
        None => KINDS_OF_FABRIC.contains(&request.kind),
    };
    if is_of_fabric {
        return;
    }
    if let Err(error) = request.ask() {
        assert!((1..200).contains(&error), "{error} is no errno");
    }
}

/// Registering memory alone and a pipe's end, by both requests; and asking about ports, headers and memory.
pub fn seeds() -> Vec<Vec<u8>> {
    let request = |head: [u8; 7], options: &[u8], body: &[(usize, u32)]| {
        let mut words = [0_u32; 16];
        body.iter().for_each(|(at, word)| words[*at] = *word);
        [&head[..], options, &words.map(u32::to_le_bytes).concat()[..]].concat()
    };
    let register = [(4, 256), (5, 100), (9, 1)];
    vec![
        request([0, 1, 0, 0, 0, 0, 0], &[], &[(9, 7), (6, 0x0005_000a)]),
        request([4, 1, 0, 0, 4, 0, 0], &[], &register),
        request([0, 1, 0, 0, 4, 0, 2], &[3, 0, 0, 64, 0, 128, 0, 2, 32, 0, 0, 0, 0, 0], &register),
        request([1, 0, 0, 0, 4, 0, 0], &[], &[(4, 14), (13, 1)]),
        request([3, 0, 0, 0, 4, 0, 0], &[], &[(4, 11)]),
        request([0, 2, 0, 0, 0, 0, 0], &[], &[]),
        request([0, 5, 0, 0, u8::MAX, 0, 0], &[], &[]),
        request([0, 12, 0, 0, 0, 0, 0], &[], &[]),
        request([0, 6, 0, 0, 0, 0, 0], &[], &[(0, 12)]),
    ]
}
