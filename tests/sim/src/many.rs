//! Reads of many files at once, as events that the checkers know.

use weft_base::{Credentials, FileKind, Handle, ROOT_HANDLE, Status};
use weft_rt::Runtime;

use crate::history::{Action, Answer, Name, Outcome};
use crate::statuses::is_definite;
use crate::workload::Worker;

/// More than a file that histories make has.
const READ_ALL: u64 = 64 << 10;

impl Worker {
    /// Reads files by their names, together with what was changed lately. Each of them is a
    /// look-up and a read at the same time.
    pub(crate) async fn read_many(&mut self, dir: Handle, name: Name) -> Outcome {
        let mut names: Vec<(Handle, Name)> = vec![(dir, name), (dir, Name(name.0 ^ 1)), (dir, name)];
        names.extend(self.shared.borrow().touched.iter().copied());
        let now = self.client.rt().now();
        let begin = |action| self.shared.borrow_mut().history.begin(self.number, action, now);
        let read = |handle| Action::Read { handle, offset: 0, len: READ_ALL };
        let events: Vec<(usize, usize)> =
            names.iter().map(|(dir, name)| (begin(Action::LookupHandle { dir: *dir, name: *name }), begin(read(Handle(0))))).collect();
        let files: Vec<_> = names.iter().map(|(dir, name)| (*dir, name.bytes())).collect();
        let results = self.client.read_many(&Credentials::ROOT, &files).await;
        let (now, mut shared, mut first) = (self.client.rt().now(), self.shared.borrow_mut(), None);
        for ((lookup, data), result) in events.into_iter().zip(results) {
            let (handle, outcome) = match result {
                Ok(file) => {
                    shared.history.amend(data, |action| *action = read(file.handle));
                    shared.history.end(data, Outcome::Done(Answer::Data(file.data.to_bytes().to_vec())), now);
                    (Some(file.handle), Outcome::Done(Answer::Object(file.handle, FileKind::File)))
                }
                Err(error) => {
                    (None, if is_definite(error.status) { Outcome::Failed(error.status) } else { Outcome::Unknown(error.status) })
                }
            };
            // What was not read says nothing, nor does a name that leads to something else, of
            // which no more is told.
            let nothing = |action: &mut Action| *action = Action::Close { handle: ROOT_HANDLE };
            if handle.is_none() {
                shared.history.amend(data, nothing);
                shared.history.end(data, Outcome::Done(Answer::Nothing), now);
            }
            let outcome = match outcome {
                Outcome::Failed(Status::IsDirectory | Status::TooManySymlinks | Status::Invalid) => {
                    shared.history.amend(lookup, nothing);
                    Outcome::Done(Answer::Nothing)
                }
                outcome => outcome,
            };
            shared.learn_from(&outcome);
            first.get_or_insert(outcome.clone());
            shared.history.end(lookup, outcome, now);
        }
        first.expect("one result for each name")
    }
}
