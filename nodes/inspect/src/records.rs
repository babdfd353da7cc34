//! Records in words.

use bytes::Bytes;
use weft_base::{ServerId, ServerRole, Status};
use weft_data_server::JournalRecord;
use weft_namespace::{Change, Record};
use weft_store::Lsn;
use weft_store::objects::ObjectRecord;

use crate::Report;

/// Where a record stands: in a journal or in a checkpoint, whose records are written differently by
/// data servers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Journal(Lsn),
    Checkpoint,
}

/// Counts a record of this server in the report, and lists it if wanted. `offset` is where it or
/// what holds it begins.
pub(crate) fn note(report: &mut Report, server: ServerId, place: Place, offset: u64, bytes: &[u8], list: bool) {
    let label = match place {
        Place::Journal(lsn) => format!("{lsn}: "),
        Place::Checkpoint => String::new(),
    };
    let words = match server.role() {
        ServerRole::Meta => metadata(report, bytes),
        ServerRole::Data => objects(report, place, bytes),
    };
    match words {
        Ok(words) if list => report.listing.push(format!("{label}{words}")),
        Ok(_) => {}
        Err(what) => report.damaged(offset, format!("{label}{what}")),
    }
}

/// Counts a change in the report; gives it in words.
pub(crate) fn change(report: &mut Report, change: &Change) -> String {
    let text = format!("{change:?}");
    report.count(text.split([' ', '{', '(']).next().unwrap_or(&text));
    text
}

fn metadata(report: &mut Report, bytes: &[u8]) -> Result<String, String> {
    let record = Record::decode(Bytes::copy_from_slice(bytes)).map_err(|status| match status {
        Status::VersionMismatch => format!("metadata record of version {}", bytes.first().copied().unwrap_or(0)),
        status => format!("metadata record: {status}"),
    })?;
    let words: Vec<String> = record.changes.iter().map(|one| change(report, one)).collect();
    Ok(words.join(", "))
}

fn objects(report: &mut Report, place: Place, bytes: &[u8]) -> Result<String, String> {
    let record = match place {
        Place::Checkpoint => JournalRecord::Object(ObjectRecord::decode(bytes).map_err(|error| error.to_string())?),
        Place::Journal(_) => JournalRecord::decode(bytes).map_err(|status| format!("record of a data server: {status}"))?,
    };
    report.count(match &record {
        JournalRecord::Object(ObjectRecord::Put { .. }) => "put",
        JournalRecord::Object(ObjectRecord::Truncate { .. }) => "truncate",
        JournalRecord::Object(ObjectRecord::Punch { .. }) => "punch",
        JournalRecord::Object(ObjectRecord::Remove { .. }) => "remove",
        JournalRecord::Mark(_) => "mark",
        JournalRecord::Cut => "cut",
    });
    Ok(format!("{record:?}"))
}
