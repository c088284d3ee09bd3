//! Values of the command line's arguments. Errors say what to write; clap shows the text before them.

use ringway_exec::Cidr;
use ringway_spec::{addresses, names};
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

/// Reads the name of a part of a fabric.
pub fn name(text: &str) -> Result<String, String> {
    names::name(text).map(String::from).map_err(|(_, fix)| fix)
}

/// Reads an address with a port.
pub fn endpoint(text: &str) -> Result<SocketAddr, String> {
    addresses::endpoint(text).map_err(|(_, fix)| fix)
}

/// Reads the address of an interface with the length of its prefix.
pub fn interface_address(text: &str) -> Result<Cidr, String> {
    let net = addresses::interface_address(text).map_err(both)?;
    Ok(Cidr::new(net.addr(), net.prefix_len()))
}

/// Reads the address of a gateway.
pub fn gateway(text: &str) -> Result<IpAddr, String> {
    addresses::gateway(text, None).map_err(both)
}

/// Reads the address of a server.
pub fn server(text: &str) -> Result<IpAddr, String> {
    addresses::server(text).map_err(both)
}

/// What is wrong and what to do.
fn both((what, fix): (String, String)) -> String {
    format!("{what}; {fix}")
}

/// Reads a whole number.
pub fn whole<N: FromStr>(text: &str) -> Result<N, String> {
    text.parse().map_err(|_| match text.bytes().all(|byte| byte.is_ascii_digit()) && !text.is_empty() {
        true => "the number is too large".into(),
        false => "not a whole number".into(),
    })
}

/// Reads the seconds between two samples.
pub fn interval(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_string())?;
    if (0.01..=3600.0).contains(&seconds) { Ok(seconds) } else { Err("use a value from 0.01 to 3600".into()) }
}

/// Reads the seconds to count something.
pub fn sample(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_string())?;
    if (0.0..=60.0).contains(&seconds) { Ok(seconds) } else { Err("use a value from 0 to 60".into()) }
}
