//! Cookies of Fast Open (RFC 7413): those that this stack gives to clients, and those that servers gave to it.

use super::{Socket, SocketError, SocketId, Stack};
use crate::connection::options::Cookie;
use crate::connection::{Connection, Segment, context};
use crate::demux::address_words;
use crate::hash::Secret;
use alloc::collections::BTreeMap;
use core::net::IpAddr;

/// Servers whose cookies are kept. Attack: a program that is made to connect to many servers.
const SERVERS: usize = 1024;
/// Bits of `tcp_fastopen`.
const CLIENT: u32 = 1;
const SERVER: u32 = 2;
const CLIENT_NO_COOKIE: u32 = 4;
const SERVER_COOKIE_NOT_REQUIRED: u32 = 0x200;
const ALL_LISTENERS: u32 = 0x400;

/// What is known about a server.
#[derive(Clone, Debug, Default)]
struct Server {
    cookie: Cookie,
    is_experimental: bool,
    /// The segment size that it announced.
    mss: u64,
    /// Options in which requests were ignored: 1 the standard one, 2 both.
    ignored: u8,
}

/// Servers that were connected to with Fast Open.
#[derive(Debug, Default)]
pub(super) struct Cookies(BTreeMap<IpAddr, Server>);

impl Stack {
    /// The cookie for a client, the same that Linux computes from this key, or from the stack's. Attack: a client that
    /// forges its address can't know it (RFC 7413, 4.1.2).
    fn fast_open_cookie(&self, key: Option<[u64; 2]>, client: IpAddr, own: IpAddr) -> Cookie {
        let own_key = || [self.secret.hash(&[8]), self.secret.hash(&[9])];
        let secret = Secret(key.or(self.settings.tcp_fastopen_key).unwrap_or_else(own_key));
        let hash = match (client, own) {
            (IpAddr::V4(client), IpAddr::V4(own)) => {
                let [a, b] = [client, own].map(|v4| u64::from(u32::from_le_bytes(v4.octets())));
                secret.hash(&[a | b << 32])
            }
            _ => {
                let [[a, b], [c, d]] = [client, own].map(address_words);
                secret.hash(&[a, b, c, d].map(u64::swap_bytes))
            }
        };
        hash.to_le_bytes().into_iter().collect()
    }

    /// Lets a listener accept Fast Open (`TCP_FASTOPEN`).
    ///
    /// # Errors
    /// If the socket is not a listener.
    pub fn set_fast_open(&mut self, listener: SocketId, accepts: bool) -> Result<(), SocketError> {
        self.local_address(listener)?;
        self.listener_mut(listener.index).ok_or(SocketError::BadSocket)?.fast_open = accepts;
        Ok(())
    }

    /// Gives a listener a key of its own for cookies (`TCP_FASTOPEN_KEY`), for example the one that other hosts with
    /// its address have; `None`: the stack's.
    ///
    /// # Errors
    /// If the socket is not a listener.
    pub fn set_fast_open_key(
        &mut self,
        listener: SocketId,
        key: Option<[u64; 2]>,
    ) -> Result<(), SocketError> {
        self.local_address(listener)?;
        self.listener_mut(listener.index).ok_or(SocketError::BadSocket)?.fast_open_key = key;
        Ok(())
    }

    /// A SYN's cookie: a valid one lets its data pass, any other is answered with a valid one.
    pub(super) fn open_fast(&mut self, listener: u32, connection: &mut Connection, segment: &Segment<'_>) {
        let bits = self.settings.tcp_fastopen;
        let Some(listener) = self.listener_mut(listener) else { return };
        let (accepts, key) = (listener.fast_open, listener.fast_open_key);
        if bits & SERVER == 0 || !(accepts || bits & ALL_LISTENERS != 0) {
            return;
        }
        let open = bits & SERVER_COOKIE_NOT_REQUIRED != 0 && !segment.payload.is_empty();
        let valid = self.fast_open_cookie(key, connection.tuple.remote.ip(), connection.tuple.local.ip());
        match &segment.options.fast_open {
            _ if open => {}
            None => return,
            Some(cookie) if *cookie == valid => {}
            Some(_) => {
                connection.fast_open.cookie = Some(valid);
                connection.fast_open.is_experimental = segment.options.fast_open_experimental;
                return;
            }
        }
        let mut cx = context!(self);
        connection.accept_fast_open(&mut cx, segment);
    }

