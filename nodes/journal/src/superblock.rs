//! The superblock: whose directory this is. A small text file, so that a person can read it, closed
//! by a checksum.
//!
//! It is replaced by a second file that is complete on the disk first. The two change places by
//! renames and are both kept, so that no start needs room on the disk:
//! ```text
//! superblock.reserve ─▶ superblock.new (written, synced) ─▶ superblock ─▶ superblock.old ─▶ superblock.reserve
//! ```
//! Between the second and the third rename there is no `superblock`; then `superblock.new` is
//! whole, and the next start takes it.

use std::collections::BTreeMap;

use bytes::Bytes;
use weft_base::{ClusterMap, FsId, Generation, Payload, ServerEntry, ServerId, ServerRole, Status};
use weft_rt::{Disk, DiskError};
use weft_wire::crc32c;

use crate::{JournalError, StoreFeatures};

/// Version of the superblock. Other formats have versions of their own, and what they have beyond
/// these is a feature.
const FORMAT: u32 = 3;
/// In front of it.
const MAGIC: &str = "weft superblock ";
const NAME: &str = "superblock";
const NAME_NEW: &str = "superblock.new";
/// What it was, until it becomes the reserve.
const NAME_OLD: &str = "superblock.old";
/// An allocated file that becomes the next superblock: a server must be able to start on a full
/// disk, or nobody could read or remove what is there.
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
    /// The start whose life ended in order: everything was on stable storage, and nothing came
    /// after that. Of an earlier start it says nothing.
    pub stopped: Option<u32>,
    /// The newest cluster map that the server has agreed to; what its configuration said, while
    /// that is none (epoch 0).
    pub map: ClusterMap,
    /// Drawn when the store was made: a server of the same number with another birth is not the
    /// same server.
    pub birth: u64,
    /// The servers that this one has met; itself, once the others know it.
    pub met: BTreeMap<ServerId, MetServer>,
    /// The contract that somebody has set while the server ran; the configuration says another one
    /// perhaps.
    pub durability: Option<String>,
    /// What the formats of the directory have beyond their versions.
    pub features: StoreFeatures,
    /// Lines of a newer program, which are kept as they are.
    pub others: Vec<String>,
}

/// What is known of the store of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetServer {
    /// Drawn when it was made.
    pub birth: u64,
    /// A record that its journal had on stable storage: one that ends before is an older copy. 0:
    /// none is known.
    pub durable_lsn: u64,
}

impl Superblock {
    /// Of a new store. `birth` is drawn; it is never 0.
    pub fn new(map: &ClusterMap, server: ServerId, engine: &str, boot_id: u64, birth: u64) -> Superblock {
        let (fs_id, map, engine) = (map.fs_id, map.clone(), engine.to_string());
        let (features, met, others) = (StoreFeatures::default(), BTreeMap::new(), Vec::new());
        let (stopped, durability) = (None, None);
        Superblock { fs_id, server, engine, boot: 0, boot_id, stopped, map, birth: birth | 1, met, durability, features, others }
    }

    /// True if the last life of the server ended in order, so that no power cut since then has
    /// taken anything.
    pub fn has_stopped(&self) -> bool {
        self.stopped == Some(self.boot)
    }

