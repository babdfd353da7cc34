//! Programs written in a plan: `kind = "program"`, with a list of steps that every rank (or one of
//! them) carries out.

use anyhow::Result;
use toml::de::DeValue;
use weft_piosim::program::WORLD;
use weft_piosim::{Access, Application, Command, Extent};

use weft_plan::document::{Choices, Table, integer, show, text, truth};
use weft_plan::units::{bytes, count, name, up_to};
use weft_plan::workload::{BLOCKS_MAX, RANKS_MAX};

/// What a step may do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Do {
    Compute,
    Send,
    Recv,
    Sendrecv,
    Wait,
    Barrier,
    Bcast,
    Reduce,
    Allreduce,
    Gather,
    Allgather,
    Open,
    Close,
    Read,
    Write,
    ReadAll,
    WriteAll,
}

const STEPS: [(&str, Do); 17] = [
    ("compute", Do::Compute),
    ("send", Do::Send),
    ("recv", Do::Recv),
    ("sendrecv", Do::Sendrecv),
    ("wait", Do::Wait),
    ("barrier", Do::Barrier),
    ("bcast", Do::Bcast),
    ("reduce", Do::Reduce),
    ("allreduce", Do::Allreduce),
    ("gather", Do::Gather),
    ("allgather", Do::Allgather),
    ("open", Do::Open),
    ("close", Do::Close),
    ("read", Do::Read),
    ("write", Do::Write),
    ("read_all", Do::ReadAll),
    ("write_all", Do::WriteAll),
];
/// Commands of one program at most: beyond that a plan has a number wrong.
const COMMANDS_MAX: u64 = 50_000_000;

/// Another rank, as seen from one.
#[derive(Clone, Copy)]
enum Peer {
    Rank(u64),
    Next,
    Previous,
    Any,
}

impl Peer {
    /// `None`: any.
    fn of(self, rank: u32, ranks: u32) -> Option<u32> {
        match self {
            Peer::Rank(peer) => u32::try_from(peer).ok(),
            Peer::Next => Some((rank + 1) % ranks),
            Peer::Previous => Some((rank + ranks - 1) % ranks),
            Peer::Any => None,
        }
    }
}

fn peer(value: &DeValue<'_>) -> Result<Peer, String> {
    match text(value).as_deref() {
        Ok("next") => Ok(Peer::Next),
        Ok("previous") => Ok(Peer::Previous),
        Ok("any") => Ok(Peer::Any),
        _ => integer(value).map(Peer::Rank).map_err(|_| format!("{} is no rank: a number, \"next\", \"previous\" or \"any\"", show(value))),
    }
}

/// Numbers of non-blocking commands, always a list: it does not stand for several values.
fn requests(value: &DeValue<'_>) -> Result<Vec<u32>, String> {
    let DeValue::Array(items) = value else { return Err("must be a list of numbers".into()) };
    let number =
        |value: &DeValue<'_>| integer(value).and_then(|number| u32::try_from(number).map_err(|_| format!("{number} is too large")));
    items.iter().map(|item| number(item.get_ref())).collect()
}

/// A step, read once for all ranks and turns.
struct Step {
    what: Do,
    /// Only this rank does it.
    rank: Option<u32>,
    times: u64,
    cycles: u64,
    bytes: u64,
    file: u32,
    truncate: bool,
    place: Place,
    root: u32,
    tag: u32,
    to: Peer,
    from: Peer,
    request: Option<u32>,
    requests: Vec<u32>,
}

/// Which bytes of the file: `blocks` pieces of `bytes`, `stride` apart, from `offset` plus what
/// rank and turn add.
#[derive(Clone, Copy)]
struct Place {
    offset: u64,
    per_rank: u64,
    per_turn: u64,
    blocks: u64,
    stride: u64,
}

impl Place {
    fn access(self, bytes: u64, rank: u32, turn: u64) -> Option<Access> {
        let first = self.per_rank.checked_mul(rank.into())?.checked_add(self.per_turn.checked_mul(turn)?)?.checked_add(self.offset)?;
        // The end of the last piece must be a byte of a file, too.
        self.stride.checked_mul(self.blocks)?.checked_add(first)?.checked_add(bytes)?;
        if self.blocks == 1 {
            return Some(Access::Contiguous(Extent { offset: first, bytes }));
        }
        Some(Access::list((0..self.blocks).map(|block| (first + block * self.stride, bytes))))
    }
}