    /// Gives a new connection its server's cookie, or lets it request one.
    pub(super) fn request_fast_open(&mut self, index: u32) {
        let bits = self.settings.tcp_fastopen;
        let permitted = bits & CLIENT != 0;
        if let Some(Socket::Tcp(connection)) = &mut self.slots[index as usize].socket
            && permitted
            && connection.may_open_fast()
        {
            let server = self.cookies.0.get(&connection.tuple.remote.ip()).cloned().unwrap_or_default();
            let state = &mut connection.fast_open;
            state.mss = server.mss;
            state.needs_no_cookie = bits & CLIENT_NO_COOKIE != 0;
            if !state.needs_no_cookie {
                state.is_experimental = match server.cookie.is_empty() {
                    true => server.ignored == 1,
                    false => server.is_experimental,
                };
                state.cookie = Some(server.cookie);
            }
        }
    }

    /// Whether bytes can go with the SYN to a server: it has given a cookie, or none is needed.
    pub fn may_send_with_syn(&self, server: IpAddr) -> bool {
        let bits = self.settings.tcp_fastopen;
        let known = self.cookies.0.get(&server).is_some_and(|server| !server.cookie.is_empty());
        bits & CLIENT != 0 && (known || bits & CLIENT_NO_COOKIE != 0)
    }

    /// Bytes that the SYN of a new connection can carry.
    ///
    /// # Errors
    /// If the socket is not a connection.
    pub fn syn_room(&self, id: SocketId) -> Result<usize, SocketError> {
        Ok(self.connection(id)?.fast_open_room() as usize)
    }

    /// Forgets what servers said (`ip tcp_metrics flush`).
    pub fn forget_servers(&mut self) {
        self.cookies.0.clear();
    }

    /// Keeps the cookie that a server gave.
    pub(super) fn remember_fast_open(&mut self, index: u32) {
        let Some(Socket::Tcp(connection)) = &mut self.slots[index as usize].socket else { return };
        let Some(answer) = connection.fast_open.answer.take() else { return };
        let (address, mss) = (connection.tuple.remote.ip(), connection.peer_mss());
        if self.cookies.0.len() >= SERVERS && !self.cookies.0.contains_key(&address) {
            self.cookies.0.pop_first();
        }
        let server = self.cookies.0.entry(address).or_default();
        server.mss = mss;
        if let Some((cookie, experimental)) = answer.given {
            (server.cookie, server.is_experimental) = (cookie, experimental);
        } else if let Some(experimental) = answer.ignored {
            server.ignored = server.ignored.max(1 + u8::from(experimental));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;

    #[test]
    fn cookies_are_linuxs_and_a_listener_may_have_a_key() {
        let key = Some([0xed80_3d81_a0bf_63f7, 0xcebc_4a90_cd64_1d30]);
        let cookie = |key: Option<[u64; 2]>, settings: Option<[u64; 2]>| {
            let stack = Stack::new(Settings { tcp_fastopen_key: settings, ..Settings::default() }, [1, 2]);
            stack.fast_open_cookie(key, [10, 248, 0, 2].into(), [192, 168, 0, 2].into())
        };
        assert_eq!(cookie(key, None)[..], [0x00, 0xab, 0xaa, 0xab, 0xe8, 0xe9, 0x54, 0xc2]);
        assert_eq!(cookie(None, key), cookie(key, Some([0, 0])));
        assert_ne!(cookie(None, None), cookie(key, None));
    }
}
