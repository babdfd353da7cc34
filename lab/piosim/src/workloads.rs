//! The benchmark programs of the thesis (chapter 6) as applications of any size.

use weft_model::random::Lcg48;

use crate::program::{Access, Application, Command, Extent, WORLD, push_merged};

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

/// One file in blocks that the ranks share in turns: block `i` belongs to rank `i mod ranks`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interleaved {
    /// Ranks.
    pub ranks: u32,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Whether the program writes.
    pub writes: bool,
}

impl Interleaved {
    fn blocks_per_rank(&self) -> u64 {
        self.file_bytes / self.block_bytes / u64::from(self.ranks)
    }

    fn extent(&self, block: u64, rank: u32) -> Extent {
        Extent { offset: (block * u64::from(self.ranks) + u64::from(rank)) * self.block_bytes, bytes: self.block_bytes }
    }

    /// Open (cutting the file if it is written), commands from `fill`, close.
    fn application(&self, name: &str, fill: impl FnOnce(&mut Application, u32)) -> Application {
        let mut app = Application::new(name, self.ranks);
        let file = app.file("file", if self.writes { 0 } else { self.file_bytes });
        app.push_all(Command::FileOpen { comm: WORLD, file, truncate: self.writes });
        fill(&mut app, file);
        app.push_all(Command::FileClose { comm: WORLD, file });
        app
    }

    fn operation(&self, file: u32, access: Access) -> Command {
        if self.writes { Command::FileWrite { file, access } } else { Command::FileRead { file, access } }
    }

    fn list(&self, rank: u32, blocks: std::ops::Range<u64>) -> Access {
        let mut list = Vec::with_capacity((blocks.end - blocks.start) as usize);
        for block in blocks {
            push_merged(&mut list, self.extent(block, rank));
        }
        Access::List(list)
    }

    /// Each rank on its own, `per_operation` blocks in each operation (`None`: all in one); the
    /// last operation has those that are left.
    pub fn individual(&self, per_operation: Option<u64>) -> Application {
        self.individual_up_to(self.blocks_per_rank(), per_operation)
    }

    /// As [`Interleaved::individual`], but the last operation is a whole one even if it goes beyond
    /// the end of the file: what the program of the thesis did.
    pub fn individual_2009(&self, per_operation: Option<u64>) -> Application {
        self.individual_up_to(u64::MAX, per_operation)
    }

    /// No operation has blocks of a rank from number `end` on.
    fn individual_up_to(&self, end: u64, per_operation: Option<u64>) -> Application {
        let blocks = self.blocks_per_rank();
        let step = per_operation.unwrap_or(blocks).max(1);
        self.application("individual", |app, file| {
            for rank in 0..self.ranks {
                for first in (0..blocks).step_by(step as usize) {
                    let last = first.saturating_add(step).min(end);
                    let access = if step == 1 { Access::Contiguous(self.extent(first, rank)) } else { self.list(rank, first..last) };
                    app.push(rank, self.operation(file, access));
                }
            }
        })
    }

    /// All ranks together, everything in one collective operation. Blocks that do not go round once
    /// more belong to the first ranks.
    pub fn collective(&self) -> Application {
        let all = self.file_bytes / self.block_bytes;
        let (blocks, more) = (all / u64::from(self.ranks), all % u64::from(self.ranks));
        self.application("collective", |app, file| {
            for rank in 0..self.ranks {
                let access = self.list(rank, 0..blocks + u64::from(u64::from(rank) < more));
                let command = if self.writes {
                    Command::FileWriteAll { comm: WORLD, file, access }
                } else {
                    Command::FileReadAll { comm: WORLD, file, access }
                };
                app.push(rank, command);
            }
        })
    }

    /// Each rank its own blocks one by one, in an order drawn for all ranks together.
    pub fn random(&self, random: &mut Lcg48) -> Application {
        let mut pairs: Vec<(u64, u32)> =
            (0..self.blocks_per_rank()).flat_map(|block| (0..self.ranks).map(move |rank| (block, rank))).collect();
        random.shuffle(&mut pairs);
        self.application("random", |app, file| {
            for (block, rank) in pairs {
                app.push(rank, self.operation(file, Access::Contiguous(self.extent(block, rank))));
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

    #[test]
    fn operations_end_with_the_file() {
        let test = Interleaved { ranks: 2, file_bytes: 100, block_bytes: 10, writes: true };
        for per_operation in [Some(1), Some(2), Some(3), Some(100), None] {
            let app = test.individual(per_operation);
            let accesses = app.programs.iter().flat_map(|program| &program.commands).filter_map(|command| match command {
                Command::FileWrite { access, .. } => Some(access.bytes()),
                _ => None,
            });
            assert_eq!(accesses.sum::<u64>(), 100, "{per_operation:?} blocks in each operation");
        }
    }

    #[test]
    fn in_2009_an_operation_may_go_beyond_the_end_but_starts_before_it() {
        let test = Interleaved { ranks: 2, file_bytes: 100, block_bytes: 10, writes: true };
        let app = test.individual_2009(Some(2));
        // Five blocks for each rank: three operations of two.
        assert_eq!(app.programs[1].commands.len(), 2 + 3);
        let Command::FileWrite { access: Access::List(list), .. } = &app.programs[1].commands[3] else { panic!("a write of a list") };
        assert_eq!(*list, [Extent { offset: 90, bytes: 10 }, Extent { offset: 110, bytes: 10 }]);
    }

    #[test]
    fn a_random_program_has_every_block_once() {
        let test = Interleaved { ranks: 3, file_bytes: 3 * 7 * 10, block_bytes: 10, writes: false };
        let app = test.random(&mut Lcg48::new(1));
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
