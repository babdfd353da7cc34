//! The one place where traces are opened: recordings of Weft, and projects of HDTrace as the same
//! records. Page, pictures, reports, exports and `weft explain` read what this gives.

use std::fs::File;
use std::path::Path;

use weft_trace::file::TraceFile;

use crate::hdtrace;
use crate::inputs::Content;

/// The traces of a file, one for each process or node; `progress` is told the bytes read so far.
///
/// # Errors
/// A sentence that says what is wrong, of a file beside a project with its name, line and byte.
pub fn read(path: &Path, content: Content, mut progress: impl FnMut(usize)) -> Result<Vec<TraceFile>, String> {
    match content {
        Content::HdTrace => {
            let files = hdtrace::read(path)?;
            progress(hdtrace::bytes(path) as usize);
            Ok(files)
        }
        Content::HdTracePart => Err("this belongs to a project of HDTrace: name its .proj file".to_string()),
        _ => {
            let file = File::open(path).map_err(|error| error.to_string())?;
            let bytes = file.metadata().map_or(0, |data| data.len() as usize);
            TraceFile::read_from(file, bytes, progress).map(|file| vec![file]).map_err(|error| error.to_string())
        }
    }
}
