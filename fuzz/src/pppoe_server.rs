//! A PPPoE subscriber, and a RADIUS server, that send anything.

use ringway_click::{Options, Recorder, Router, Turn};
use ringway_click_lang::{Anything, Source};
use std::fmt::Write;
use std::sync::OnceLock;

/// Ethernet header of a frame to the server, up to the EtherType.
const TO_SERVER: &str = "020000000001020000000009";
/// Protocols of PPP that packets get by number.
const PROTOCOLS: [&str; 8] = ["c021", "c023", "c223", "8021", "8057", "80fd", "0021", "0057"];
/// Sessions at most.
const CAPACITY: usize = 2;
/// Frames at most, so that a run is short.
const MOST: usize = 40;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Runs a server that gets these frames and answers for some simulated seconds; its number of sessions, and what it
/// sent.
fn serve(frames: &[String], answers: &[String], seconds: u32) -> (usize, String) {
    let mut text = format!(
        "RandomSeed(1);
         c :: PPPoEConcentrator(02:00:00:00:00:01);
         s :: PPPoEServer(c, 10.0.0.1, 10.0.0.0/24, USER a:b, AUTH pap, CAPACITY {CAPACITY}, PER_HOST 2,
             RADIUS 192.0.2.9, SRC 192.0.2.1, SECRET x, INTERIM 1s, ECHO 1s);
         Idle -> [1] c; c[0] -> Discard; c[1] -> Discard; c[2] -> s;
         s[0] -> Print(sent, MAXLENGTH 400) -> Discard; s[1] -> Discard; s[2] -> Discard;
         Idle -> [1] s;
         DriverManager(wait {seconds}s, stop);"
    );
    for frame in frames {
        let _ = writeln!(text, "InfiniteSource(\\<{frame}>, LIMIT 1) -> c;");
    }
    for answer in answers {
        let _ = writeln!(text, "InfiniteSource(\\<{answer}>, LIMIT 1) -> MarkIPHeader -> [1] s;");
    }
    let parsed = Source::new(&text, "config").read(&mut Anything);
    let console = Recorder::default();
    let options = Options::simulated(1, console.clone(), &text);
    let mut router = Router::build(parsed.graph, &ringway_elements::registry(), options).unwrap();
    for _ in 0..4000 {
        if matches!(router.turn(), Turn::Stopped | Turn::Idle) {
            break;
        }
    }
    let count = router.read("s.count").unwrap().trim().parse().unwrap();
    (count, console.chatter())
}

/// What follows `mark` in the printed frames, this number of hexadecimal digits.
fn told(chatter: &str, mark: &str, digits: usize) -> String {
    let text: String = chatter.chars().filter(|c| !c.is_whitespace()).collect();
    let at = text.find(mark).unwrap() + mark.len();
    text[at..at + digits].into()
}

/// A PADR with the server's cookie, and the number of the session that it opens. The server is the same each time.
fn opening() -> &'static (String, String) {
    static OPENING: OnceLock<(String, String)> = OnceLock::new();
    OPENING.get_or_init(|| {
        let offer = serve(&["ffffffffffff020000000009886311090000000401010000".to_string()], &[], 1).1;
        let cookie = told(&offer, "01040010", 32);
        let request = format!("{TO_SERVER}88631119000000180101000001040010{cookie}");
        let (count, confirmation) = serve(std::slice::from_ref(&request), &[], 1);
        assert_eq!(count, 1);
        (request, told(&confirmation, "88631165", 4))
    })
}

/// The frames to an open session, and RADIUS's answers, that `data` stands for.
fn read(data: &[u8]) -> (Vec<String>, Vec<String>) {
    let (open, session) = opening();
    let (mut frames, mut answers, mut rest) = (vec![open.clone()], Vec::new(), data);
    while let ([kind, length, more @ ..], true) = (rest, frames.len() + answers.len() < MOST) {
        let (bytes, after) = more.split_at(usize::from(*length).min(more.len()));
        rest = after;
        let text = hex(bytes);
        match kind % 4 {
            0 => frames.push(format!("{TO_SERVER}{text}")),
            1 => {
                let [code, tags @ ..] = bytes else { continue };
                frames.push(format!("{TO_SERVER}886311{code:02x}0000{:04x}{}", tags.len(), hex(tags)));
            }
            2 => {
                let protocol = PROTOCOLS[usize::from(kind >> 2) % PROTOCOLS.len()];
                let length = bytes.len() + 2;
                frames.push(format!("{TO_SERVER}88641100{session}{length:04x}{protocol}{text}"));
            }
            _ => answers.push(format!(
                "4500{:04x}0000000040110000c0000209c00002010714d000{:04x}0000{text}",
                28 + bytes.len(),
                8 + bytes.len()
            )),
        }
    }
    (frames, answers)
}

/// Uses `data` as frames to an open session and as RADIUS's answers.
pub fn run(data: &[u8]) {
    let (frames, answers) = read(data);
    // Without an answer for long, sessions end.
    let (count, _) = serve(&frames, &answers, 1);
    assert!(count <= CAPACITY);
    assert_eq!(serve(&frames, &answers, 90).0, 0);
}

fn piece(kind: u8, bytes: &[u8]) -> Vec<u8> {
    [&[kind, bytes.len() as u8], bytes].concat()
}

/// A login as far as an address, discovery, an answer.
pub fn seeds() -> Vec<Vec<u8>> {
    const LCP: u8 = 2;
    const PAP: u8 = 6;
    const IPCP: u8 = 14;
    let begin = piece(LCP, &[1, 1, 0, 10, 5, 6, 1, 2, 3, 4]);
    let chatter = serve(&read(&begin).0, &[], 1).1;
    // The options of the server's request: receive unit, PAP, magic number.
    let options = told(&chatter, "c02101010012", 28);
    let digit = |at: usize| u8::from_str_radix(&options[2 * at..2 * at + 2], 16).unwrap();
    let acknowledged: Vec<u8> = [2, 1, 0, 18].into_iter().chain((0..14).map(digit)).collect();
    let link = [begin, piece(LCP, &acknowledged)].concat();
    let login = [
        &link[..],
        &piece(PAP, &[1, 1, 0, 8, 1, b'a', 1, b'b']),
        &piece(IPCP, &[1, 1, 0, 10, 3, 6, 10, 0, 0, 2]),
        &piece(IPCP, &[2, 1, 0, 10, 3, 6, 10, 0, 0, 1]),
    ]
    .concat();
    assert!(serve(&read(&login).0, &[], 1).1.contains("has 10.0.0.2"));
    let end = [piece(LCP, &[9, 1, 0, 8, 1, 2, 3, 4]), piece(LCP, &[5, 1, 0, 4])].concat();
    let refusal = piece(LCP, &[4, 1, 0, 8, 1, 4, 5, 0xd4]);
    let discovery = [
        piece(1, &[0x09, 1, 1, 0, 0, 1, 3, 0, 2, 7, 7]),
        piece(1, &[0x19, 1, 1, 0, 0, 1, 4, 0, 2, 7, 7]),
        piece(0, &[0x88, 0x63, 0x11, 0xa7, 0, 1, 0, 0]),
    ];
    let mut answer = vec![2, 1, 0, 26];
    answer.extend_from_slice(&[0; 16]);
    answer.extend_from_slice(&[8, 6, 10, 0, 0, 7]);
    let asked = [link, piece(PAP, &[1, 1, 0, 8, 1, b'x', 1, b'b']), piece(3, &answer)].concat();
    vec![[login, end].concat(), refusal, discovery.concat(), asked]
}
