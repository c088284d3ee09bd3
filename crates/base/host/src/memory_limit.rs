//! Limits of mapped peer memory.

use crate::error::HostError;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Number of ports with a guaranteed share.
const PORTS: u64 = 4096;
/// Mappings guaranteed to each port: those of one memory table.
const OWN_MAPPINGS: u64 = 8;
/// Bytes guaranteed to each port.
const OWN_BYTES: u64 = 8 << 30;
/// Mappings shared by all ports.
const POOL_MAPPINGS: u64 = 16_384;
const POOL_BYTES: u64 = 48 << 40;
/// Largest share of the pool for one port in bytes: two guest memories of the largest size, one replacing the
/// other.
const MOST_BYTES: u64 = 16 << 40;
/// Maximum number of mappings.
pub(crate) const MAPPINGS: usize = (PORTS * OWN_MAPPINGS + POOL_MAPPINGS) as usize;

static POOL: Amount = Amount { mappings: AtomicU64::new(0), bytes: AtomicU64::new(0) };

#[derive(Debug, Default)]
struct Amount {
    mappings: AtomicU64,
    bytes: AtomicU64,
}

fn add(to: &AtomicU64, count: u64, most: u64) -> bool {
    let mut now = to.load(Relaxed);
    loop {
        let Some(sum) = now.checked_add(count).filter(|&sum| sum <= most) else { return false };
        match to.compare_exchange_weak(now, sum, Relaxed, Relaxed) {
            Ok(_) => return true,
            Err(seen) => now = seen,
        }
    }
}

/// The memory of its peer that a port has mapped.
///
/// Attack: peers with the largest number of regions, or with sparse files, use up all mapping slots and
/// addresses. Each port is guaranteed a small share, and only its needs beyond that come from a common pool.
#[derive(Clone, Debug)]
pub struct Account(Arc<Port>);

impl Default for Account {
    fn default() -> Account {
        Account::limited(MOST_BYTES)
    }
}

#[derive(Debug)]
struct Port {
    own: Amount,
    /// Bytes taken from the pool, and their limit.
    pooled: AtomicU64,
    most: u64,
}

impl Account {
    /// An account with a limit of bytes from the pool.
    pub fn limited(most: u64) -> Account {
        let (own, pooled) = (Amount::default(), AtomicU64::new(0));
        Account(Arc::new(Port { own, pooled, most: most.min(MOST_BYTES) }))
    }

    /// Counts a mapping of this size until the result is dropped.
    pub(crate) fn take(&self, bytes: u64) -> Result<Share, HostError> {
        let mut share = Share { account: self.clone(), mapping: From::Nobody, bytes: (From::Nobody, bytes) };
        let Port { own, pooled, most } = &*self.0;
        share.mapping = From::take(&own.mappings, OWN_MAPPINGS, &POOL.mappings, POOL_MAPPINGS, 1)
            .ok_or(HostError::TooManyMappings)?;
        let taken = From::take(&own.bytes, OWN_BYTES, &POOL.bytes, POOL_BYTES, bytes);
        share.bytes.0 = taken.ok_or(HostError::TooMuchMapped { len: bytes })?;
        // Attack: sparse files mapped concurrently; the limit must hold at every moment.
        if matches!(share.bytes.0, From::Pool) && pooled.fetch_add(bytes, Relaxed) + bytes > *most {
            return Err(HostError::TooMuchMapped { len: bytes });
        }
        Ok(share)
    }
}

/// Where a share comes from.
#[derive(Clone, Copy, Debug)]
enum From {
    Nobody,
    Own,
    Pool,
}

impl From {
    fn take(own: &AtomicU64, most: u64, pool: &AtomicU64, pool_most: u64, count: u64) -> Option<From> {
        if add(own, count, most) {
            return Some(From::Own);
        }
        add(pool, count, pool_most).then_some(From::Pool)
    }

    fn give_back(self, own: &AtomicU64, pool: &AtomicU64, count: u64) {
        match self {
            From::Nobody => {}
            From::Own => drop(own.fetch_sub(count, Relaxed)),
            From::Pool => drop(pool.fetch_sub(count, Relaxed)),
        }
    }
}

/// A mapping that is counted.
#[derive(Debug)]
pub(crate) struct Share {
    account: Account,
    mapping: From,
    bytes: (From, u64),
}

impl Share {
    /// A share for our own memory, whose size no peer controls.
    pub fn nothing() -> Share {
        Share { account: Account::default(), mapping: From::Nobody, bytes: (From::Nobody, 0) }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let Port { own, pooled, .. } = &*self.account.0;
        self.mapping.give_back(&own.mappings, &POOL.mappings, 1);
        let (from, bytes) = self.bytes;
        from.give_back(&own.bytes, &POOL.bytes, bytes);
        if matches!(from, From::Pool) {
            pooled.fetch_sub(bytes, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ports_guaranteed_share_is_always_available() {
        let [one, two, three, greedy] = [(); 4].map(|()| Account::default());
        let mut shares = Vec::new();
        for (account, count) in [(&one, 16), (&two, 16), (&three, 16), (&greedy, 0)] {
            let before = shares.len();
            while let Ok(share) = account.take(1 << 40) {
                shares.push(share);
            }
            assert_eq!(shares.len() - before, count, "what one port can have of the pool");
            assert!(matches!(account.take(1 << 40), Err(HostError::TooMuchMapped { .. })));
        }
        while let Ok(share) = greedy.take(1) {
            shares.push(share);
        }
        assert!(matches!(greedy.take(1), Err(HostError::TooManyMappings)));
        let modest = Account::default();
        let eight: Vec<Share> = (0..OWN_MAPPINGS).map(|_| modest.take(1 << 30).unwrap()).collect();
        assert!(modest.take(1).is_err());
        drop(eight);
        drop(modest.take(OWN_BYTES).unwrap());
        drop(shares);
        drop(modest.take(1 << 40).unwrap());
        let limited = Account::limited(4 << 30);
        let _own = limited.take(OWN_BYTES).unwrap();
        let _pooled = limited.take(4 << 30).unwrap();
        assert!(matches!(limited.take(1), Err(HostError::TooMuchMapped { .. })));
    }
}
