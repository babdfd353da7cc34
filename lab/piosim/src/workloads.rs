//! Workloads as programs, and the database test of the thesis (section 6.5).

use weft_model::random::Lcg48;
use weft_workload::{Sharing, Workload};

use crate::program::{Access, Application, Command, Extent, FileId, WORLD, push_merged};

/// Reading or writing, or both in random turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessKind {
    /// All operations read.
    Read,
    /// All operations write.
    Write,
    /// Each operation is drawn (database test only).
    ReadWrite,
}

impl AccessKind {
    /// All.
    pub const ALL: [AccessKind; 3] = [AccessKind::Read, AccessKind::Write, AccessKind::ReadWrite];

    /// For people.
    pub fn name(self) -> &'static str {
        ["read", "write", "read/write"][self as usize]
    }
}

/// How ranks go over their blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Manner {
    /// The last call is a whole one even if it goes beyond the end of the file: what the program of
    /// the thesis did. Otherwise it has the blocks that are left.
    pub whole_last: bool,
    /// Cycles that a rank computes before each call.
    pub think_cycles: u64,
}

/// One step of a workload, writing or reading all blocks: each client is a rank.
#[derive(Clone, Copy, Debug)]
pub struct Transfer<'a> {
    /// What is transferred.
    pub work: &'a Workload,
    /// Whether the program writes.
    pub writes: bool,
}

impl Transfer<'_> {
    fn ranks(&self) -> u32 {
        self.work.clients_in_all() as u32
    }

    /// A block of a rank, also one behind its last.
    fn extent(&self, rank: u32, number: u64, index: u64) -> Extent {
        let bytes =
            if index < self.work.blocks_of(number) { self.work.block_of(rank.into(), number, index).bytes } else { self.work.block };
        Extent { offset: self.work.offset_of(rank.into(), number, index), bytes }
    }

    /// Open (cutting the files if they are written), commands from `fill`, close. `fill` is given
    /// the file of a rank by its number.
    fn application(&self, name: &str, fill: impl FnOnce(&mut Application, &dyn Fn(u32, u64) -> FileId)) -> Application {
        let mut app = Application::new(name, self.ranks());
        let files = match self.work.sharing {
            Sharing::Own => (0..self.ranks()).flat_map(|rank| (0..self.work.files).map(move |number| (rank, number))).collect(),
            Sharing::Parts | Sharing::Interleaved => vec![(0, 0)],
        };
        let own = self.work.sharing == Sharing::Own;
        let mut opened = Vec::with_capacity(files.len());
        for (rank, number) in files {
            let name = if own { format!("file {rank}.{number}") } else { "file".to_string() };
            let bytes = if own { self.work.bytes_of(number) } else { self.work.bytes() as u64 };
            opened.push(app.file(&name, if self.writes { 0 } else { bytes }));
        }
        for &file in &opened {
            app.push_all(Command::FileOpen { comm: WORLD, file, truncate: self.writes });
        }
        let of = |rank: u32, number: u64| if own { opened[(u64::from(rank) * self.work.files + number) as usize] } else { opened[0] };
        fill(&mut app, &of);
        for &file in &opened {
            app.push_all(Command::FileClose { comm: WORLD, file });
        }
        app
    }

    fn operation(&self, file: FileId, access: Access) -> Command {
        if self.writes { Command::FileWrite { file, access } } else { Command::FileRead { file, access } }
    }

    fn list(&self, rank: u32, number: u64, blocks: std::ops::Range<u64>) -> Access {
        let mut list = Vec::with_capacity((blocks.end - blocks.start) as usize);
        for block in blocks {
            push_merged(&mut list, self.extent(rank, number, block));
        }
        Access::List(list)
    }

    /// Each rank on its own, call by call.
    pub fn individual(&self, manner: Manner) -> Application {
        self.application("individual", |app, file| {
            for (rank, number) in (0..self.ranks()).flat_map(|rank| (0..self.work.streams_of()).map(move |number| (rank, number))) {
                let (blocks, step) = (self.work.blocks_of(number), self.work.blocks_per_call(number));
                let end = if manner.whole_last { u64::MAX } else { blocks };
                for first in (0..blocks).step_by(step as usize) {
                    if manner.think_cycles > 0 {
                        app.push(rank, Command::Compute { cycles: manner.think_cycles });
                    }
                    let last = first.saturating_add(step).min(end);
                    let access =
                        if step == 1 { Access::Contiguous(self.extent(rank, number, first)) } else { self.list(rank, number, first..last) };
                    app.push(rank, self.operation(file(rank, number), access));
                }
            }
        })
    }

    /// All ranks together, everything of a file in one collective operation. Blocks that do not go
    /// round once more belong to the first ranks.
    pub fn collective(&self) -> Application {
        let more = self.work.tail / self.work.block;
        self.application("collective", |app, file| {
            for (rank, number) in (0..self.ranks()).flat_map(|rank| (0..self.work.streams_of()).map(move |number| (rank, number))) {
                let blocks = self.work.blocks_of(number) + u64::from(u64::from(rank) < more);
                let (comm, file, access) = (WORLD, file(rank, number), self.list(rank, number, 0..blocks));
                let command =
                    if self.writes { Command::FileWriteAll { comm, file, access } } else { Command::FileReadAll { comm, file, access } };
                app.push(rank, command);
            }
        })
    }

    /// Each rank its own blocks one by one, in an order drawn for all ranks together.
    pub fn random(&self, random: &mut Lcg48) -> Application {
        let blocks = (0..self.work.streams_of()).flat_map(|number| (0..self.work.blocks_of(number)).map(move |block| (number, block)));
        let mut all: Vec<(u64, u64, u32)> =
            blocks.flat_map(|(number, block)| (0..self.ranks()).map(move |rank| (number, block, rank))).collect();
        random.shuffle(&mut all);
        self.application("random", |app, file| {
            for (number, block, rank) in all {
                app.push(rank, self.operation(file(rank, number), Access::Contiguous(self.extent(rank, number, block))));
            }
        })
    }
}

