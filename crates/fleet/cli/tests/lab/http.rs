//! Requests of a fabric's API, sent as bytes: they need no process, and the client may go away at any point.

use super::Lab;
use serde_json::Value;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

/// Sends a request; the answer comes by the connection.
pub fn ask(lab: &Lab, method: &str, path: &str, body: &Value) -> UnixStream {
    let mut stream = UnixStream::connect(lab.socket("api.sock")).unwrap();
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nconnection: close\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
    stream
}

/// Which fabric answers, as it says.
pub fn identity(lab: &Lab) -> String {
    let mut text = String::new();
    ask(lab, "GET", "/v1/ports", &Value::Null).read_to_string(&mut text).unwrap();
    let fabric = text.lines().find_map(|line| line.strip_prefix("ringway-fabric: "));
    fabric.unwrap_or_else(|| panic!("{text}")).into()
}

/// Status and body of an answer.
pub fn answer(mut stream: UnixStream) -> (u16, String) {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.into())
}