/// The application that a `[[workload]]` with `[[workload.step]]` tables describes.
///
/// # Errors
/// Names file, line and key of what is wrong.
pub fn read(table: &Table<'_>, clients: u32, places: &mut Vec<(Option<u32>, u64, String)>, choices: &mut Choices) -> Result<Application> {
    let ranks = table.swept("ranks", choices, |value| up_to(value, RANKS_MAX))?.unwrap_or(clients);
    let turns = u64::from(table.swept("turns", choices, count)?.unwrap_or(1));
    let mut app = Application::new("program", ranks);
    let mut files: Vec<String> = Vec::new();
    for file in table.tables("file")? {
        let Some(called) = file.value("name", text)? else { return Err(file.error("name", "is missing")) };
        let size = file.swept("size", choices, bytes)?.unwrap_or(0);
        app.file(&called, size);
        files.push(called);
        file.finish()?;
    }
    let tables = table.tables("step")?;
    if tables.is_empty() {
        return Err(table.error("step", "is missing: a program needs at least one [[workload.step]]"));
    }
    let steps = tables.iter().map(|table| step(table, ranks, &files, choices)).collect::<Result<Vec<_>>>()?;
    places.extend(steps.iter().zip(&tables).map(|(step, table)| (step.rank, step.times, table.place("do"))));
    let times = |step: &Step| u128::from(turns) * u128::from(step.times) * if step.rank.is_some() { 1 } else { u128::from(ranks) };
    if steps.iter().map(times).sum::<u128>() > u128::from(COMMANDS_MAX) {
        return Err(table.error("turns", &format!("the program has more than {COMMANDS_MAX} commands")));
    }
    if steps.iter().map(|step| times(step) * u128::from(step.place.blocks)).sum::<u128>() > u128::from(BLOCKS_MAX) {
        return Err(table.error("turns", &format!("the program names more than {BLOCKS_MAX} blocks")));
    }
    check_requests(&steps, &tables)?;
    let mut open = vec![vec![false; files.len()]; ranks as usize];
    for turn in 0..turns {
        for (step, table) in steps.iter().zip(&tables) {
            for rank in (0..ranks).filter(|rank| step.rank.is_none_or(|only| only == *rank)) {
                step.follow_open_files(&mut open[rank as usize]).map_err(|verb| {
                    let file = &files[step.file as usize];
                    table.error("file", &format!("{file} is not open when rank {rank} {verb} it: an `open` step must come before"))
                })?;
                for time in 0..step.times {
                    let command = step.command(rank, ranks, turn * step.times + time);
                    app.push(rank, command.ok_or_else(|| table.error("offset", "leads beyond the largest file"))?);
                }
            }
        }
    }
    Ok(app)
}

