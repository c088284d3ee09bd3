//! The protocol with a guest's first process over its serial line; `agent.sh` is the other end.
use std::io::{self, BufRead, Read};

/// Attack: a guest may write anything to its serial line. Longer answers and lines are truncated.
const LARGEST_ANSWER: u64 = 4 << 20;
const LONGEST_LINE: u64 = 4096;
/// The longest command: the guest's terminal takes a line of 4096 bytes.
const LONGEST_COMMAND: usize = 3500;
const MARK: &str = "=ringway ";

/// Output of a guest.
#[derive(Debug, PartialEq, Eq)]
pub enum Message {
    /// An answer: the command's number (0: the guest is ready), exit status, output.
    Answer(u64, i32, String),
    /// Anything else, such as a kernel message before there is a console.
    Text(Vec<u8>),
}

/// Reads the next message; `None` at the end.
pub fn read(from: &mut impl BufRead) -> io::Result<Option<Message>> {
    let mut line = Vec::new();
    if from.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line)? == 0 {
        return Ok(None);
    }
    let Some((id, status, bytes)) = header(&line) else { return Ok(Some(Message::Text(line))) };
    let mut body = Vec::new();
    from.by_ref().take(bytes.min(LARGEST_ANSWER)).read_to_end(&mut body)?;
    io::copy(&mut from.by_ref().take(bytes.saturating_sub(LARGEST_ANSWER)), &mut io::sink())?;
    Ok(Some(Message::Answer(id, status, String::from_utf8_lossy(&body).into_owned())))
}

/// The numbers of a line that begins an answer.
fn header(line: &[u8]) -> Option<(u64, i32, u64)> {
    let text = std::str::from_utf8(line).ok()?;
    let (_, numbers) = text.split_once(MARK)?;
    let mut words = numbers.split_whitespace();
    Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?, words.next()?.parse().ok()?))
}

/// The request line for running a command for at most `seconds`; `None` if it has several lines or is too
/// long.
pub fn request(id: u64, seconds: u64, command: &str) -> Option<String> {
    let fits = command.len() <= LONGEST_COMMAND && !command.contains('\n');
    fits.then(|| format!("{id} {seconds} {command}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufReader, Write};
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command};

    fn all(mut bytes: &[u8]) -> Vec<Message> {
        std::iter::from_fn(|| read(&mut bytes).unwrap()).collect()
    }

    #[test]
    fn replies_are_extracted_from_other_text() {
        let found = all(b"boot\n=ringway 0 0 4\n6.1\n=ringway 7 1 0\nlate\n");
        let expected = [
            Message::Text(b"boot\n".to_vec()),
            Message::Answer(0, 0, "6.1\n".into()),
            Message::Answer(7, 1, String::new()),
            Message::Text(b"late\n".to_vec()),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn invalid_replies_are_bounded_text() {
        assert_eq!(all(b"=ringway x 0 4\n"), [Message::Text(b"=ringway x 0 4\n".to_vec())]);
        let endless = vec![b'a'; 10_000];
        assert!(
            all(&endless).iter().all(|message| matches!(message, Message::Text(line) if line.len() <= 4096))
        );
        assert_eq!(all(b"=ringway 1 0 18446744073709551615\nshort"), [Message::Answer(1, 0, "short".into())]);
    }

    #[test]
    fn a_command_is_one_line() {
        assert_eq!(request(3, 5, "ls /").as_deref(), Some("3 5 ls /\n"));
        assert_eq!(request(3, 5, "a\nb"), None);
        assert_eq!(request(3, 5, &"a".repeat(4000)), None);
    }

    /// The agent, with its files in `folder`.
    fn agent(folder: &std::path::Path, line: UnixStream) -> Child {
        let script = format!("run={}; exec 3<&0 </dev/null\n{}", folder.display(), include_str!("agent.sh"));
        let mut command = Command::new("busybox");
        command.args(["sh", "-c", &script]).stdin(OwnedFd::from(line)).process_group(0).spawn().unwrap()
    }

    #[test]
    fn a_split_command_is_read_while_another_one_ends() {
        let folder = std::env::temp_dir().join(format!("ringway-agent-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let mut child = agent(&folder, theirs);
        let mut answers = BufReader::new(ours.try_clone().unwrap());
        let mut next = || read(&mut answers).unwrap().unwrap();
        assert!(matches!(next(), Message::Answer(0, 0, _)));
        for id in 1..20 {
            ours.write_all(format!("{id} 9 true\n{} 9 ec", id + 20).as_bytes()).unwrap();
            assert_eq!(next(), Message::Answer(id, 0, String::new()));
            // The process that ran the command ends right after its answer.
            std::thread::sleep(std::time::Duration::from_millis(5));
            ours.write_all(b"ho whole\n").unwrap();
            assert_eq!(next(), Message::Answer(id + 20, 0, "whole\n".into()));
        }
        let group = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process_group(group, rustix::process::Signal::KILL).unwrap();
        child.wait().unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
