//! Assignment of new flows to servers: Maglev's table (Eisenbud et al., "Maglev: a fast and reliable software network
//! load balancer", NSDI 2016, 3.4). Servers claim table entries in turn, each in its own order; adding or removing a
//! server changes few entries of the others.
use super::table::fold;
use ringway_click::prelude::*;

/// Number of table entries; a prime, so that every step visits all of them.
pub(super) const PLACES: usize = 65_537;
const NOBODY: u16 = u16::MAX;

/// A server's claim to table entries.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    /// Determines the order in which the server claims entries, independent of other servers.
    pub(super) name: u64,
    /// Entries claimed in each round.
    pub(super) weight: u8,
    /// The value stored in claimed entries.
    pub(super) server: u16,
}

/// Builds the table; empty if there are no claims.
pub(super) fn places(claims: &[Claim]) -> Vec<u16> {
    let claims: Vec<&Claim> = claims.iter().filter(|claim| claim.weight > 0).collect();
    if claims.is_empty() {
        return Vec::new();
    }
    let mut places = vec![NOBODY; PLACES];
    let mut orders: Vec<(usize, usize)> = claims.iter().map(|claim| order(claim.name)).collect();
    let mut left = PLACES;
    loop {
        for (claim, (at, step)) in claims.iter().zip(&mut orders) {
            for _ in 0..claim.weight {
                while places[*at] != NOBODY {
                    *at = (*at + *step) % PLACES;
                }
                places[*at] = claim.server;
                left -= 1;
                if left == 0 {
                    return places;
                }
            }
        }
    }
}

/// Start and step of a server's permutation.
fn order(name: u64) -> (usize, usize) {
    let first = fold(name ^ 0x9e37_79b9_7f4a_7c15, 0xd6e8_feb8_6659_fd93);
    let second = fold(first ^ name, 0xa076_1d64_78bd_642f);
    ((first % PLACES as u64) as usize, (second % (PLACES as u64 - 1)) as usize + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims(servers: impl IntoIterator<Item = u16>) -> Vec<Claim> {
        servers.into_iter().map(|server| Claim { name: server.into(), weight: 1, server }).collect()
    }

    fn share(places: &[u16], server: u16) -> usize {
        places.iter().filter(|place| **place == server).count()
    }

    #[test]
    fn shares_follow_the_weights() {
        let mut claims = claims(0..10);
        claims[3].weight = 2;
        claims[4].weight = 0;
        let places = places(&claims);
        assert_eq!((places.len(), share(&places, 4)), (PLACES, 0));
        for server in [0, 1, 2, 5, 6, 7, 8, 9] {
            assert!((6400..6700).contains(&share(&places, server)), "{}", share(&places, server));
        }
        assert!((13_000..13_300).contains(&share(&places, 3)));
        assert!(super::places(&[]).is_empty());
    }

    #[test]
    fn removing_a_server_moves_few_other_entries() {
        let (before, after) =
            (places(&claims(0..20)), places(&claims((0..20).filter(|server| *server != 7))));
        let moved = before.iter().zip(&after).filter(|(old, new)| **old != 7 && old != new).count();
        assert!(moved * 20 < PLACES, "{moved}");
    }
}
