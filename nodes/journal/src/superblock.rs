//! The superblock: whose directory this is. A small text file, so that a person can read it, closed by a checksum.
//!
//! It is replaced by a second file that is complete on the disk first. The two change places by renames and are both kept, so that no
//! start needs room on the disk:
//! ```text
//! superblock.reserve ─▶ superblock.new (written, synced) ─▶ superblock ─▶ superblock.old ─▶ superblock.reserve
//! ```
//! Between the second and the third rename there is no `superblock`; then `superblock.new` is whole, and the next start takes it.

use bytes::Bytes;
use weft_base::{FsId, Payload, ServerId};
use weft_rt::{Disk, DiskError};
use weft_wire::crc32c;

use crate::JournalError;

/// Version of all formats in the directory.
const FORMAT: u32 = 1;
const NAME: &str = "superblock";
const NAME_NEW: &str = "superblock.new";
/// What it was, until it becomes the reserve.
const NAME_OLD: &str = "superblock.old";
/// An allocated file that becomes the next superblock: a server must be able to start on a full disk, or nobody could read or remove
/// what is there.
const RESERVE: &str = "superblock.reserve";
/// Its size in bytes; a superblock is smaller.
const RESERVE_BYTES: u64 = 4096;

/// What a server's directory says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// The file system.
    pub fs_id: FsId,
    /// The server.
    pub server: ServerId,
    /// Name of the engine that wrote the directory.
    pub engine: String,
    /// Counts the starts of the server from 1.
    pub boot: u32,
    /// [`Disk::boot_id`] at the last start.
    pub boot_id: u64,
}

impl Superblock {
    /// Reads the superblock; `None` if the directory has none (no server was ever completely formatted here).
    ///
    /// # Errors
    /// [`JournalError::Damaged`] if it makes no sense, is of another version or fails its checksum; [`JournalError::Disk`].
    pub async fn load<D: Disk>(disk: &D) -> Result<Option<Superblock>, JournalError> {
        let names = disk.list().await.map_err(JournalError::during("list the server's directory"))?;
        let has = |wanted: &str| names.iter().any(|name| name == wanted);
        let failed = || JournalError::during("read the superblock");
        match (has(NAME), has(NAME_OLD)) {
            (true, _) => {}
            (false, true) => disk.rename(NAME_NEW, NAME).await.map_err(failed())?,
            (false, false) => return Ok(None),
        }
        let file = disk.open(NAME, false).await.map_err(failed())?;
        let len = disk.len(file).await.map_err(failed())?;
        let bytes = disk.read(file, 0, len.min(4096)).await.map_err(failed())?.to_bytes();
        disk.close(file);
        Superblock::parse(&bytes).map(Some).map_err(JournalError::Damaged)
    }

    /// Writes the superblock durably in place of what was there.
    ///
    /// # Errors
    /// [`JournalError::NoSpace`], [`JournalError::Disk`]; the old one is then still there.
    pub async fn store<D: Disk>(&self, disk: &D) -> Result<(), JournalError> {
        let failed = || JournalError::during("write the superblock");
        if !renamed(disk, RESERVE, NAME_NEW).await.map_err(failed())? {
            renamed(disk, NAME_OLD, NAME_NEW).await.map_err(failed())?;
        }
        let text = Bytes::from(self.text());
        let len = text.len() as u64;
        let file = disk.open(NAME_NEW, true).await.map_err(failed())?;
        disk.write(file, 0, Payload::Real(text)).await.map_err(failed())?;
        // Not before: that would give back the space that was kept.
        disk.set_len(file, len).await.map_err(failed())?;
        disk.sync(file).await.map_err(failed())?;
        disk.close(file);
        let is_replaced = renamed(disk, NAME, NAME_OLD).await.map_err(failed())?;
        disk.rename(NAME_NEW, NAME).await.map_err(failed())?;
        if is_replaced {
            disk.rename(NAME_OLD, RESERVE).await.map_err(failed())?;
        }
        // Also what was made without room for it gets its block when there is some.
        match keep_reserve(disk).await {
            Ok(()) | Err(DiskError::NoSpace) => Ok(()),
            Err(error) => Err(JournalError::during(format!("allocate {RESERVE}"))(error)),
        }
    }

