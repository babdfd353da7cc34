//! What is told about a file.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

/// Something in a file that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Damage {
    /// Byte offset in the file, where it is known.
    pub offset: Option<u64>,
    /// What is wrong there.
    pub what: String,
}

/// What one file says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Name of the file.
    pub file: String,
    /// What it is: `superblock`, `journal segment`, `checkpoint`, `container`, `object table`.
    pub kind: String,
    /// Its bytes.
    pub bytes: u64,
    /// Fields by name, as in `docs/on-disk.md`.
    pub fields: Vec<(String, String)>,
    /// Records by kind.
    pub records: BTreeMap<String, u64>,
    /// Every record in words, if they were asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub listing: Vec<String>,
    /// Why this weft cannot read it, although it may be sound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_read: Option<String>,
    /// What makes no sense.
    pub damage: Vec<Damage>,
}

impl Report {
    pub(crate) fn new(file: &str, kind: &str, bytes: u64) -> Report {
        Report { file: file.into(), kind: kind.into(), bytes, ..Report::default() }
    }

    pub(crate) fn field(&mut self, name: &str, value: impl fmt::Display) {
        self.fields.push((name.into(), value.to_string()));
    }

    pub(crate) fn count(&mut self, kind: &str) {
        *self.records.entry(kind.into()).or_default() += 1;
    }

    pub(crate) fn damaged(&mut self, offset: impl Into<Option<u64>>, what: impl fmt::Display) {
        self.damage.push(Damage { offset: offset.into(), what: what.to_string() });
    }

    pub(crate) fn not_read(&mut self, why: impl fmt::Display) {
        self.not_read = Some(why.to_string());
    }

    /// True if everything could be read and makes sense.
    pub fn is_whole(&self) -> bool {
        self.not_read.is_none() && self.damage.is_empty()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}, {} bytes", self.file, self.kind, self.bytes)?;
        for (name, value) in &self.fields {
            writeln!(f, "  {name}: {value}")?;
        }
        for (kind, count) in &self.records {
            writeln!(f, "  {count} x {kind}")?;
        }
        for line in &self.listing {
            writeln!(f, "    {line}")?;
        }
        if let Some(why) = &self.not_read {
            writeln!(f, "  NOT READ: {why}")?;
        }
        for Damage { offset, what } in &self.damage {
            match offset {
                Some(offset) => writeln!(f, "  DAMAGE at byte {offset}: {what}")?,
                None => writeln!(f, "  DAMAGE: {what}")?,
            }
        }
        Ok(())
    }
}
