//! Datagrams of tunnels: what the peer of a wire port may send.

use ringway_mem::SpanMut;
use ringway_port::wire::{Codec, Dscp, Encapsulation};

/// Network of the ports.
const VNI: u32 = 5;

/// Decapsulates the bytes after the first, whose bits choose the encapsulation and the outer packet's ECN field.
pub fn run(data: &[u8]) {
    let Some((choice, datagram)) = data.split_first() else { return };
    let encapsulation = match choice >> 2 & 3 {
        0 => Encapsulation::Vxlan,
        1 => Encapsulation::Geneve,
        _ => Encapsulation::Udp,
    };
    let codec = Codec::new(encapsulation, VNI, Dscp::Inherit);
    let mut datagram = datagram.to_vec();
    let Ok(frame) = codec.decapsulate(SpanMut::of(&mut datagram), choice & 3) else { return };
    let mut bytes = vec![0; frame.len()];
    frame.read(&mut bytes);
    assert!(bytes.len() >= 14 && datagram.ends_with(&bytes));
    // What came in goes out, and comes in again unchanged.
    let tos = codec.outer_tos(&bytes[..bytes.len().min(64)]);
    let mut again = [&codec.header()[..codec.header_len()], &bytes].concat();
    let frame = codec.decapsulate(SpanMut::of(&mut again), tos).map(|frame| frame.len());
    assert_eq!(frame, Ok(bytes.len()));
    assert!(again.ends_with(&bytes));
}

/// A datagram of each encapsulation, and one with options.
pub fn seeds() -> Vec<Vec<u8>> {
    let frame = [&[2; 12][..], &[8, 0, 0x45, 1, 0, 46], &[0; 42]].concat();
    let of = |encapsulation, choice: u8| {
        let codec = Codec::new(encapsulation, VNI, Dscp::Inherit);
        [&[choice][..], &codec.header()[..codec.header_len()], &frame].concat()
    };
    let mut options = of(Encapsulation::Geneve, 7);
    options[1] = 3;
    options.splice(9..9, [1, 2, 3, 1, 9, 9, 9, 9, 0, 0, 0, 0]);
    vec![of(Encapsulation::Vxlan, 1), of(Encapsulation::Geneve, 4), of(Encapsulation::Udp, 11), options]
}
