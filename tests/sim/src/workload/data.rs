//! What a client does with a file that it has open.

use weft_base::Handle;
use weft_client::Fallocate;

use super::{FILE_BYTES, PIECE_BYTES, Worker};
use crate::history::Action;

impl Worker {
    pub(super) fn choose_data(&mut self, handle: Handle) -> Action {
        let random = &mut self.random;
        let size = || self.open.get(&handle)?.last().map(|file| file.size_known());
        let offset = match size().filter(|_| self.shared.borrow().history.delays && random.below(3) == 0) {
            // As programs do that write a stream.
            Some(size) => size.min(FILE_BYTES - PIECE_BYTES),
            None if random.below(3) == 0 => 0,
            None => random.below(FILE_BYTES - PIECE_BYTES),
        };
        let len = random.between(1, PIECE_BYTES);
        match random.below(20) {
            0..9 => {
                let mut shared = self.shared.borrow_mut();
                let tag = shared.tags.entry(handle).or_insert(0);
                if *tag == u8::MAX {
                    return Action::Fsync { handle };
                }
                *tag += 1;
                Action::Write { handle, offset, len, tag: *tag }
            }
            9..15 if len.is_multiple_of(6) => Action::SetTime { handle, time: len as u16 },
            9..15 if len.is_multiple_of(5) => Action::GetAttr { handle, held: true },
            9..15 if len.is_multiple_of(4) => {
                let keep_size = len.is_multiple_of(3);
                let how = match random.below(4) {
                    0 => Fallocate::Reserve { keep_size },
                    1 => Fallocate::Zero { keep_size },
                    _ => Fallocate::Punch,
                };
                Action::Allocate { handle, offset, len, how }
            }
            9..15 => Action::Read { handle, offset, len },
            15 => Action::SetSize { handle, size: random.below(FILE_BYTES) },
            16 => Action::GetAttr { handle, held: true },
            17 => Action::Fsync { handle },
            _ => Action::Close { handle },
        }
    }
}
