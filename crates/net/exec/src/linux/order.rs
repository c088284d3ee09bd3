//! What the first process of the guest is to do: a file that it finds in its file system.

use super::message::{Messages, message};
use crate::Limit;
use ringway_netstack::Cidr;
use std::ffi::OsString;
use std::net::IpAddr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

/// A program in the guest, and the guest's network.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Order {
    /// The program and its arguments.
    pub words: Vec<OsString>,
    /// Its environment, each variable as `NAME=value`.
    pub variables: Vec<OsString>,
    pub folder: PathBuf,
    pub user: u32,
    pub group: u32,
    pub groups: Vec<u32>,
    pub umask: u32,
    pub limits: Vec<Limit>,
    /// The machine's name.
    pub machine: OsString,
    /// The guest's name of its interface: that of its driver.
    pub interface: String,
    /// Kernel modules of the driver.
    pub modules: Vec<String>,
    pub addresses: Vec<Cidr>,
    pub gateways: Vec<IpAddr>,
    pub mac: Option<[u8; 6]>,
    pub mtu: u16,
    /// Settings of the network: names as of sysctl, and values.
    pub sysctls: Vec<(String, String)>,
    /// Files with other contents than the host's.
    pub files: Vec<(PathBuf, Vec<u8>)>,
    /// Folders of the host that may be written.
    pub writable: Vec<PathBuf>,
    /// Which of the standard descriptors are a terminal.
    pub terminal: [bool; 3],
    /// Its rows and columns.
    pub size: (u16, u16),
}

const WORD: u8 = 1;
const VARIABLE: u8 = 2;
const FOLDER: u8 = 3;
const IDENTITY: u8 = 4;
const GROUP: u8 = 5;
const LIMIT: u8 = 6;
const MACHINE: u8 = 7;
const INTERFACE: u8 = 8;
const MODULE: u8 = 9;
const ADDRESS: u8 = 10;
const GATEWAY: u8 = 11;
const MAC: u8 = 12;
const SYSCTL: u8 = 13;
const FILE: u8 = 14;
const WRITABLE: u8 = 15;
const TERMINAL: u8 = 16;

/// Two texts, of which the first has no zero byte.
fn pair(one: &[u8], two: &[u8]) -> Vec<u8> {
    [one, &[0], two].concat()
}

fn parted(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = bytes.iter().position(|byte| *byte == 0)?;
    Some((bytes.get(..at)?, bytes.get(at + 1..)?))
}

fn text(bytes: &[u8]) -> Option<String> {
    String::from_utf8(bytes.to_vec()).ok()
}

fn os(bytes: &[u8]) -> OsString {
    OsString::from_vec(bytes.to_vec())
}

fn numbers<const N: usize>(bytes: &[u8]) -> Option<[u32; N]> {
    let (words, _) = bytes.as_chunks();
    let all: Vec<u32> = words.iter().map(|word| u32::from_le_bytes(*word)).collect();
    all.try_into().ok()
}