/// Refuses to wait for what no step before began.
fn check_requests(steps: &[Step], tables: &[Table<'_>]) -> Result<()> {
    for (number, (step, table)) in steps.iter().zip(tables).enumerate() {
        let is_same_rank = |other: &Step| other.rank.is_none() || step.rank.is_none() || other.rank == step.rank;
        let begun = |request: &u32| steps[..number].iter().any(|other| other.request == Some(*request) && is_same_rank(other));
        if let Some(request) = step.requests.iter().find(|request| !begun(request)) {
            return Err(table.error("requests", &format!("no step before has request = {request}")));
        }
    }
    Ok(())
}

fn step(table: &Table<'_>, ranks: u32, files: &[String], choices: &mut Choices) -> Result<Step> {
    let Some(what) = table.swept("do", choices, |value| name(value, &STEPS))? else { return Err(table.error("do", "is missing")) };
    let small = |key: &str, number: u64| u32::try_from(number).map_err(|_| table.error(key, "is too large"));
    let existing = |key: &str, rank: u64| {
        let is_one = rank < u64::from(ranks);
        if is_one {
            small(key, rank)
        } else {
            Err(table.error(key, &format!("there is no rank {rank}: there are {ranks} ranks, from 0 on")))
        }
    };
    let rank = table.swept("rank", choices, integer)?.map(|rank| existing("rank", rank)).transpose()?;
    let needs_file = matches!(what, Do::Open | Do::Close | Do::Read | Do::Write | Do::ReadAll | Do::WriteAll);
    let file = match table.swept("file", choices, text)? {
        Some(called) => match files.iter().position(|file| *file == called) {
            Some(file) => file as u32,
            None => return Err(table.error("file", &format!("there is no [[workload.file]] with the name {called}"))),
        },
        None if needs_file => return Err(table.error("file", "is missing: the name of a [[workload.file]]")),
        None => 0,
    };
    let moves_bytes = matches!(what, Do::Read | Do::Write | Do::ReadAll | Do::WriteAll);
    let sends = matches!(what, Do::Send | Do::Sendrecv);
    let bytes_moved = table.swept("bytes", choices, bytes)?;
    if bytes_moved.is_none() && (moves_bytes || sends) {
        return Err(table.error("bytes", "is missing"));
    }
    let size = bytes_moved.unwrap_or(0);
    let place = Place {
        offset: table.swept("offset", choices, bytes)?.unwrap_or(0),
        per_rank: table.swept("per_rank", choices, bytes)?.unwrap_or(0),
        per_turn: table.swept("per_turn", choices, bytes)?.unwrap_or(0),
        blocks: u64::from(table.swept("blocks", choices, count)?.unwrap_or(1)),
        stride: table.swept("stride", choices, bytes)?.unwrap_or(size),
    };
    let (to, from) = (table.swept("to", choices, peer)?, table.swept("from", choices, peer)?);
    if to.is_none() && sends {
        return Err(table.error("to", "is missing: a rank, \"next\" or \"previous\""));
    }
    if matches!(to, Some(Peer::Any)) {
        return Err(table.error("to", "a message has one receiver"));
    }
    for (key, peer) in [("to", to), ("from", from)] {
        if let Some(Peer::Rank(rank)) = peer {
            existing(key, rank)?;
        }
    }
    let step = Step {
        what,
        rank,
        times: u64::from(table.swept("times", choices, count)?.unwrap_or(1)),
        cycles: table.swept("cycles", choices, integer)?.unwrap_or(0),
        bytes: size,
        file,
        truncate: table.swept("truncate", choices, truth)?.unwrap_or(false),
        place,
        root: existing("root", table.swept("root", choices, integer)?.unwrap_or(0))?,
        tag: small("tag", table.swept("tag", choices, integer)?.unwrap_or(0))?,
        to: to.unwrap_or(Peer::Next),
        from: from.unwrap_or(Peer::Any),
        request: table.swept("request", choices, integer)?.map(|request| small("request", request)).transpose()?,
        requests: table.value("requests", requests)?.unwrap_or_default(),
    };
    table.finish()?;
    Ok(step)
}

impl Step {
    /// Keeps account of the files that a rank has open. `Err`: what it does to a file that is not.
    fn follow_open_files(&self, open: &mut [bool]) -> Result<(), &'static str> {
        let verb = match self.what {
            Do::Open => {
                open[self.file as usize] = true;
                return Ok(());
            }
            Do::Close => "closes",
            Do::Read | Do::ReadAll => "reads",
            Do::Write | Do::WriteAll => "writes",
            _ => return Ok(()),
        };
        let is_open = &mut open[self.file as usize];
        if !std::mem::replace(is_open, *is_open && self.what != Do::Close) { Err(verb) } else { Ok(()) }
    }

    /// What `rank` does in this turn. `None`: bytes beyond what a file can have.
    fn command(&self, rank: u32, ranks: u32, turn: u64) -> Option<Command> {
        let (comm, bytes, file, root, request) = (WORLD, self.bytes, self.file, self.root, self.request);
        let access = || self.place.access(bytes, rank, turn);
        let to = self.to.of(rank, ranks).unwrap_or(u32::MAX);
        let from = self.from.of(rank, ranks);
        Some(match self.what {
            Do::Compute => Command::Compute { cycles: self.cycles },
            Do::Send => Command::Send { comm, to, tag: self.tag, bytes, request },
            Do::Recv => Command::Recv { comm, from, tag: self.tag, request },
            Do::Sendrecv => Command::Sendrecv { comm, to, send_tag: self.tag, bytes, from, recv_tag: self.tag },
            Do::Wait => Command::Wait { requests: self.requests.clone() },
            Do::Barrier => Command::Barrier { comm },
            Do::Bcast => Command::Bcast { comm, root, bytes },
            Do::Reduce => Command::Reduce { comm, root, bytes },
            Do::Allreduce => Command::Allreduce { comm, bytes },
            Do::Gather => Command::Gather { comm, root, bytes },
            Do::Allgather => Command::Allgather { comm, bytes },
            Do::Open => Command::FileOpen { comm, file, truncate: self.truncate },
            Do::Close => Command::FileClose { comm, file },
            Do::Read => Command::FileRead { file, access: access()? },
            Do::Write => Command::FileWrite { file, access: access()? },
            Do::ReadAll => Command::FileReadAll { comm, file, access: access()? },
            Do::WriteAll => Command::FileWriteAll { comm, file, access: access()? },
        })
    }
}
