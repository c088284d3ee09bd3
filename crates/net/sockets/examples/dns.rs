//! A DNS client on a ring port: `dns PATH ADDRESS/PREFIX SERVER NAME` prints the IPv4 addresses of a name.

use ringway_sockets::{Config, Network, RingDevice, UdpSocket};
use std::hash::{BuildHasher, RandomState};
use std::io::{Error, ErrorKind, Result};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// Type A and class IN (RFC 1035, 3.2).
const A_IN: [u8; 4] = [0, 1, 0, 1];

#[allow(dead_code, reason = "the test includes this file")]
fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, address, server, name] = &arguments[..] else {
        return Err("usage: dns PATH ADDRESS/PREFIX SERVER NAME".into());
    };
    let network = Network::new(RingDevice::connect(path.as_ref())?, Config::new(address.parse()?))?;
    for address in resolve(&network, server.parse()?, name)? {
        println!("{address}");
    }
    Ok(())
}

/// The IPv4 addresses of `name`; asks up to three times.
pub fn resolve(network: &Network, server: IpAddr, name: &str) -> Result<Vec<Ipv4Addr>> {
    let socket = UdpSocket::bind(network, "0.0.0.0:0")?;
    socket.connect((server, 53))?;
    socket.set_read_timeout(Some(Duration::from_secs(2)))?;
    // A number that others can't guess, so that they can't answer.
    let query = query(RandomState::new().hash_one(name) as u16, name)?;
    let mut answer = [0; 512];
    for _ in 0..3 {
        socket.send(&query)?;
        match socket.recv(&mut answer) {
            Ok(len) => {
                let wrong = || Error::new(ErrorKind::InvalidData, "no answer to the question");
                return addresses(&query, &answer[..len]).ok_or_else(wrong);
            }
            Err(error) if error.kind() == ErrorKind::TimedOut => {}
            Err(error) => return Err(error),
        }
    }
    Err(ErrorKind::TimedOut.into())
}

/// A query for one name, with recursion (RFC 1035, 4.1).
fn query(id: u16, name: &str) -> Result<Vec<u8>> {
    let mut query = [&id.to_be_bytes()[..], &[1, 0, 0, 1, 0, 0, 0, 0, 0, 0]].concat();
    for label in name.trim_end_matches('.').split('.') {
        if label.is_empty() || label.len() > 63 {
            return Err(Error::new(ErrorKind::InvalidInput, "labels of a name have 1 to 63 bytes"));
        }
        query.push(label.len() as u8);
        query.extend_from_slice(label.as_bytes());
    }
    query.push(0);
    query.extend_from_slice(&A_IN);
    Ok(query)
}

/// The addresses in an answer to a query; `None` if it is not one.
fn addresses(query: &[u8], answer: &[u8]) -> Option<Vec<Ipv4Addr>> {
    // An answer has the query's number and question, is a response, and reports no error.
    let same = answer.get(..2)? == &query[..2] && answer.get(12..query.len())? == &query[12..];
    if !same || answer[2] & 0x80 == 0 || answer[3] & 0x0f != 0 {
        return None;
    }
    let (mut rest, mut found) = (&answer[query.len()..], Vec::new());
    for _ in 0..u16::from_be_bytes([answer[6], answer[7]]) {
        rest = after_name(rest)?;
        let (header, data) = rest.split_at_checked(10)?;
        let (data, next) = data.split_at_checked(u16::from_be_bytes([header[8], header[9]]).into())?;
        if header[..4] == A_IN {
            found.push(Ipv4Addr::from(<[u8; 4]>::try_from(data).ok()?));
        }
        rest = next;
    }
    Some(found)
}

/// What follows a name: labels up to an empty one or a pointer (RFC 1035, 4.1.4).
fn after_name(mut rest: &[u8]) -> Option<&[u8]> {
    loop {
        match *rest.first()? {
            0 => return rest.get(1..),
            len if len >= 0xc0 => return rest.get(2..),
            len => rest = rest.get(1 + usize::from(len)..)?,
        }
    }
}