fn bytes_of(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

impl Order {
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut add = |kind, bytes: &[u8]| out.extend(message(kind, bytes));
        self.words.iter().for_each(|word| add(WORD, word.as_bytes()));
        self.variables.iter().for_each(|variable| add(VARIABLE, variable.as_bytes()));
        add(FOLDER, self.folder.as_os_str().as_bytes());
        add(IDENTITY, &bytes_of(&[self.user, self.group, self.umask, self.mtu.into()]));
        self.groups.iter().for_each(|group| add(GROUP, &group.to_le_bytes()));
        self.limits.iter().for_each(|limit| add(LIMIT, limit.to_string().as_bytes()));
        add(MACHINE, self.machine.as_bytes());
        add(INTERFACE, self.interface.as_bytes());
        self.modules.iter().for_each(|module| add(MODULE, module.as_bytes()));
        for Cidr { address, prefix } in &self.addresses {
            add(ADDRESS, format!("{address}/{prefix}").as_bytes());
        }
        self.gateways.iter().for_each(|gateway| add(GATEWAY, gateway.to_string().as_bytes()));
        self.mac.iter().for_each(|mac| add(MAC, mac));
        self.sysctls.iter().for_each(|(name, value)| add(SYSCTL, &pair(name.as_bytes(), value.as_bytes())));
        self.files.iter().for_each(|(path, content)| add(FILE, &pair(path.as_os_str().as_bytes(), content)));
        self.writable.iter().for_each(|path| add(WRITABLE, path.as_os_str().as_bytes()));
        let [input, output, errors] = self.terminal.map(u32::from);
        add(TERMINAL, &bytes_of(&[input, output, errors, self.size.0.into(), self.size.1.into()]));
        out
    }

    /// `None`: these bytes are no order.
    pub fn of(bytes: &[u8]) -> Option<Order> {
        let (mut order, mut messages) = (Order::default(), Messages::default());
        messages.extend(bytes);
        while let Some((kind, bytes)) = messages.next().ok()? {
            order.read(kind, &bytes)?;
        }
        Some(order)
    }

    fn read(&mut self, kind: u8, bytes: &[u8]) -> Option<()> {
        match kind {
            WORD => self.words.push(os(bytes)),
            VARIABLE => self.variables.push(os(bytes)),
            FOLDER => self.folder = os(bytes).into(),
            IDENTITY => {
                let [user, group, umask, mtu] = numbers(bytes)?;
                (self.user, self.group, self.umask, self.mtu) = (user, group, umask, mtu as u16);
            }
            GROUP => self.groups.push(numbers::<1>(bytes)?[0]),
            LIMIT => self.limits.push(Limit::parse(&text(bytes)?).ok()?),
            MACHINE => self.machine = os(bytes),
            INTERFACE => self.interface = text(bytes)?,
            MODULE => self.modules.push(text(bytes)?),
            ADDRESS => self.addresses.push(text(bytes)?.parse().ok()?),
            GATEWAY => self.gateways.push(text(bytes)?.parse().ok()?),
            MAC => self.mac = Some(bytes.try_into().ok()?),
            SYSCTL => {
                let (name, value) = parted(bytes)?;
                self.sysctls.push((text(name)?, text(value)?));
            }
            FILE => {
                let (path, content) = parted(bytes)?;
                self.files.push((os(path).into(), content.to_vec()));
            }
            WRITABLE => self.writable.push(os(bytes).into()),
            TERMINAL => {
                let [input, output, errors, rows, columns] = numbers(bytes)?;
                self.terminal = [input, output, errors].map(|is_one| is_one != 0);
                self.size = (rows as u16, columns as u16);
            }
            _ => return None,
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_arrives_as_it_was_given() {
        let order = Order {
            words: ["sh", "-c", "echo \"$0\"\n"].map(OsString::from).to_vec(),
            variables: vec![OsString::from_vec(b"A=\xff".to_vec())],
            folder: "/root".into(),
            user: 1000,
            group: 100,
            groups: vec![4, 27],
            umask: 0o22,
            limits: vec![Limit::Files(64), Limit::Memory(1 << 30), Limit::Cpu(9)],
            machine: "host".into(),
            interface: "vec0".into(),
            modules: vec!["virtio_net".into()],
            addresses: ["10.0.0.1/24", "fd00::1/64"].map(|text| text.parse().unwrap()).to_vec(),
            gateways: vec!["10.0.0.9".parse().unwrap()],
            mac: Some([2, 1, 2, 3, 4, 5]),
            mtu: 9000,
            sysctls: vec![("net.ipv4.tcp_sack".into(), "0".into())],
            files: vec![("/etc/hosts".into(), b"a\0b".to_vec())],
            writable: vec!["/srv/a b".into()],
            terminal: [true, false, true],
            size: (24, 80),
        };
        assert_eq!(Order::of(&order.to_bytes()), Some(order));
        assert_eq!(Order::of(&message(99, b"")), None);
        assert_eq!(Order::of(&message(MAC, b"short")), None);
    }
}
