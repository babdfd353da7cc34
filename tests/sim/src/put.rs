//! Whole contents under names, as events that the checkers know.

use bytes::Bytes;
use weft_base::{Attr, Credentials, Handle, Payload, ROOT_HANDLE, Status};
use weft_client::CreateOptions;
use weft_rt::Runtime;
use weft_wire::Rights;

use crate::history::{Action, Answer, Name, Outcome, Seen};
use crate::model::FILE_MODE;
use crate::statuses::is_definite;
use crate::workload::{Choices, Worker};

/// The first value of bytes that no write has.
const FIRST_TAG: u8 = 128;
/// Longest content that is put, in bytes: some are longer than a stripe, and do not stay.
const CONTENT_BYTES: u64 = 5_000;
/// More than a file that histories make has.
const READ_ALL: u64 = 64 << 10;

impl Worker {
    /// Puts a content under some name: a create, and at the same time a change of all bytes.
    pub(crate) async fn put(&mut self, choices: Choices) {
        let (dir, name) = (self.pick_dir(choices.dirs), Name(self.random.below(u64::from(choices.names)) as u8));
        let len = self.random.below(CONTENT_BYTES);
        let now = self.client.rt().now();
        let (made, put, tag) = {
            let mut shared = self.shared.borrow_mut();
            if shared.contents > u8::MAX - FIRST_TAG {
                return;
            }
            let tag = FIRST_TAG + shared.contents;
            shared.contents += 1;
            let create = Action::Create { dir, name, exclusive: false, truncate: false };
            shared.touch(&create);
            let made = shared.history.begin(self.number, create, now);
            // Until it is known whether it came in it may have been cut before.
            let content = Action::Content { handle: Handle(0), len, tag, at_once: false };
            (made, shared.history.begin(self.number, content, now), tag)
        };
        let content = Bytes::from(vec![tag; len as usize]);
        let options = CreateOptions { mode: FILE_MODE, ..CreateOptions::default() };
        let result = self.client.put(&Credentials::ROOT, dir, &name.bytes(), &options, &content).await;
        let file = result.as_ref().ok().map(|(attr, _)| attr.handle);
        self.note_put((made, put), (len, tag), result);
        if let Some(file) = file.filter(|_| self.random.coin()) {
            self.read_only(dir, name, file).await;
        }
    }

    fn note_put(&mut self, (made, put): (usize, usize), (len, tag): (u64, u8), result: weft_client::Result<(Attr, bool)>) {
        let (now, mut shared) = (self.client.rt().now(), self.shared.borrow_mut());
        let (of_name, of_content) = match result {
            Ok((attr, created)) => {
                // A new file that was written afterwards was empty before.
                let at_once = attr.is_inline();
                let content = Action::Content { handle: attr.handle, len, tag, at_once };
                shared.history.amend(put, |action| *action = content);
                (Outcome::Done(Answer::Created(Seen::from(&attr), created)), Outcome::Done(Answer::Nothing))
            }
            // It is perhaps made, and not written.
            Err(error) if error.status == Status::NoSpace || !is_definite(error.status) => {
                (Outcome::Unknown(error.status), Outcome::Unknown(error.status))
            }
            Err(error) => (Outcome::Failed(error.status), Outcome::Failed(error.status)),
        };
        shared.learn_from(&of_name);
        shared.history.end(made, of_name, now);
        shared.history.end(put, of_content, now);
    }

    /// Opens a file for reading alone, which leaves its bytes where they are.
    async fn read_only(&mut self, dir: Handle, name: Name, handle: Handle) {
        let now = self.client.rt().now();
        let read = Action::Read { handle, offset: 0, len: READ_ALL };
        let number = self.shared.borrow_mut().history.begin(self.number, read, now);
        let client = self.client.clone();
        let result = async {
            let (_, file) = client.open(&Credentials::ROOT, handle, Rights::READ, false).await?;
            let data = client.read(&file, 0, READ_ALL).await;
            client.close(file).await.and(data)
        };
        let result = result.await;
        let (now, mut shared) = (self.client.rt().now(), self.shared.borrow_mut());
        let outcome = match result {
            Ok(data) => Outcome::Done(Answer::Data(Payload::concat(&data))),
            // What was not read says nothing, but perhaps it is open.
            Err(error) if is_definite(error.status) => {
                shared.history.amend(number, |action| *action = Action::Close { handle: ROOT_HANDLE });
                Outcome::Done(Answer::Nothing)
            }
            Err(error) => {
                shared.history.amend(number, |action| *action = Action::LookupHandle { dir, name });
                Outcome::Unknown(error.status)
            }
        };
        shared.history.end(number, outcome, now);
    }

    pub(crate) fn pick_dir(&mut self, preferred: usize) -> Handle {
        let dirs = &self.shared.borrow().dirs;
        let known = if self.random.below(4) == 0 { dirs.len() } else { preferred.min(dirs.len()) };
        dirs[self.random.below(known as u64) as usize]
    }
}
