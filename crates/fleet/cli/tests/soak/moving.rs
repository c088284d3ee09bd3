//! A guest of QEMU that moves between the fabric of the soak and another one while a program's requests are answered.

use super::ports::{Flow, Survives};
use super::{FRAME, Program};
use crate::lab::{Lab, until};
use ringway_linux_guests::image;
use std::net::UdpSocket;

/// The guest's address; a station of its network, to which it answers.
const GUEST: [u8; 6] = [2, 0, 0, 0, 10, 1];
const STATION: [u8; 6] = [2, 0, 0, 0, 10, 9];
const ADDRESSES: [[u8; 4]; 2] = [[10, 78, 0, 1], [10, 78, 0, 9]];
/// The port of the program, and that of the guest.
const ASKS: &str = "asks";
const MOVES: &str = "moves";

/// An ARP request (RFC 826) for the guest's address, with the number in the sender's.
pub(super) fn request(number: u64) -> [u8; FRAME] {
    let mut frame = [0; FRAME];
    frame[..6].copy_from_slice(&GUEST);
    frame[6..12].copy_from_slice(&STATION);
    frame[12..22].copy_from_slice(&[8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
    frame[22..25].copy_from_slice(&[2, 0, 10]);
    frame[25..28].copy_from_slice(&number.to_be_bytes()[5..]);
    frame[28..32].copy_from_slice(&ADDRESSES[1]);
    frame[38..42].copy_from_slice(&ADDRESSES[0]);
    frame
}

/// The number of the request to which a frame is the reply.
pub(super) fn answered(frame: &[u8; FRAME]) -> Option<u64> {
    let is_reply = frame[12..14] == [8, 6] && frame[20..22] == [0, 2] && frame[32..35] == [2, 0, 10];
    let number = frame[35..38].iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
    is_reply.then_some(number)
}

/// The other fabric.
pub(super) struct Elsewhere {
    lab: Lab,
    /// The UDP ports of the tunnel: here, and there.
    tunnel: [u16; 2],
    /// Whether the guest is there.
    is_there: bool,
}

impl Elsewhere {
    /// `None` if this machine has no QEMU.
    pub fn new(name: &str) -> Option<Elsewhere> {
        if image::program("qemu-system-x86_64").is_none() || image::qemu(&[]).is_err() {
            eprintln!("without a guest that moves: there is no QEMU, or no kernel for it");
            return None;
        }
        // Both are free now.
        let sockets = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        let [here, there] = sockets.each_ref().map(|socket| socket.local_addr().unwrap().port());
        drop(sockets);
        let text = description([there, here]) + "start = false\n";
        let lab = Lab::new(&format!("{name}-elsewhere"), &text);
        lab.ok(&["up", "lab.toml", "--detach"]);
        Some(Elsewhere { lab, tunnel: [here, there], is_there: false })
    }

    /// The program's path to the guest, wherever that is.
    pub fn flow(&self) -> Flow {
        let port =
            format!("[port.{ASKS}]\nkind = \"ring\"\nsocket = \"{ASKS}.sock\"\nswitch = \"{MOVES}\"\n");
        Flow {
            ends: vec![Program { asks: true, ..Program::new(ASKS, 0, 0) }],
            ports: vec![ASKS.into(), MOVES.into()],
            text: port + &description(self.tunnel),
            is_exact: false,
            guest: None,
            has_function: false,
            survives: Survives::Every,
        }
    }

    /// Moves the guest to where it is not.
    pub fn migrate(&mut self, here: &Lab) {
        let (from, to) = if self.is_there { (&self.lab, here) } else { (here, &self.lab) };
        let socket = to.socket("api.sock").display().to_string();
        from.ok(&["guest", "migrate", MOVES, "--to", &socket]);
        let state = |lab: &Lab| lab.json(&["guest", "list"])[0]["state"].as_str().unwrap().to_string();
        until("it runs there", || state(to) == "running");
        until("it has ended here", || state(from) == "stopped");
        self.is_there = !self.is_there;
    }
}

/// The guest, its port and its switch's tunnel, of the fabric with the first end of it.
fn description([own, other]: [u16; 2]) -> String {
    format!(
        "[switch.{MOVES}]\n[port.{MOVES}]\nkind = \"vhost-user\"\nsocket = \"{MOVES}.sock\"\n\
         switch = \"{MOVES}\"\nmac = \"02:00:00:00:0a:01\"\n\
         [port.tunnel]\nkind = \"wire\"\nencapsulation = \"vxlan\"\nvni = 43\nlocal = \"127.0.0.1\"\n\
         local-port = {own}\npeer = \"127.0.0.1\"\nport = {other}\nswitch = \"{MOVES}\"\n\
         [guest.{MOVES}]\nkind = \"qemu\"\nport = \"{MOVES}\"\nmemory = \"128MB\"\n\
         address = \"10.78.0.1/24\"\n"
    )
}
