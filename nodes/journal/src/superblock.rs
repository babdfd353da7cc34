//! The superblock: whose directory this is. A small text file, so that a person can read it, closed by a checksum.
//!
//! It is replaced by a second file that is complete on the disk first. The two change places by renames and are both kept, so that no
//! start needs room on the disk:
//! ```text
//! superblock.reserve ─▶ superblock.new (written, synced) ─▶ superblock ─▶ superblock.old ─▶ superblock.reserve
//! ```
//! Between the second and the third rename there is no `superblock`; then `superblock.new` is whole, and the next start takes it.

use std::collections::BTreeMap;

use bytes::Bytes;
use weft_base::{ClusterMap, FsId, Payload, ServerId, ServerList, Status};
use weft_rt::{Disk, DiskError};
use weft_wire::crc32c;

use crate::JournalError;

/// Version of all formats in the directory.
const FORMAT: u32 = 2;
const NAME: &str = "superblock";
const NAME_NEW: &str = "superblock.new";
/// What it was, until it becomes the reserve.
const NAME_OLD: &str = "superblock.old";
/// An allocated file that becomes the next superblock: a server must be able to start on a full disk, or nobody could read or remove
/// what is there.
const RESERVE: &str = "superblock.reserve";
/// Its size in bytes; a superblock is smaller (some hundred servers).
const RESERVE_BYTES: u64 = 64 << 10;
/// Longest text that is read, in bytes.
const TEXT_BYTES_MAX: u64 = 8 << 20;

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
    /// The servers with which the file system was made.
    pub servers: ServerList,
    /// Drawn when the store was made: a server of the same number with another birth is not the same server.
    pub birth: u64,
    /// The births of the servers that this one has met; its own, once the others know it.
    pub births: BTreeMap<ServerId, u64>,
}

impl Superblock {
    /// Of a new store. `birth` is drawn; it is never 0.
    pub fn new(map: &ClusterMap, server: ServerId, engine: &str, boot_id: u64, birth: u64) -> Superblock {
        let (fs_id, servers, engine) = (map.fs_id, map.server_list(), engine.to_string());
        Superblock { fs_id, server, engine, boot: 0, boot_id, servers, birth: birth | 1, births: BTreeMap::new() }
    }

    /// Compares the directory with a configuration: server and file system, engine, and the servers with which the file system was made.
    ///
    /// # Errors
    /// What is different, and what to do.
    pub fn check_owner(&self, map: &ClusterMap, server: ServerId, engine: &str) -> Result<(), String> {
        let found = format!("the directory belongs to {} of file system {}", self.server, self.fs_id);
        if (self.fs_id, self.server) != (map.fs_id, server) {
            return Err(format!("{found}, not to {server} of file system {}", map.fs_id));
        }
        if self.engine != engine {
            return Err(format!("{found} and was made by engine {}; the configuration says {engine}", self.engine));
        }
        self.check_servers(&map.server_list())
    }

    /// Compares the servers of a configuration with those with which the file system was made.
    ///
    /// # Errors
    /// What is different, and what to do.
    pub fn check_servers(&self, now: &ServerList) -> Result<(), String> {
        self.servers.change(now).map_or(Ok(()), Err)
    }

    /// True if the others know this server.
    pub fn is_introduced(&self) -> bool {
        self.births.contains_key(&self.server)
    }

