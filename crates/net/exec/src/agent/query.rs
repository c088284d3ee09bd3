//! Tables of the stack for other programs: `ringway stack`.

use ringway_host::EventFd;
use ringway_sockets::Host;
use ringway_sockets::query::{About, Answer, Request, Server, answer};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

type Question = (Request, SyncSender<Answer>);

/// Questions to the stack, which come from the thread of a server. That waits for each answer, so that there is one
/// at a time.
#[derive(Debug)]
pub struct Queries {
    questions: Receiver<Question>,
    event: Arc<EventFd>,
    _server: Server,
}

impl Queries {
    /// Listens at a path.
    pub fn listen(path: &Path, about: About) -> io::Result<Queries> {
        let event = Arc::new(EventFd::new().map_err(io::Error::other)?);
        let (sender, questions) = sync_channel::<Question>(1);
        let asked = event.clone();
        let server = Server::start(path, about, move |request| {
            let (answers, answered) = sync_channel(1);
            sender.send((request, answers)).ok()?;
            asked.signal();
            answered.recv().ok()
        })?;
        Ok(Queries { questions, event, _server: server })
    }

    /// Answers what was asked.
    pub fn serve(&self, host: &mut Host) {
        self.event.clear();
        if let Ok((request, answers)) = self.questions.try_recv() {
            // The server may have ended.
            let _ = answers.send(answer(host.stack(), &request));
        }
    }
}

impl AsFd for Queries {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}
