//! Binary encoding of changes.

use crate::store::Revision;
use crate::store::memory::{Change, Lease, Version};

const GONE: u8 = 0;
const VALUE: u8 = 1;
const NO_VALUE: u8 = 2;
const LEASE: u8 = 3;
const NO_LEASE: u8 = 4;
const COMPACT: u8 = 5;
/// Tag before the changes of a revision.
const REVISION: u8 = 6;

fn text(bytes: &mut Vec<u8>, text: &[u8]) {
    bytes.extend((text.len() as u32).to_le_bytes());
    bytes.extend(text);
}

fn numbers(bytes: &mut Vec<u8>, kind: u8, numbers: &[u64]) {
    bytes.push(kind);
    numbers.iter().for_each(|number| bytes.extend(number.to_le_bytes()));
}

/// Adds the changes of a revision.
pub(super) fn write(bytes: &mut Vec<u8>, revision: Revision, changes: &[Change]) {
    numbers(bytes, REVISION, &[revision]);
    for change in changes {
        match change {
            Change::Version(key, Version { revision, value: Some(value), lease }) => {
                numbers(bytes, VALUE, &[*revision, lease.unwrap_or(0)]);
                text(bytes, key.as_bytes());
                text(bytes, value);
            }
            Change::Version(key, Version { revision, value: None, .. }) => {
                numbers(bytes, NO_VALUE, &[*revision]);
                text(bytes, key.as_bytes());
            }
            Change::Lease(id, Some(lease)) => numbers(bytes, LEASE, &[*id, lease.deadline, lease.ttl]),
            Change::Lease(id, None) => numbers(bytes, NO_LEASE, &[*id]),
            Change::Gone(key, revision) => {
                numbers(bytes, GONE, &[*revision]);
                text(bytes, key.as_bytes());
            }
            Change::Compact(revision) => numbers(bytes, COMPACT, &[*revision]),
        }
    }
}

/// Decodes changes by revision; none if the bytes are invalid.
pub(super) fn read(mut bytes: &[u8]) -> Option<Vec<(Revision, Vec<Change>)>> {
    let mut batch: Vec<(Revision, Vec<Change>)> = Vec::new();
    let bytes = &mut bytes;
    while let Some((kind, rest)) = bytes.split_first() {
        *bytes = rest;
        let first = number(bytes)?;
        let change = match *kind {
            REVISION => {
                batch.push((first, Vec::new()));
                continue;
            }
            VALUE => {
                let lease = Some(number(bytes)?).filter(|lease| *lease > 0);
                let key = key(bytes)?;
                Change::Version(key, Version { revision: first, value: Some(slice(bytes)?.into()), lease })
            }
            NO_VALUE => Change::Version(key(bytes)?, Version { revision: first, value: None, lease: None }),
            LEASE => Change::Lease(first, Some(Lease { deadline: number(bytes)?, ttl: number(bytes)? })),
            NO_LEASE => Change::Lease(first, None),
            GONE => Change::Gone(key(bytes)?, first),
            COMPACT => Change::Compact(first),
            _ => return None,
        };
        batch.last_mut()?.1.push(change);
    }
    Some(batch)
}

fn number(bytes: &mut &[u8]) -> Option<u64> {
    let (number, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(u64::from_le_bytes(*number))
}

fn slice<'b>(bytes: &mut &'b [u8]) -> Option<&'b [u8]> {
    let (length, rest) = bytes.split_first_chunk()?;
    let (slice, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    *bytes = rest;
    Some(slice)
}

fn key(bytes: &mut &[u8]) -> Option<String> {
    String::from_utf8(slice(bytes)?.to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn changes() -> impl Strategy<Value = Change> {
        let value = prop::option::of(prop::collection::vec(any::<u8>(), 0..20));
        prop_oneof![
            (".{0,9}", any::<u64>(), value, any::<u64>()).prop_map(|(key, revision, value, lease)| {
                let lease = value.is_some().then_some(lease).filter(|lease| *lease > 0);
                Change::Version(key, Version { revision, value: value.map(Into::into), lease })
            }),
            (any::<u64>(), prop::option::of(any::<(u64, u64)>())).prop_map(|(id, lease)| {
                Change::Lease(id, lease.map(|(deadline, ttl)| Lease { deadline, ttl }))
            }),
            (".{0,9}", any::<u64>()).prop_map(|(key, revision)| Change::Gone(key, revision)),
            any::<u64>().prop_map(Change::Compact),
        ]
    }

    proptest! {
        #[test]
        fn notes_round_trip(
            batch in prop::collection::vec((any::<u64>(), prop::collection::vec(changes(), 0..4)), 0..4),
        ) {
            let mut bytes = Vec::new();
            batch.iter().for_each(|(revision, changes)| write(&mut bytes, *revision, changes));
            prop_assert_eq!(format!("{:?}", read(&bytes).unwrap()), format!("{batch:?}"));
        }

        /// Attack: a log written by another program.
        #[test]
        fn arbitrary_notes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = read(&bytes);
        }
    }
}