    /// Notes the birth of a server. True if it was not known: store the superblock before anybody relies on it.
    ///
    /// # Errors
    /// [`Status::StoreReplaced`] if another one of that number is known.
    pub fn meet(&mut self, server: ServerId, birth: u64) -> weft_base::Result<bool> {
        match self.births.get(&server) {
            Some(known) if *known == birth => Ok(false),
            Some(_) => Err(Status::StoreReplaced),
            None => {
                self.births.insert(server, birth);
                Ok(true)
            }
        }
    }

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
        let bytes = disk.read(file, 0, len.min(TEXT_BYTES_MAX)).await.map_err(failed())?.to_bytes();
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
        let mut fields = format!(
            "weft superblock {FORMAT}\nfs_id {}\nserver {}\nengine {}\nboot {}\nboot_id {:016x}\nbirth {:016x}\n",
            self.fs_id, self.server.0, self.engine, self.boot, self.boot_id, self.birth
        );
        for line in self.servers.to_text().lines() {
            fields += &format!("made_with {line}\n");
        }
        for (server, birth) in &self.births {
            fields += &format!("knows {} {birth:016x}\n", server.0);
        }
        let crc = crc32c(fields.as_bytes());
        format!("{fields}crc32c {crc:08x}\n")
    }

    /// Reads the text of a superblock.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(bytes: &[u8]) -> Result<Superblock, String> {
        let damaged = |what: &str| format!("the superblock is damaged: {what}");
        let text = std::str::from_utf8(bytes).map_err(|_| damaged("it is no text"))?;
        let version = text.lines().next().and_then(|line| line.strip_prefix("weft superblock ")).ok_or(damaged("wrong first line"))?;
        if version != FORMAT.to_string() {
            return Err(format!("the directory has format {version}, this version reads {FORMAT}"));
        }
        let end = text.rfind("crc32c ").ok_or(damaged("no checksum"))?;
        let crc = u32::from_str_radix(text[end..].trim_start_matches("crc32c ").trim_end(), 16).map_err(|_| damaged("no checksum"))?;
        if crc != crc32c(&bytes[..end]) {
            return Err(damaged("the checksum does not match"));
        }
        let field = |name: &str| {
            let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            value.ok_or_else(|| damaged(&format!("no field {name}")))
        };
        let lines = |name: &'static str| text.lines().filter_map(move |line| line.strip_prefix(name)?.strip_prefix(' '));
        let made_with: Vec<&str> = lines("made_with").collect();
        let mut births = BTreeMap::new();
        for known in lines("knows") {
            let (server, birth) = known.split_once(' ').ok_or(damaged("field knows"))?;
            let server = server.parse().map_err(|_| damaged("field knows"))?;
            births.insert(ServerId(server), u64::from_str_radix(birth, 16).map_err(|_| damaged("field knows"))?);
        }
        let number = |name: &str, radix: u32| u64::from_str_radix(field(name)?, radix).map_err(|_| damaged(&format!("field {name}")));
        Ok(Superblock {
            fs_id: FsId(number("fs_id", 16)?),
            server: ServerId(u16::try_from(number("server", 10)?).map_err(|_| damaged("field server"))?),
            engine: field("engine")?.to_string(),
            boot: u32::try_from(number("boot", 10)?).map_err(|_| damaged("field boot"))?,
            boot_id: number("boot_id", 16)?,
            servers: ServerList::from_text(&made_with.join("\n")),
            birth: number("birth", 16)?,
            births,
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
        Superblock {
            fs_id: FsId(0xfeed),
            server: ServerId(0x8001),
            engine: "journal".into(),
            boot: 7,
            boot_id: 0xabcdef,
            servers: ServerList { meta: vec!["meta0".into()], data: vec!["crc32c".into(), "boot".into()] },
            birth: 0x0123_4567_89ab_cdef,
            births: [(ServerId(0), 5), (ServerId(0x8001), 0x0123_4567_89ab_cdef)].into(),
        }
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
    fn another_birth_is_another_server() {
        let mut superblock = sample();
        assert!(superblock.is_introduced());
        assert_eq!(superblock.meet(ServerId(0), 5), Ok(false));
        assert_eq!(superblock.meet(ServerId(0), 6), Err(Status::StoreReplaced));
        assert_eq!(superblock.meet(ServerId(1), 7), Ok(true));
        assert_eq!(superblock.meet(ServerId(1), 8), Err(Status::StoreReplaced));
    }

    #[test]
    fn another_format_is_named() {
        let text = sample().text().replace("superblock 2", "superblock 3");
        assert!(Superblock::parse(text.as_bytes()).unwrap_err().contains("format 3"));
    }
}
