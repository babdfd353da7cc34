//! Whether an application can be run: every number in it names something, and ranks use only
//! communicators they belong to.

use super::{Application, CommId, Command, Datatype, FileId, Rank};

impl Application {
    /// Looks at every command.
    ///
    /// # Errors
    /// A sentence that names the rank and the command (counted from 1) and what is wrong with it.
    pub fn check(&self) -> Result<(), String> {
        if self.communicators.iter().flatten().any(|&rank| rank >= self.ranks()) {
            return Err("a communicator names a rank that does not exist".to_string());
        }
        for (rank, program) in (0..).zip(&self.programs) {
            for (position, command) in (1..).zip(&program.commands) {
                self.check_command(rank, command).map_err(|problem| format!("rank {rank}, command {position}: {problem}"))?;
            }
        }
        Ok(())
    }

    fn check_command(&self, rank: Rank, command: &Command) -> Result<(), String> {
        match command {
            Command::Compute { .. } | Command::Wait { .. } => Ok(()),
            Command::Send { comm, to, .. } => self.check_rank(rank, *comm, *to),
            Command::Recv { comm, from, .. } => self.check_rank(rank, *comm, from.unwrap_or(0)),
            Command::Sendrecv { comm, to, from, .. } => {
                self.check_rank(rank, *comm, *to)?;
                self.check_rank(rank, *comm, from.unwrap_or(0))
            }
            Command::Barrier { comm } | Command::Allreduce { comm, .. } | Command::Allgather { comm, .. } => self.check_member(rank, *comm),
            Command::Bcast { comm, root, .. } | Command::Reduce { comm, root, .. } | Command::Gather { comm, root, .. } => {
                self.check_rank(rank, *comm, *root)
            }
            Command::FileOpen { comm, file, .. }
            | Command::FileClose { comm, file }
            | Command::FileReadAll { comm, file, .. }
            | Command::FileWriteAll { comm, file, .. } => {
                self.check_member(rank, *comm)?;
                self.check_file(*file)
            }
            Command::FileSetView { file, view } => {
                self.check_file(*file)?;
                check_datatype(&view.filetype)
            }
            Command::FileRead { file, .. } | Command::FileWrite { file, .. } => self.check_file(*file),
        }
    }

    fn check_member(&self, rank: Rank, comm: CommId) -> Result<(), String> {
        match self.communicators.get(comm as usize) {
            None => Err(format!("there is no communicator {comm}")),
            // Communicator 0 is the world: everybody belongs to it.
            Some(ranks) if comm == 0 || ranks.contains(&rank) => Ok(()),
            Some(_) => Err(format!("rank {rank} does not belong to communicator {comm}")),
        }
    }

    fn check_rank(&self, rank: Rank, comm: CommId, other: Rank) -> Result<(), String> {
        self.check_member(rank, comm)?;
        let size = self.communicators[comm as usize].len();
        if (other as usize) < size { Ok(()) } else { Err(format!("communicator {comm} has {size} ranks, there is no rank {other}")) }
    }

    fn check_file(&self, file: FileId) -> Result<(), String> {
        if (file as usize) < self.files.len() { Ok(()) } else { Err(format!("there is no file {file}")) }
    }
}

fn check_datatype(datatype: &Datatype) -> Result<(), String> {
    match datatype {
        Datatype::Named { .. } => Ok(()),
        Datatype::Contiguous { element, .. } => check_datatype(element),
        Datatype::Vector { block_length, stride, element, count } => {
            if *count > 1 && stride < block_length {
                return Err("the blocks of a vector overlap".to_string());
            }
            check_datatype(element)
        }
        Datatype::Struct { fields } => fields.iter().try_for_each(|field| check_datatype(&field.element)),
        Datatype::Subarray { sizes, subsizes, starts, element } => {
            if sizes.is_empty() || sizes.len() != subsizes.len() || sizes.len() != starts.len() {
                return Err("a subarray needs as many sizes, subsizes and starts as dimensions, and at least one".to_string());
            }
            let fits = sizes.iter().zip(subsizes).zip(starts).all(|((size, sub), start)| start + sub <= *size);
            if !fits {
                return Err("a subarray leaves its array".to_string());
            }
            check_datatype(element)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::{Access, FileView, WORLD};

    fn problem(command: Command) -> String {
        let mut app = Application::new("test", 3);
        app.file("file", 0);
        app.communicator(vec![2, 0]);
        app.push(1, Command::Compute { cycles: 1 });
        app.push(1, command);
        app.check().err().unwrap_or_default()
    }

    #[test]
    fn what_does_not_exist_is_named() {
        let send = |comm, to| Command::Send { comm, to, tag: 0, bytes: 1, request: None };
        assert_eq!(problem(send(WORLD, 2)), "");
        assert_eq!(problem(send(WORLD, 3)), "rank 1, command 2: communicator 0 has 3 ranks, there is no rank 3");
        assert_eq!(problem(send(7, 0)), "rank 1, command 2: there is no communicator 7");
        assert_eq!(problem(Command::Barrier { comm: 1 }), "rank 1, command 2: rank 1 does not belong to communicator 1");
        assert_eq!(problem(Command::FileRead { file: 1, access: Access::at(0, 1) }), "rank 1, command 2: there is no file 1");
        assert_eq!(problem(Command::FileRead { file: 0, access: Access::at(0, 1) }), "");
    }

    #[test]
    fn impossible_datatypes_are_refused() {
        let view = |filetype| Command::FileSetView { file: 0, view: FileView { displacement: 0, filetype } };
        let byte = || Box::new(Datatype::Named { bytes: 1 });
        let subarray = |subsizes, starts| Datatype::Subarray { sizes: vec![4, 4], subsizes, starts, element: byte() };
        assert_eq!(problem(view(subarray(vec![2, 2], vec![2, 2]))), "");
        assert!(problem(view(subarray(vec![2, 2], vec![3, 0]))).contains("leaves its array"));
        assert!(problem(view(subarray(vec![2], vec![0, 0]))).contains("dimensions"));
        assert!(problem(view(Datatype::Vector { count: 2, block_length: 3, stride: 2, element: byte() })).contains("overlap"));
    }
}
