//! The lines of `ss -tin`.

use ringway_exec::query::{Info, Socket};

/// The largest slow-start threshold that is shown.
const MAX_SSTHRESH: u64 = 0xffff;

/// Which sockets are shown.
#[derive(Clone, Copy, Debug, Default)]
pub struct SocketFilter {
    /// Listening sockets too.
    pub all: bool,
    /// Listening sockets alone.
    pub listening: bool,
    /// UDP sockets.
    pub udp: bool,
}

/// The sockets that are chosen.
pub fn select(sockets: Vec<Socket>, choice: SocketFilter) -> Vec<Socket> {
    let is_chosen = |socket: &Socket| {
        if socket.netid == "udp" {
            return choice.udp;
        }
        !choice.udp
            && match &*socket.state {
                "LISTEN" => choice.all || choice.listening,
                "UNCONN" => choice.all,
                _ => !choice.listening,
            }
    };
    sockets.into_iter().filter(is_chosen).collect()
}

/// The table.
pub fn table(sockets: &[Socket]) -> String {
    let head = ["State", "Recv-Q", "Send-Q", "Local Address:Port", "Peer Address:Port"].map(String::from);
    let row = |socket: &Socket| {
        let Socket { state, recv_q, send_q, local, peer, .. } = socket;
        [state.clone(), recv_q.to_string(), send_q.to_string(), local.clone(), peer.clone()]
    };
    let rows: Vec<[String; 5]> = std::iter::once(head).chain(sockets.iter().map(row)).collect();
    let width = |of: &dyn Fn(&[String; 5]) -> usize| rows.iter().map(of).max().unwrap_or(0);
    let words: Vec<usize> = (0..3).map(|column| width(&|row| row[column].len())).collect();
    // An address ends where its port begins, so that the colons are below each other.
    let address = |column: usize| width(&|row| split(&row[column]).0.len());
    let port = |column: usize| width(&|row| split(&row[column]).1.len());
    let (local, local_port, peer) = (address(3), port(3), address(4));
    let infos = std::iter::once(None).chain(sockets.iter().map(Some));
    let mut out = String::new();
    for (row, socket) in rows.iter().zip(infos) {
        for (word, width) in row.iter().zip(&words) {
            out += &format!("{word:<width$} ");
        }
        let ((own, own_port), (other, other_port)) = (split(&row[3]), split(&row[4]));
        out += &format!("{own:>local$}:{own_port:<local_port$} {other:>peer$}:{other_port}\n");
        if let Some((socket, info)) = socket.and_then(|socket| Some((socket, socket.info.as_ref()?))) {
            out += &format!("\t{}\n", figures(&socket.cong_alg, info));
        }
    }
    out
}

/// An address and its port.
fn split(address: &str) -> (&str, &str) {
    address.rsplit_once(':').unwrap_or((address, ""))
}

/// A number as C's `%g` writes it.
fn short(value: f64) -> String {
    let whole = value.abs().max(1e-9).log10().floor() as i32 + 1;
    let digits = usize::try_from(6 - whole.max(-3)).unwrap_or(0);
    let text = format!("{value:.digits$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').into(),
        false => text,
    }
}

/// Milliseconds, of nanoseconds.
fn ms(time: u64) -> String {
    short((time / 1000) as f64 / 1000.0)
}

/// A time of all, and its share in percent.
fn share(time: u64, all: u64) -> String {
    format!("{}ms({:.1}%)", time / 1_000_000, 100.0 * time as f64 / all.max(1) as f64)
}

/// Words, of which those without a value are left out.
struct Words(Vec<String>);

impl Words {
    fn when(&mut self, is_so: bool, word: impl FnOnce() -> String) {
        if is_so {
            self.0.push(word());
        }
    }

    fn flag(&mut self, value: u64, word: &str) {
        self.when(value > 0, || word.into());
    }

    fn number(&mut self, name: &str, value: u64) {
        self.when(value > 0, || format!("{name}:{value}"));
    }

    fn time(&mut self, name: &str, time: u64) {
        self.when(time >= 1000, || format!("{name}:{}", ms(time)));
    }

    /// Whole milliseconds.
    fn age(&mut self, name: &str, time: u64) {
        self.number(name, time / 1_000_000);
    }

    fn rate(&mut self, name: &str, bytes: u64) {
        let is_limited = bytes > 0 && bytes != u64::MAX;
        self.when(is_limited, || format!("{name} {}bps", bytes.saturating_mul(8)));
    }
}

