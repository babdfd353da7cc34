//! Programs as calls of HDTrace, so that [`crate::from_hdtrace`] makes the same programs of them
//! again. Several applications become one: ranks and files of all are numbered together, and the
//! world of each is a communicator.

use std::collections::BTreeMap;

use weft_hdtrace::{
    Communicator, Datatype as Listed, Dimension, Element, Member, Project, ProjectFile, RankTypes, SIMULATED, StructPart, range_elements,
};

use crate::program::{Access, Application, CommId, Command, Datatype, FileId, FileView, Rank};

/// The number of the datatype of a byte, which every rank has.
const BYTE: i64 = 1;

/// Applications as calls.
pub struct Calls<'a> {
    applications: Vec<Placed<'a>>,
    project: Project,
    /// Numbers of datatypes, by rank of all and position in its program.
    views: BTreeMap<(Rank, usize), i64>,
}

/// An application and what comes before its own numbers.
struct Placed<'a> {
    application: &'a Application,
    first_rank: u32,
    first_file: u32,
    first_communicator: u32,
}

impl<'a> Calls<'a> {
    /// The calls of these applications.
    pub fn of(applications: impl Iterator<Item = &'a Application>) -> Calls<'a> {
        let mut calls = Calls { applications: Vec::new(), project: Project::default(), views: BTreeMap::new() };
        calls.project.other.push(Element::new(SIMULATED));
        let mut first_rank = 0;
        for application in applications {
            let project = &mut calls.project;
            let (first_file, first_communicator) = (project.files.len() as u32, project.communicators.len() as u32);
            for file in &application.files {
                // Files are told apart by their names.
                let mut name = file.name.clone();
                for number in 2.. {
                    if project.files.iter().all(|known| known.name != name) {
                        break;
                    }
                    name = format!("{} ({number})", file.name);
                }
                project.files.push(ProjectFile { name, initial_bytes: file.initial_bytes, ..ProjectFile::default() });
            }
            for ranks in &application.communicators {
                let id = project.communicators.len() as i64;
                let member = |(local, rank): (u32, &Rank)| Member { global: first_rank + rank, local, id };
                project.communicators.push(Communicator { name: String::new(), members: (0..).zip(ranks).map(member).collect::<Vec<_>>() });
            }
            for (rank, program) in (first_rank..).zip(&application.programs) {
                let mut types = Types { types: Vec::new(), known: Vec::new() };
                for (position, command) in program.commands.iter().enumerate() {
                    if let Command::FileSetView { view, .. } = command {
                        calls.views.insert((rank, position), types.number(&view.filetype));
                    }
                }
                if !types.types.is_empty() {
                    calls.project.datatypes.push(RankTypes { rank, thread: "0".to_string(), types: types.types });
                }
            }
            calls.applications.push(Placed { application, first_rank, first_file, first_communicator });
            first_rank += application.ranks();
        }
        calls
    }

    /// Communicators, datatypes and files.
    pub fn project(&self) -> &Project {
        &self.project
    }

    /// The command at a position of the program of a rank of an application.
    ///
    /// # Panics
    /// If there is none.
    pub fn call(&self, application: usize, rank: Rank, position: usize) -> Element {
        let placed = &self.applications[application];
        let command = &placed.application.programs[rank as usize].commands[position];
        let rank = placed.first_rank + rank;
        let start = |name: &str| Element::new(name).with("rank", rank);
        let cid = |comm: CommId| placed.first_communicator + comm;
        let fid = |file: FileId| placed.first_file + file;
        match command {
            Command::Compute { cycles } => start("Compute").with("cycles", cycles),
            Command::Send { comm, to, tag, bytes, request } => {
                let call = start(if request.is_some() { "Isend" } else { "Send" }).with("cid", cid(*comm));
                numbered(call.with("toRank", to).with("toTag", tag).with("size", bytes), *request)
            }
            Command::Recv { comm, from, tag, request } => {
                let call = start(if request.is_some() { "Irecv" } else { "Recv" }).with("cid", cid(*comm));
                numbered(call.with("fromRank", sender(*from)).with("fromTag", tag), *request)
            }
            Command::Sendrecv { comm, to, send_tag, bytes, from, recv_tag } => {
                let call = start("Sendrecv").with("cid", cid(*comm)).with("toRank", to).with("toTag", send_tag).with("size", bytes);
                call.with("fromRank", sender(*from)).with("fromTag", recv_tag)
            }
            Command::Wait { requests } => {
                start("Wait").around(requests.iter().map(|request| Element::new("For").with("aid", request)).collect())
            }
            Command::Barrier { comm } => start("Barrier").with("cid", cid(*comm)),
            Command::Bcast { comm, root, bytes } => start("Bcast").with("cid", cid(*comm)).with("rootRank", root).with("size", bytes),
            Command::Reduce { comm, root, bytes } => start("Reduce").with("cid", cid(*comm)).with("rootRank", root).with("size", bytes),
            Command::Gather { comm, root, bytes } => start("Gather").with("cid", cid(*comm)).with("rootRank", root).with("size", bytes),
            Command::Allreduce { comm, bytes } => start("Allreduce").with("cid", cid(*comm)).with("size", bytes),
            Command::Allgather { comm, bytes } => start("Allgather").with("cid", cid(*comm)).with("size", bytes),
            Command::FileOpen { comm, file, truncate } => {
                let name = &self.project.files[fid(*file) as usize].name;
                let call = start("File_open").with("cid", cid(*comm)).with("name", name).with("fid", fid(*file));
                if *truncate { call.with("truncate", "true") } else { call }
            }
            Command::FileClose { comm, file } => start("File_close").with("cid", cid(*comm)).with("fid", fid(*file)),
            Command::FileSetView { file, view: FileView { displacement, .. } } => {
                let call = start("File_set_view").with("fid", fid(*file)).with("offset", displacement);
                call.with("filetid", self.views[&(rank, position)])
            }
            Command::FileRead { file, access } => accessed(start(named(access, "File_read")).with("fid", fid(*file)), access),
            Command::FileWrite { file, access } => accessed(start(named(access, "File_write")).with("fid", fid(*file)), access),
            Command::FileReadAll { comm, file, access } => {
                let call = start(named(access, "File_read_all")).with("cid", cid(*comm));
                accessed(call.with("fid", fid(*file)), access)
            }
            Command::FileWriteAll { comm, file, access } => {
                let call = start(named(access, "File_write_all")).with("cid", cid(*comm));
                accessed(call.with("fid", fid(*file)), access)
            }
        }
    }
}

/// Calls with an offset of their own count it in their view.
fn named(access: &Access, name: &'static str) -> &'static str {
    match (access, name) {
        (Access::View { .. }, "File_read") => "File_read_at",
        (Access::View { .. }, "File_write") => "File_write_at",
        (Access::View { .. }, "File_read_all") => "File_read_at_all",
        (Access::View { .. }, "File_write_all") => "File_write_at_all",
        _ => name,
    }
}

fn accessed(call: Element, access: &Access) -> Element {
    let call = call.with("size", access.bytes());
    let data: Vec<(u64, u64)> = match access {
        Access::View { offset, .. } => return call.with("offset", offset),
        Access::Contiguous(extent) => vec![(extent.offset, extent.bytes)],
        Access::List(list) => list.iter().map(|extent| (extent.offset, extent.bytes)).collect(),
    };
    call.around(range_elements(&data))
}

fn numbered(call: Element, request: Option<u32>) -> Element {
    match request {
        Some(request) => call.with("aid", request),
        None => call,
    }
}

fn sender(from: Option<Rank>) -> i64 {
    from.map_or(-1, i64::from)
}

/// Datatypes of one rank under construction.
struct Types<'a> {
    types: Vec<(i64, String, Listed)>,
    known: Vec<(&'a Datatype, i64)>,
}

impl<'a> Types<'a> {
    fn number(&mut self, datatype: &'a Datatype) -> i64 {
        if let Some((_, number)) = self.known.iter().find(|(known, _)| *known == datatype) {
            return *number;
        }
        let number = match datatype {
            Datatype::Named { bytes } => self.bytes(*bytes),
            Datatype::Contiguous { count, element } => {
                let old = self.number(element);
                self.add("", Listed::Contiguous { count: *count, old })
            }
            Datatype::Vector { count, block_length, stride, element } => {
                let old = self.number(element);
                let stride = i64::try_from(*stride).unwrap_or(i64::MAX);
                self.add("", Listed::Vector { count: *count, block_length: *block_length, stride, old })
            }
            Datatype::Struct { fields } => {
                let part = |field: &'a crate::program::StructField| StructPart {
                    old: self.number(&field.element),
                    displacement: i64::try_from(field.displacement).unwrap_or(i64::MAX),
                    block_length: field.count,
                };
                let parts = fields.iter().map(part).collect();
                self.add("", Listed::Struct(parts))
            }
            Datatype::Subarray { sizes, subsizes, starts, element } => {
                let old = self.number(element);
                let dimension = |((size, part), start): ((&u64, &u64), &u64)| Dimension { size: *size, part: *part, start: *start };
                let dimensions = sizes.iter().zip(subsizes).zip(starts).map(dimension).collect();
                self.add("", Listed::Subarray { row_major: true, dimensions, old })
            }
        };
        self.known.push((datatype, number));
        number
    }

    /// A type without holes of so many bytes.
    fn bytes(&mut self, bytes: u64) -> i64 {
        if self.types.iter().all(|(number, ..)| *number != BYTE) {
            self.types.push((BYTE, "MPI_BYTE".to_string(), Listed::Named));
        }
        match bytes {
            1 => BYTE,
            2 => self.add("MPI_INT16_T", Listed::Named),
            4 => self.add("MPI_INT32_T", Listed::Named),
            8 => self.add("MPI_INT64_T", Listed::Named),
            count => self.add("", Listed::Contiguous { count, old: BYTE }),
        }
    }

    fn add(&mut self, name: &str, datatype: Listed) -> i64 {
        // Behind the number of a byte.
        let number = BYTE + 1 + self.types.len() as i64;
        self.types.push((number, name.to_string(), datatype));
        number
    }
}