    /// Compares the directory with a configuration: server and file system, engine, and the servers
    /// that the file system has.
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
        self.check_servers(map)
    }

    /// Checks that a configuration names all servers that the file system has.
    ///
    /// # Errors
    /// Which one is missing, and what to do.
    pub fn check_servers(&self, config: &ClusterMap) -> Result<(), String> {
        if self.map.epoch == 0 { Ok(()) } else { self.map.check_config(config) }
    }

    /// True if the others know this server.
    pub fn is_introduced(&self) -> bool {
        self.met.contains_key(&self.server)
    }

    /// Notes the birth of a server. True if it was not known: store the superblock before anybody
    /// relies on it.
    ///
    /// # Errors
    /// [`Status::StoreReplaced`] if another one of that number is known.
    pub fn meet(&mut self, server: ServerId, birth: u64) -> weft_base::Result<bool> {
        match self.met.get(&server) {
            Some(known) if known.birth == birth => Ok(false),
            Some(_) => Err(Status::StoreReplaced),
            None => {
                self.met.insert(server, MetServer { birth, durable_lsn: 0 });
                Ok(true)
            }
        }
    }

    /// Reads the superblock; `None` if the directory has none (no server was ever completely
    /// formatted here).
    ///
    /// # Errors
    /// [`JournalError::Damaged`] if it makes no sense, is of another version or fails its checksum;
    /// [`JournalError::Foreign`] if the directory needs a feature that this program does not know;
    /// [`JournalError::Disk`].
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
        let superblock = Superblock::parse(&bytes).map_err(JournalError::Damaged)?;
        superblock.features.check_writable().map_err(JournalError::Foreign)?;
        Ok(Some(superblock))
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
        let text = Bytes::from(self.to_text());
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

    /// The text of the file.
    pub fn to_text(&self) -> String {
        let mut fields = format!(
            "weft superblock {FORMAT}\nfs_id {}\nserver {}\nengine {}\nboot {}\nboot_id {:016x}\nbirth {:016x}\n",
            self.fs_id, self.server.0, self.engine, self.boot, self.boot_id, self.birth
        );
        if let Some(boot) = self.stopped {
            fields += &format!("stopped {boot}\n");
        }
        fields += &map_text(&self.map);
        for (server, MetServer { birth, durable_lsn }) in &self.met {
            fields += &format!("knows {} {birth:016x}\n", server.0);
            if *durable_lsn > 0 {
                fields += &format!("durable {} {durable_lsn}\n", server.0);
            }
        }
        if let Some(durability) = &self.durability {
            fields += &format!("durability {durability}\n");
        }
        for line in self.features.lines().chain(self.others.iter().cloned()) {
            fields += &format!("{line}\n");
        }
        let crc = crc32c(fields.as_bytes());
        format!("{fields}crc32c {crc:08x}\n")
    }

    /// That it has another format, and what to do then; `None` if it has this one, or is none.
    pub fn of_another_format(bytes: &[u8]) -> Option<String> {
        let line = bytes.strip_prefix(MAGIC.as_bytes())?.split(|byte| *byte == b'\n').next()?;
        let version = std::str::from_utf8(line).ok()?.parse::<u32>().ok().filter(|version| *version != FORMAT)?;
        Some(format!(
            "the directory has format {version}, and this weft reads format {FORMAT}; \
             a weft of that format can serve it, and copy it to a file system of this one (weft cp)"
        ))
    }

    /// Reads the text of a superblock.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(bytes: &[u8]) -> Result<Superblock, String> {
        let damaged = |what: &str| format!("the superblock is damaged: {what}");
        if let Some(what) = Superblock::of_another_format(bytes) {
            return Err(what);
        }
        let text = std::str::from_utf8(bytes).map_err(|_| damaged("it is no text"))?;
        if !text.starts_with(MAGIC) {
            return Err(damaged("wrong first line"));
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
        let of_servers = |name: &'static str, radix: u32| {
            lines(name).map(move |line| {
                let (server, value) = line.split_once(' ')?;
                Some((ServerId(server.parse().ok()?), u64::from_str_radix(value, radix).ok()?))
            })
        };
        let mut met = BTreeMap::new();
        for known in of_servers("knows", 16) {
            let (server, birth) = known.ok_or(damaged("field knows"))?;
            met.insert(server, MetServer { birth, durable_lsn: 0 });
        }
        for known in of_servers("durable", 10) {
            let (server, lsn) = known.ok_or(damaged("field durable"))?;
            met.get_mut(&server).ok_or(damaged("field durable"))?.durable_lsn = lsn;
        }
        let number = |name: &str, radix: u32| u64::from_str_radix(field(name)?, radix).map_err(|_| damaged(&format!("field {name}")));
        let fs_id = FsId(number("fs_id", 16)?);
        let mut map = ClusterMap {
            fs_id,
            fs_name: field("fs_name")?.to_string(),
            epoch: u32::try_from(number("epoch", 10)?).map_err(|_| damaged("field epoch"))?,
            meta: Vec::new(),
            data: Vec::new(),
            generations: Vec::new(),
            stripe_bytes: u32::try_from(number("stripe_bytes", 10)?).map_err(|_| damaged("field stripe_bytes"))?,
            stripe_width: u16::try_from(number("stripe_width", 10)?).map_err(|_| damaged("field stripe_width"))?,
        };
        for member in lines("member") {
            let entry = parse_member(member).ok_or(damaged("field member"))?;
            if entry.id.role() == ServerRole::Meta { &mut map.meta } else { &mut map.data }.push(entry);
        }
        for generation in lines("generation") {
            map.generations.push(parse_generation(generation).ok_or(damaged("field generation"))?);
        }
        map.check().map_err(|_| damaged("its cluster map makes no sense"))?;
        Ok(Superblock {
            fs_id,
            server: ServerId(u16::try_from(number("server", 10)?).map_err(|_| damaged("field server"))?),
            engine: field("engine")?.to_string(),
            boot: u32::try_from(number("boot", 10)?).map_err(|_| damaged("field boot"))?,
            boot_id: number("boot_id", 16)?,
            stopped: field("stopped").ok().map(|boot| boot.parse().map_err(|_| damaged("field stopped"))).transpose()?,
            map,
            birth: number("birth", 16)?,
            met,
            durability: field("durability").ok().map(String::from),
            features: StoreFeatures::from_lines(text.lines()),
            others: text[..end].lines().skip(1).filter(|line| !is_known(line)).map(String::from).collect(),
        })
    }
}

/// True for a line that is not kept as it is.
fn is_known(line: &str) -> bool {
    const FIELDS: [&str; 10] = ["fs_id", "server", "engine", "boot", "boot_id", "stopped", "birth", "knows", "durable", "durability"];
    const OF_MAP: [&str; 6] = ["fs_name", "epoch", "stripe_bytes", "stripe_width", "member", "generation"];
    let name = line.split(' ').next().unwrap_or(line);
    FIELDS.contains(&name) || OF_MAP.contains(&name) || StoreFeatures::is_line(line)
}