/// The figures of a connection, in ss's order.
fn figures(controller: &str, info: &Info) -> String {
    let mut words = Words(Vec::new());
    words.flag(info.tcpi_options_timestamps, "ts");
    words.flag(info.tcpi_options_sack, "sack");
    words.flag(info.tcpi_options_ecn, "ecn");
    words.flag(info.tcpi_options_ecn_seen, "ecnseen");
    words.flag(info.tcpi_options_syn_data, "fastopen");
    words.when(!controller.is_empty(), || controller.into());
    let (sent, received) = (info.tcpi_snd_wscale, info.tcpi_rcv_wscale);
    words.when(sent + received > 0, || format!("wscale:{sent},{received}"));
    words.time("rto", info.tcpi_rto);
    words.number("backoff", info.tcpi_backoff);
    words.when(info.tcpi_rtt > 0, || format!("rtt:{}/{}", ms(info.tcpi_rtt), ms(info.tcpi_rttvar)));
    words.time("ato", info.tcpi_ato);
    words.number("mss", info.tcpi_snd_mss);
    words.number("pmtu", info.tcpi_pmtu);
    words.number("rcvmss", info.tcpi_rcv_mss);
    words.number("advmss", info.tcpi_advmss);
    words.number("cwnd", info.tcpi_snd_cwnd);
    words.when((1..MAX_SSTHRESH).contains(&info.tcpi_snd_ssthresh), || {
        format!("ssthresh:{}", info.tcpi_snd_ssthresh)
    });
    words.number("bytes_sent", info.tcpi_bytes_sent);
    words.number("bytes_retrans", info.tcpi_bytes_retrans);
    words.number("bytes_acked", info.tcpi_bytes_acked);
    words.number("bytes_received", info.tcpi_bytes_received);
    words.number("segs_out", info.tcpi_segs_out);
    words.number("segs_in", info.tcpi_segs_in);
    words.number("data_segs_out", info.tcpi_data_segs_out);
    words.number("data_segs_in", info.tcpi_data_segs_in);
    let window = (info.tcpi_snd_cwnd * info.tcpi_snd_mss) as f64;
    words.when(info.tcpi_rtt > 0 && window > 0.0, || {
        format!("send {:.0}bps", window * 8e9 / info.tcpi_rtt as f64)
    });
    words.age("lastsnd", info.tcpi_last_data_sent);
    words.age("lastrcv", info.tcpi_last_data_recv);
    words.age("lastack", info.tcpi_last_ack_recv);
    rest(&mut words, info);
    words.0.join(" ")
}