/// Small elements at random places of several files (thesis section 6.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Database {
    /// Ranks, and files.
    pub ranks: u32,
    /// Bytes of each file.
    pub file_bytes: u64,
    /// Bytes of an element; offsets and lengths are multiples.
    pub element_bytes: u64,
    /// Bytes that a rank accesses in each turn.
    pub turn_bytes: u64,
    /// Turns of each rank, if one block makes an operation. With `n` blocks in each, only a turn in
    /// `n` is made, as in the thesis.
    pub turns: u64,
    /// Blocks in each operation.
    pub per_operation: u64,
    /// Reading, writing or both.
    pub access: AccessKind,
}

impl Database {
    /// The program for the next numbers of `random`.
    pub fn application(&self, random: &mut Lcg48) -> Application {
        let mut app = Application::new("database", self.ranks);
        let files: Vec<u32> = (0..self.ranks).map(|file| app.file(&format!("file {file}"), self.file_bytes)).collect();
        for &file in &files {
            app.push_all(Command::FileOpen { comm: WORLD, file, truncate: false });
        }
        for _ in (0..self.turns).step_by(self.per_operation as usize) {
            for rank in 0..self.ranks {
                let file = files[random.next_below(self.ranks) as usize];
                let mut left = self.turn_bytes;
                while left > 0 {
                    let list = self.blocks(random, &mut left);
                    let reads = match self.access {
                        AccessKind::Read => true,
                        AccessKind::Write => false,
                        AccessKind::ReadWrite => random.next_bool(),
                    };
                    let access = Access::List(list);
                    let command = if reads { Command::FileRead { file, access } } else { Command::FileWrite { file, access } };
                    app.push(rank, command);
                }
            }
        }
        for &file in &files {
            app.push_all(Command::FileClose { comm: WORLD, file });
        }
        app
    }

