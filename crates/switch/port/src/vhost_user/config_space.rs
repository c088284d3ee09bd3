//! The network device's configuration space (virtio 1.3, 5.1.4).

use super::Config;

/// Length in bytes, up to and including the MTU.
const LEN: usize = 12;
/// `status`: the link is up.
const LINK_UP: u16 = 1;
/// `status`: the driver must announce itself.
const ANNOUNCE: u16 = 2;
/// The virtio limit on queue pairs (virtio 1.3, 5.1.4).
const MOST_PAIRS: u16 = 0x8000;

/// Copies the configuration space from `offset` on into `bytes`; bytes beyond its end are zero. `mac` is the address
/// that the driver chose; `announce`: the driver must announce itself.
pub(super) fn read(config: &Config, mac: Option<[u8; 6]>, announce: bool, offset: u32, bytes: &mut [u8]) {
    let mut space = [0; LEN];
    let [first, rest @ ..] = [0, 6, 8, 10];
    space[first..first + 6].copy_from_slice(&mac.or(config.mac).unwrap_or_default());
    let status = if config.carrier { LINK_UP } else { 0 } | if announce { ANNOUNCE } else { 0 };
    let fields = [status, config.queues.min(MOST_PAIRS), config.mtu.unwrap_or_default()];
    for (at, value) in rest.into_iter().zip(fields) {
        space[at..at + 2].copy_from_slice(&value.to_le_bytes());
    }
    let there = usize::try_from(offset).ok().and_then(|offset| space.get(offset..)).unwrap_or_default();
    bytes.fill(0);
    bytes.iter_mut().zip(there).for_each(|(to, from)| *to = *from);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_have_the_offsets_of_the_specification() {
        let config =
            Config { mac: Some([2, 0, 0, 0, 0, 9]), mtu: Some(9000), queues: 3, ..Config::default() };
        let mut bytes = [0xff; 14];
        read(&config, None, false, 0, &mut bytes);
        assert_eq!(bytes, [2, 0, 0, 0, 0, 9, 1, 0, 3, 0, 0x28, 0x23, 0, 0]);
        read(&config, None, false, 10, &mut bytes[..4]);
        assert_eq!(bytes[..4], [0x28, 0x23, 0, 0]);
        read(&config, None, false, u32::MAX, &mut bytes);
        assert_eq!(bytes, [0; 14]);
        read(&config, Some([2, 0, 0, 0, 0, 7]), true, 0, &mut bytes[..8]);
        assert_eq!(bytes[..8], [2, 0, 0, 0, 0, 7, 3, 0]);
        read(&Config { carrier: false, ..config }, None, false, 6, &mut bytes[..2]);
        assert_eq!(bytes[..2], [0; 2]);
    }
}