fn rest(words: &mut Words, info: &Info) {
    words.rate("pacing_rate", info.tcpi_pacing_rate);
    let most = info.tcpi_max_pacing_rate;
    if info.tcpi_pacing_rate != u64::MAX
        && most != u64::MAX
        && let Some(last) = words.0.last_mut()
    {
        *last += &format!("/{}bps", most.saturating_mul(8));
    }
    words.rate("delivery_rate", info.tcpi_delivery_rate);
    words.number("delivered", info.tcpi_delivered);
    words.number("delivered_ce", info.tcpi_delivered_ce);
    words.flag(info.tcpi_delivery_rate_app_limited, "app_limited");
    let busy = info.tcpi_busy_time;
    words.when(busy >= 1000, || format!("busy:{}ms", busy / 1_000_000));
    for (name, time) in
        [("rwnd_limited", info.tcpi_rwnd_limited), ("sndbuf_limited", info.tcpi_sndbuf_limited)]
    {
        words.when(time >= 1000 && busy >= 1000, || format!("{name}:{}", share(time, busy)));
    }
    words.number("unacked", info.tcpi_unacked);
    let (now, total) = (info.tcpi_retrans, info.tcpi_total_retrans);
    words.when(now + total > 0, || format!("retrans:{now}/{total}"));
    words.number("lost", info.tcpi_lost);
    words.number("sacked", info.tcpi_sacked);
    words.number("dsack_dups", info.tcpi_dsack_dups);
    // Three is what a connection begins with.
    words.when(info.tcpi_reordering != 3, || format!("reordering:{}", info.tcpi_reordering));
    words.number("reord_seen", info.tcpi_reord_seen);
    words.time("rcv_rtt", info.tcpi_rcv_rtt);
    words.number("rcv_space", info.tcpi_rcv_space);
    words.number("rcv_ssthresh", info.tcpi_rcv_ssthresh);
    words.number("notsent", info.tcpi_notsent_bytes);
    words.time("minrtt", info.tcpi_min_rtt);
    words.number("rcv_ooopack", info.tcpi_rcv_ooopack);
    words.number("snd_wnd", info.tcpi_snd_wnd);
    words.number("rcv_wnd", info.tcpi_rcv_wnd);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn socket(netid: &str, state: &str, local: &str, peer: &str) -> Socket {
        Socket {
            id: 1,
            netid: netid.into(),
            state: state.into(),
            recv_q: 0,
            send_q: 0,
            local: local.into(),
            peer: peer.into(),
            cong_alg: String::new(),
            mode: String::new(),
            info: None,
        }
    }

    fn connection() -> Socket {
        let info = Info {
            tcpi_options_timestamps: 1,
            tcpi_options_sack: 1,
            tcpi_snd_wscale: 7,
            tcpi_rcv_wscale: 8,
            tcpi_rto: 204_000_000,
            tcpi_rtt: 1_234_500,
            tcpi_rttvar: 50_000,
            tcpi_ato: 40_000_000,
            tcpi_snd_mss: 1448,
            tcpi_pmtu: 1500,
            tcpi_rcv_mss: 536,
            tcpi_advmss: 1448,
            tcpi_snd_cwnd: 10,
            tcpi_snd_ssthresh: u64::MAX / 1448,
            tcpi_bytes_sent: 100,
            tcpi_bytes_retrans: 20,
            tcpi_bytes_acked: 81,
            tcpi_segs_out: 5,
            tcpi_data_segs_out: 2,
            tcpi_last_data_sent: 1_999_999,
            tcpi_pacing_rate: 1000,
            tcpi_max_pacing_rate: 2000,
            tcpi_delivery_rate: 500,
            tcpi_delivery_rate_app_limited: 1,
            tcpi_busy_time: 8_000_000,
            tcpi_rwnd_limited: 2_000_000,
            tcpi_retrans: 1,
            tcpi_total_retrans: 3,
            tcpi_reordering: 3,
            tcpi_min_rtt: 900,
            tcpi_snd_wnd: 65_535,
            ..Info::default()
        };
        let cong_alg = "bbr".into();
        Socket {
            recv_q: 7,
            send_q: 12_345_678,
            cong_alg,
            info: Some(info),
            ..socket("tcp", "ESTAB", "10.0.0.2:40000", "10.0.0.1:80")
        }
    }

    #[test]
    fn sockets_are_lines_of_ss() {
        let listener = Socket { send_q: 128, ..socket("tcp", "LISTEN", "[::]:8000", "[::]:*") };
        let expected = "\
State  Recv-Q Send-Q   Local Address:Port  Peer Address:Port
LISTEN 0      128               [::]:8000          [::]:*
ESTAB  7      12345678      10.0.0.2:40000     10.0.0.1:80
\tts sack bbr wscale:7,8 rto:204 rtt:1.234/0.05 ato:40 mss:1448 pmtu:1500 rcvmss:536 advmss:1448 cwnd:10 \
bytes_sent:100 bytes_retrans:20 bytes_acked:81 segs_out:5 data_segs_out:2 send 93835561bps lastsnd:1 \
pacing_rate 8000bps/16000bps delivery_rate 4000bps app_limited busy:8ms rwnd_limited:2ms(25.0%) retrans:1/3 \
snd_wnd:65535
";
        assert_eq!(table(&[listener, connection()]), expected);
    }

    #[test]
    fn choices_are_those_of_ss() {
        let states = |all: bool, listening: bool, udp: bool| {
            let tcp = ["ESTAB", "LISTEN", "UNCONN"].map(|state| socket("tcp", state, "1:1", "2:2"));
            let mut sockets = Vec::from(tcp);
            sockets.push(socket("udp", "UNCONN", "1:1", "2:2"));
            let shown = select(sockets, SocketFilter { all, listening, udp });
            shown.iter().map(|socket| format!("{} {}", socket.netid, socket.state)).collect::<Vec<_>>()
        };
        assert_eq!(states(false, false, false), ["tcp ESTAB"]);
        assert_eq!(states(true, false, false), ["tcp ESTAB", "tcp LISTEN", "tcp UNCONN"]);
        assert_eq!(states(false, true, false), ["tcp LISTEN"]);
        assert_eq!(states(false, false, true), ["udp UNCONN"]);
    }

    #[test]
    fn numbers_are_those_of_c() {
        let shown = [0.05, 1.2345, 204.0, 1_234.567_89, 12_345_678.0, 0.0].map(short);
        assert_eq!(shown, ["0.05", "1.2345", "204", "1234.57", "12345678", "0"]);
    }
}