    fn blocks(&self, random: &mut Lcg48, left: &mut u64) -> Vec<Extent> {
        let mut list = Vec::new();
        for _ in 0..self.per_operation {
            if *left == 0 {
                break;
            }
            let place = random.next_i64().unsigned_abs() % self.file_bytes;
            let offset = place / self.element_bytes * self.element_bytes;
            let bytes = u64::from(random.next_below(100) + 1) * self.element_bytes;
            let bytes = bytes.min(self.file_bytes - offset).min(*left);
            push_merged(&mut list, Extent { offset, bytes });
            *left -= bytes;
        }
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interleaved(ranks: u32, size: u64, per_call: u64) -> Workload {
        Workload { procs: ranks, size, block: 10, per_call, sharing: Sharing::Interleaved, ..Workload::stream() }
    }

    #[test]
    fn operations_end_with_the_file() {
        for per_call in [1, 2, 3, 100, 0] {
            let app = Transfer { work: &interleaved(2, 50, per_call), writes: true }.individual(Manner::default());
            let accesses = app.programs.iter().flat_map(|program| &program.commands).filter_map(|command| match command {
                Command::FileWrite { access, .. } => Some(access.bytes()),
                _ => None,
            });
            assert_eq!(accesses.sum::<u64>(), 100, "{per_call} blocks in each operation");
        }
    }

    #[test]
    fn in_2009_an_operation_may_go_beyond_the_end_but_starts_before_it() {
        let work = interleaved(2, 50, 2);
        let app = Transfer { work: &work, writes: true }.individual(Manner { whole_last: true, ..Manner::default() });
        // Five blocks for each rank: three operations of two.
        assert_eq!(app.programs[1].commands.len(), 2 + 3);
        let Command::FileWrite { access: Access::List(list), .. } = &app.programs[1].commands[3] else { panic!("a write of a list") };
        assert_eq!(*list, [Extent { offset: 90, bytes: 10 }, Extent { offset: 110, bytes: 10 }]);
    }

    #[test]
    fn own_files_and_the_tail_of_a_collective_operation() {
        let own = Workload { sharing: Sharing::Own, files: 2, ..interleaved(3, 25, 1) };
        let app = Transfer { work: &own, writes: false }.individual(Manner { think_cycles: 7, ..Manner::default() });
        assert_eq!((app.files.len(), app.files[1].initial_bytes), (6, 25));
        // Six files opened and closed; two files of three blocks, each after computing.
        assert_eq!(app.programs[2].commands.len(), 12 + 2 * 3 * 2);
        let tail = Workload { tail: 19, ..interleaved(2, 20, 1) };
        let app = Transfer { work: &tail, writes: true }.collective();
        let bytes = app.programs.iter().map(|program| match &program.commands[1] {
            Command::FileWriteAll { access, .. } => access.bytes(),
            other => panic!("{other:?}"),
        });
        assert_eq!(bytes.collect::<Vec<_>>(), [30, 20]);
    }

    #[test]
    fn a_random_program_has_every_block_once() {
        let app = Transfer { work: &interleaved(3, 7 * 10, 1), writes: false }.random(&mut Lcg48::new(1));
        let mut offsets: Vec<u64> = app
            .programs
            .iter()
            .flat_map(|program| &program.commands)
            .filter_map(|command| match command {
                Command::FileRead { access: Access::Contiguous(extent), .. } => Some(extent.offset),
                _ => None,
            })
            .collect();
        assert_ne!(offsets[..3], [0, 30, 60]);
        offsets.sort_unstable();
        assert!(offsets.into_iter().eq((0..21).map(|block| block * 10)));
    }

    #[test]
    fn a_database_turn_accesses_its_bytes() {
        let test = Database {
            ranks: 10,
            file_bytes: 1_280_000_000,
            element_bytes: 512,
            turn_bytes: 1_280_000,
            turns: 10,
            per_operation: 10,
            access: AccessKind::ReadWrite,
        };
        let app = test.application(&mut Lcg48::new(0));
        let bytes: u64 = app
            .programs
            .iter()
            .flat_map(|program| &program.commands)
            .map(|command| match command {
                Command::FileRead { access, .. } | Command::FileWrite { access, .. } => access.bytes(),
                _ => 0,
            })
            .sum();
        assert_eq!(bytes, 12_800_000);
    }
}