fn map_text(map: &ClusterMap) -> String {
    let mut text =
        format!("fs_name {}\nepoch {}\nstripe_bytes {}\nstripe_width {}\n", map.fs_name, map.epoch, map.stripe_bytes, map.stripe_width);
    for ServerEntry { id, name, address } in map.servers() {
        text += &format!("member {} {} {name} {address}\n", id.role(), id.index());
    }
    for generation in &map.generations {
        let mut runs: Vec<(usize, usize)> = Vec::new();
        for index in generation.data.iter().map(|id| id.index()) {
            match runs.last_mut() {
                Some((_, last)) if *last + 1 == index => *last = index,
                _ => runs.push((index, index)),
            }
        }
        let runs: Vec<String> =
            runs.into_iter().map(|(from, to)| if from == to { from.to_string() } else { format!("{from}-{to}") }).collect();
        text += &format!("generation {} {}\n", generation.id, runs.join(" "));
    }
    text
}

/// Role, number, name, address.
fn parse_member(text: &str) -> Option<ServerEntry> {
    let mut parts = text.splitn(4, ' ');
    let role = parts.next()?;
    let index = parts.next()?.parse::<u16>().ok().filter(|index| *index < ServerId::FIRST_DATA)?;
    let id = match role {
        "meta" => ServerId(index),
        "data" => ServerId::data(index),
        _ => return None,
    };
    Some(ServerEntry { id, name: parts.next()?.to_string(), address: parts.next()?.to_string() })
}

/// The epoch that began it, and data servers: numbers, or runs of them.
fn parse_generation(text: &str) -> Option<Generation> {
    let mut parts = text.split(' ');
    let mut generation = Generation { id: parts.next()?.parse().ok()?, data: Vec::new() };
    for run in parts {
        let (from, to) = run.split_once('-').unwrap_or((run, run));
        let (from, to) = (from.parse::<u16>().ok()?, to.parse::<u16>().ok()?);
        if to >= ServerId::FIRST_DATA {
            return None;
        }
        generation.data.extend((from..=to).map(ServerId::data));
    }
    Some(generation)
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

    fn entry(id: ServerId, name: &str) -> ServerEntry {
        ServerEntry { id, name: name.into(), address: format!("unix:/with spaces/{id} ") }
    }

    fn sample() -> Superblock {
        Superblock {
            fs_id: FsId(0xfeed),
            server: ServerId(0x8001),
            engine: "journal".into(),
            boot: 7,
            boot_id: 0xabcdef,
            stopped: Some(7),
            map: ClusterMap {
                fs_id: FsId(0xfeed),
                fs_name: "some name".into(),
                epoch: 9,
                meta: vec![entry(ServerId(0), "boot"), entry(ServerId(7), "crc32c")],
                data: [0, 1, 2, 5].map(|index| entry(ServerId::data(index), "epoch")).to_vec(),
                generations: vec![
                    Generation { id: 1, data: [1, 0].map(ServerId::data).to_vec() },
                    Generation { id: 9, data: [1, 0, 1, 2, 5].map(ServerId::data).to_vec() },
                ],
                stripe_bytes: 65536,
                stripe_width: 2,
            },
            birth: 0x0123_4567_89ab_cdef,
            met: [(0, 5, 77), (0x8001, 0x0123_4567_89ab_cdef, 0)]
                .map(|(server, birth, durable_lsn)| (ServerId(server), MetServer { birth, durable_lsn }))
                .into(),
            durability: Some("sync".into()),
            features: StoreFeatures::from_lines(["compatible colours"].into_iter()),
            others: vec!["of_a_newer weft".into()],
        }
    }

    #[test]
    fn text_round_trips() {
        assert_eq!(Superblock::parse(sample().to_text().as_bytes()), Ok(sample()));
    }

    #[test]
    fn every_changed_byte_is_noticed() {
        let text = sample().to_text();
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
    fn a_config_may_name_more_servers_and_no_fewer() {
        let superblock = sample();
        let mut config = superblock.map.unagreed();
        config.data.push(entry(ServerId::data(9), "data9"));
        assert_eq!(superblock.check_servers(&config), Ok(()));
        config.data.retain(|server| server.id != ServerId::data(2));
        assert!(superblock.check_servers(&config).unwrap_err().contains("role = \"data\" and id = 2"));
        let fresh = Superblock { map: superblock.map.unagreed(), ..superblock };
        assert_eq!(fresh.check_servers(&config), Ok(()), "nobody has agreed to what it says");
    }

    #[test]
    fn another_format_is_named() {
        for other in [2, 4] {
            let text = sample().to_text().replace("superblock 3", &format!("superblock {other}"));
            let said = Superblock::parse(text.as_bytes()).unwrap_err();
            assert!(said.contains(&format!("format {other}, and this weft reads format 3")), "{said}");
            assert!(said.contains("a weft of that format can serve it"), "{said}");
        }
    }
}
