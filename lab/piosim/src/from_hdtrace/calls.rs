//! Calls on open files, and which bytes they touch.

use crate::program::{Access, FileView};

/// No file is longer.
pub(super) const FILE_BYTES_MAX: u64 = 1 << 62;
/// Ranges that one call may touch.
pub(super) const RANGES_MAX: u64 = 1 << 26;

/// Calls on an open file that a cluster carries out.
pub(super) enum FileCall {
    Close,
    SetView,
    Transfer {
        write: bool,
        collective: bool,
        /// The offset is an argument, counted in the view; else it is that of the file pointer,
        /// counted in the file.
        explicit: bool,
    },
}

impl FileCall {
    pub(super) fn of(name: &str) -> Option<FileCall> {
        let transfer = |write, collective, explicit| Some(FileCall::Transfer { write, collective, explicit });
        match name {
            "File_close" => Some(FileCall::Close),
            "File_set_view" => Some(FileCall::SetView),
            "File_read" | "File_iread" => transfer(false, false, false),
            "File_read_at" | "File_iread_at" => transfer(false, false, true),
            "File_write" | "File_iwrite" => transfer(true, false, false),
            "File_write_at" | "File_iwrite_at" => transfer(true, false, true),
            "File_read_all" | "File_read_all_begin" | "File_iread_all" => transfer(false, true, false),
            "File_read_all_at" | "File_read_at_all" | "File_read_at_all_begin" | "File_iread_at_all" => transfer(false, true, true),
            "File_write_all" | "File_write_all_begin" | "File_iwrite_all" => transfer(true, true, false),
            "File_write_all_at" | "File_write_at_all" | "File_write_at_all_begin" | "File_iwrite_at_all" => transfer(true, true, true),
            _ => None,
        }
    }
}

/// The ranges of the file that a call touches; `None` if they are beyond all measure.
pub(super) fn access(view: Option<&(FileView, u64)>, offset: u64, bytes: u64, explicit: bool) -> Option<Access> {
    let Some((view, elementary_bytes)) = view else {
        return offset.checked_add(bytes).is_some_and(|end| end <= FILE_BYTES_MAX).then(|| Access::at(offset, bytes));
    };
    let (data, extent) = (view.filetype.data_bytes(), view.filetype.extent_bytes());
    if data == 0 || bytes == 0 {
        return Some(Access::List(Vec::new()));
    }
    let blocks = view.filetype.blocks();
    let data_offset = if explicit {
        offset.checked_mul(*elementary_bytes)?
    } else {
        // Data that the view shows before this byte of the file.
        let relative = offset.saturating_sub(view.displacement);
        let inside = relative % extent;
        let before = blocks.iter().map(|block| inside.saturating_sub(block.offset).min(block.bytes));
        (relative / extent).checked_mul(data)?.checked_add(before.sum())?
    };
    let copies = data_offset.checked_add(bytes)? / data + 1;
    let ranges = (bytes / data + 2).checked_mul(blocks.len() as u64)?;
    let end = copies.checked_mul(extent)?.checked_add(view.displacement)?;
    (end <= FILE_BYTES_MAX && (data == extent || ranges <= RANGES_MAX)).then(|| Access::List(view.map(data_offset, bytes)))
}
