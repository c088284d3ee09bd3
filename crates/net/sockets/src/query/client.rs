//! The side that asks.

use super::server::LONGEST_ANSWER;
use super::{Counters, Reply, Request, Socket};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// How long an answer may take: a program that stands still gives none.
const TIMEOUT: Duration = Duration::from_secs(5);

/// A connection to a server.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<UnixStream>,
}

impl Client {
    /// Connects.
    ///
    /// # Errors
    /// Nobody listens at the path, or this user may not connect.
    pub fn connect(path: &Path) -> io::Result<Client> {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        Ok(Client { stream: BufReader::new(stream) })
    }

    /// Asks.
    ///
    /// # Errors
    /// The server does not answer, or says why it has none.
    pub fn ask(&mut self, request: &Request) -> io::Result<Reply> {
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        self.stream.get_mut().write_all(&line)?;
        let mut line = Vec::new();
        // Attack: a server whose answer has no end.
        (&mut self.stream).take(LONGEST_ANSWER as u64).read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match serde_json::from_slice(&line)? {
            Reply::Error(error) => Err(io::Error::other(error)),
            reply => Ok(reply),
        }
    }

    /// All sockets.
    ///
    /// # Errors
    /// As [`Client::ask`].
    pub fn sockets(&mut self) -> io::Result<Vec<Socket>> {
        let (mut all, mut from) = (Vec::new(), Some(0));
        while let Some(place) = from {
            let Reply::Sockets { sockets, next } = self.ask(&Request::Sockets(place))? else {
                return Err(other_answer());
            };
            all.extend(sockets);
            // Attack: a server whose table has no end.
            from = next.filter(|next| *next > place);
        }
        Ok(all)
    }

    /// All counters, with those of the connections in the table.
    ///
    /// # Errors
    /// As [`Client::ask`].
    pub fn counters(&mut self) -> io::Result<Counters> {
        let Reply::Counters(mut counters) = self.ask(&Request::Counters)? else { return Err(other_answer()) };
        let sockets = self.sockets()?;
        add(&mut counters, &sockets);
        Ok(counters)
    }
}

fn other_answer() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the answer is to another question")
}

/// Adds what connections counted.
pub(super) fn add(counters: &mut Counters, sockets: &[Socket]) {
    for socket in sockets {
        let Some(info) = &socket.info else { continue };
        // RFC 4022: those whose state is ESTABLISHED or CLOSE-WAIT.
        let is_established = matches!(&*socket.state, "ESTAB" | "CLOSE-WAIT");
        for (group, name, value) in [
            ("Tcp", "CurrEstab", u64::from(is_established)),
            ("Tcp", "OutSegs", info.tcpi_segs_out.saturating_sub(info.tcpi_total_retrans)),
            ("Tcp", "RetransSegs", info.tcpi_total_retrans),
            ("TcpExt", "TCPSACKReorder", info.tcpi_reord_seen),
            ("TcpExt", "TCPTimeouts", info.tcpi_total_rto),
            ("TcpExt", "TCPDSACKRecv", info.tcpi_dsack_dups),
            ("TcpExt", "TCPOFOQueue", info.tcpi_rcv_ooopack),
        ] {
            *counters.entry(group.into()).or_default().entry(name.into()).or_default() += value;
        }
    }
}