    fn text(&self) -> String {
        let fields = format!(
            "weft superblock {FORMAT}\nfs_id {}\nserver {}\nengine {}\nboot {}\nboot_id {:016x}\n",
            self.fs_id, self.server.0, self.engine, self.boot, self.boot_id
        );
        let crc = crc32c(fields.as_bytes());
        format!("{fields}crc32c {crc:08x}\n")
    }

    fn parse(bytes: &[u8]) -> Result<Superblock, String> {
        let damaged = |what: &str| format!("the superblock is damaged: {what}");
        let text = std::str::from_utf8(bytes).map_err(|_| damaged("it is no text"))?;
        let version = text.lines().next().and_then(|line| line.strip_prefix("weft superblock ")).ok_or(damaged("wrong first line"))?;
        if version != FORMAT.to_string() {
            return Err(format!("the directory has format {version}, this version reads {FORMAT}"));
        }
        let end = text.find("crc32c ").ok_or(damaged("no checksum"))?;
        let crc = u32::from_str_radix(text[end..].trim_start_matches("crc32c ").trim_end(), 16).map_err(|_| damaged("no checksum"))?;
        if crc != crc32c(&bytes[..end]) {
            return Err(damaged("the checksum does not match"));
        }
        let field = |name: &str| {
            let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            value.ok_or_else(|| damaged(&format!("no field {name}")))
        };
        let number = |name: &str, radix: u32| u64::from_str_radix(field(name)?, radix).map_err(|_| damaged(&format!("field {name}")));
        Ok(Superblock {
            fs_id: FsId(number("fs_id", 16)?),
            server: ServerId(u16::try_from(number("server", 10)?).map_err(|_| damaged("field server"))?),
            engine: field("engine")?.to_string(),
            boot: u32::try_from(number("boot", 10)?).map_err(|_| damaged("field boot"))?,
            boot_id: number("boot_id", 16)?,
        })
    }
}

/// Renames a file, if there is one. True if there was.
async fn renamed<D: Disk>(disk: &D, from: &str, to: &str) -> Result<bool, DiskError> {
    match disk.rename(from, to).await {
        Ok(()) => Ok(true),
        Err(DiskError::NotFound) => Ok(false),
        Err(error) => Err(error),
    }
}

async fn keep_reserve<D: Disk>(disk: &D) -> Result<(), DiskError> {
    let file = disk.open(RESERVE, true).await?;
    let allocated = disk.allocate(file, 0, RESERVE_BYTES).await;
    disk.close(file);
    allocated
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Superblock {
        Superblock { fs_id: FsId(0xfeed), server: ServerId(0x8001), engine: "journal".into(), boot: 7, boot_id: 0xabcdef }
    }

    #[test]
    fn text_round_trips() {
        assert_eq!(Superblock::parse(sample().text().as_bytes()), Ok(sample()));
    }

    #[test]
    fn every_changed_byte_is_noticed() {
        let text = sample().text();
        // The newline behind the checksum carries nothing.
        for at in 0..text.len() - 1 {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            assert_ne!(Superblock::parse(&bytes), Ok(sample()), "byte {at}");
            assert!(Superblock::parse(&bytes).is_err(), "byte {at}");
        }
        for end in 0..text.len() - 1 {
            assert!(Superblock::parse(&text.as_bytes()[..end]).is_err(), "cut at {end}");
        }
    }

    #[test]
    fn another_format_is_named() {
        let text = sample().text().replace("superblock 1", "superblock 2");
        assert!(Superblock::parse(text.as_bytes()).unwrap_err().contains("format 2"));
    }
}
