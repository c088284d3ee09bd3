//! Cookies of Fast Open (RFC 7413): those that this stack gives to clients, and those that servers gave to it.

use super::{Socket, Stack};
use crate::connection::options::Cookie;
use crate::connection::{Connection, Context, Segment};
use crate::demux::address_words;
use alloc::collections::BTreeMap;
use core::net::IpAddr;

/// Servers whose cookies are kept. Attack: a program that is made to connect to many servers.
const SERVERS: usize = 1024;
/// Bits of `tcp_fastopen`.
const CLIENT: u32 = 1;
const SERVER: u32 = 2;

/// Cookies of servers, and the segment sizes that they announced.
#[derive(Debug, Default)]
pub(super) struct Cookies(BTreeMap<IpAddr, (Cookie, u64)>);

impl Stack {
    /// The cookie for a client. Attack: a client that forges its address can't know it (RFC 7413, 4.1.2).
    fn fast_open_cookie(&self, client: IpAddr) -> Cookie {
        let [a, b] = address_words(client);
        self.secret.hash(&[a, b, 8]).to_be_bytes().into_iter().collect()
    }

    /// A SYN's cookie: a valid one lets its data pass, any other is answered with a valid one.
    pub(super) fn open_fast(&mut self, connection: &mut Connection, segment: &Segment<'_>) {
        let Some(cookie) = segment.options.fast_open.as_ref() else { return };
        if self.settings.tcp_fastopen & SERVER == 0 {
            return;
        }
        let valid = self.fast_open_cookie(connection.tuple.remote.ip());
        if *cookie != valid {
            connection.fast_open.cookie = Some(valid);
            return;
        }
        let mut cx = Context { now: self.now, settings: &self.settings, challenges: &mut self.challenges };
        connection.accept_fast_open(&mut cx, segment);
    }

    /// Gives a new connection its server's cookie, or lets it request one.
    pub(super) fn request_fast_open(&mut self, index: u32) {
        let permitted = self.settings.tcp_fastopen & CLIENT != 0;
        if let Some(Socket::Tcp(connection)) = &mut self.slots[index as usize].socket
            && permitted
            && connection.may_open_fast()
        {
            let (cookie, mss) =
                self.cookies.0.get(&connection.tuple.remote.ip()).cloned().unwrap_or_default();
            (connection.fast_open.cookie, connection.fast_open.mss) = (Some(cookie), mss);
        }
    }

    /// Keeps the cookie that a server gave.
    pub(super) fn remember_fast_open(&mut self, index: u32) {
        let Some(Socket::Tcp(connection)) = &mut self.slots[index as usize].socket else { return };
        let Some(cookie) = connection.fast_open.given.take() else { return };
        let (server, mss) = (connection.tuple.remote.ip(), connection.peer_mss());
        if self.cookies.0.len() >= SERVERS && !self.cookies.0.contains_key(&server) {
            self.cookies.0.pop_first();
        }
        self.cookies.0.insert(server, (cookie, mss));
    }
}
