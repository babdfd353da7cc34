//! What the files of the engines `db` and `dbpf` say, for those who look at them without a server.

use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::Bytes;
use weft_base::Status;
use weft_journal::{JournalError, Lsn};
use weft_namespace::Change;

use super::database::RowDatabase;
use super::databases::LSN_KEY;
use super::image::Image;
use super::{row, tail};

/// A row of a database.
#[derive(Clone, Debug, PartialEq)]
pub enum Row {
    /// The newest record whose changes the rows have.
    Newest(Lsn),
    /// The layout of an object, in a database of its own: the inode of which it was taken.
    Layout(Change),
    /// What is there.
    Change(Change),
}

/// Calls `take` with each row of a database, whose file has this content. Nothing is written: a
/// database that was not closed is repaired in memory.
///
/// # Errors
/// A sentence: the file is no database, is damaged, or has a row that is not understood.
pub fn each_row(content: &[u8], mut take: impl FnMut(Row)) -> Result<(), String> {
    let read = AssertUnwindSafe(|| {
        let database = RowDatabase::of("database".to_string(), Image::of(content))?;
        database.each(|key, value| {
            take(match row::change_of(value) {
                _ if key == LSN_KEY => Row::Newest(Lsn(u64::from_le_bytes(value.try_into().map_err(|_| Status::BadMessage)?))),
                Ok(change) if row::is_layout(key) => Row::Layout(change),
                change => Row::Change(change?),
            });
            Ok(())
        })
    });
    // The library panics over pages that it does not expect; its state is dropped with it.
    match catch_unwind(read) {
        Ok(read) => read.map_err(|error: JournalError| error.to_string()),
        Err(_) => Err("its pages make no sense".to_string()),
    }
}

/// The records of a tail with their numbers, and the byte at which its frames end.
pub fn tail_records(content: &[u8]) -> (Vec<(Lsn, Bytes)>, usize) {
    tail::records_of(&Bytes::copy_from_slice(content))
}
