//! A server's arguments with names.
use super::lcp::Methods;
use super::radius::Server;
use super::session::Settings;
use core::net::Ipv4Addr;
use ringway_click::arg::{Bandwidth, Ipv4List, Nanoseconds, Prefix, Text};
use ringway_click::prelude::*;

/// Most bytes of a name.
const LONGEST: usize = 64;

/// Arguments as they are read.
pub(super) struct Given {
    pub(super) settings: Settings,
    pub(super) pool: Prefix,
    pub(super) users: Vec<String>,
    pub(super) rate: Bandwidth,
    pub(super) interim: Nanoseconds,
    /// The server to ask, if there is one.
    pub(super) server: Option<Server>,
    auth: Text,
}

impl Default for Given {
    fn default() -> Self {
        Self {
            settings: Settings::default(),
            pool: Prefix { address: Ipv4Addr::UNSPECIFIED, mask: Ipv4Addr::BROADCAST },
            users: Vec::new(),
            rate: Bandwidth(0),
            interim: Nanoseconds(0),
            server: None,
            auth: Text("chap pap".into()),
        }
    }
}

impl Given {
    pub(super) fn read(&mut self, args: &mut Args) {
        let settings = &mut self.settings;
        let (mut dns, mut echo) = (Ipv4List::default(), Nanoseconds(settings.echo));
        let mut rechallenge = Nanoseconds(settings.rechallenge);
        let mut server = Server::default();
        args.read("NAME", &mut settings.name);
        args.read("IPV6", &mut settings.ipv6);
        args.read("AUTH", &mut self.auth);
        args.read("DNS", &mut dns);
        args.read("RATE", &mut self.rate);
        args.read("ECHO", &mut echo);
        args.read("RECHALLENGE", &mut rechallenge);
        args.read("INTERIM", &mut self.interim);
        args.read_all("USER", &mut self.users);
        args.read("RADIUS", &mut server.address);
        args.read("SRC", &mut server.own);
        args.read("SECRET", &mut server.secret);
        args.read("AUTHPORT", &mut server.access_port);
        args.read("ACCTPORT", &mut server.accounting_port);
        args.read("LAX", &mut server.lax);
        (settings.echo, settings.rechallenge) = (echo.0, rechallenge.0);
        for (place, address) in settings.dns.iter_mut().zip(dns.0) {
            *place = address;
        }
        self.server = Some(server).filter(|server| !server.address.is_unspecified());
    }

    /// Checks them together with the name of the service.
    pub(super) fn check(&mut self, service: &str) -> Result<(), &'static str> {
        self.settings.methods = methods(&self.auth.0).ok_or("AUTH must be chap, pap or both")?;
        if self.settings.name.is_empty() || self.settings.name.len().max(service.len()) > LONGEST {
            return Err("NAME and SERVICE may have 64 bytes, and NAME must have one");
        }
        let times = [self.settings.echo, self.settings.rechallenge, self.interim.0];
        // Attack: a configuration that does nothing but challenge.
        if times.iter().any(|time| (1..SECOND).contains(time)) {
            return Err("ECHO, RECHALLENGE and INTERIM must be 0 or at least 1s");
        }
        let lacks = |server: &Server| server.secret.is_empty() || server.own.is_unspecified();
        if self.server.as_ref().is_some_and(lacks) {
            return Err("RADIUS needs SECRET and SRC");
        }
        Ok(())
    }
}

/// Reads the permitted authentication protocols.
fn methods(text: &str) -> Option<Methods> {
    let mut methods = Methods { pap: false, chap: false };
    for word in text.split_ascii_whitespace() {
        match word {
            "pap" => methods.pap = true,
            "chap" => methods.chap = true,
            _ => return None,
        }
    }
    (methods.pap || methods.chap).then_some(methods)
}
