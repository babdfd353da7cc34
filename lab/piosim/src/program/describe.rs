//! Commands in words, for errors that people read.

use super::{Application, Command, FileId};

impl Application {
    /// A command of this application in words, such as `a receive from rank 1 (tag 0)`.
    pub fn describe(&self, command: &Command) -> String {
        let from = |from: &Option<u32>| from.map_or_else(|| "any rank".to_string(), |rank| format!("rank {rank}"));
        let file = |verb: &str, file: FileId| format!("{verb} of {}", self.file_name(file));
        match command {
            Command::Compute { cycles } => format!("{cycles} cycles of work"),
            Command::Send { to, tag, bytes, .. } => format!("a send of {bytes} bytes to rank {to} (tag {tag})"),
            Command::Recv { from: sender, tag, .. } => format!("a receive from {} (tag {tag})", from(sender)),
            Command::Sendrecv { to, send_tag, from: sender, recv_tag, .. } => {
                format!("a send to rank {to} (tag {send_tag}) with a receive from {} (tag {recv_tag})", from(sender))
            }
            Command::Wait { requests } => {
                let numbers: Vec<String> = requests.iter().map(u32::to_string).collect();
                format!("a wait for requests {}", numbers.join(", "))
            }
            Command::Barrier { .. } => "a barrier".to_string(),
            Command::Bcast { root, .. } => format!("a broadcast from rank {root}"),
            Command::Reduce { root, .. } => format!("a reduction to rank {root}"),
            Command::Allreduce { .. } => "a reduction to all".to_string(),
            Command::Gather { root, .. } => format!("a gathering at rank {root}"),
            Command::Allgather { .. } => "a gathering at all".to_string(),
            Command::FileOpen { file: number, .. } => file("the opening", *number),
            Command::FileClose { file: number, .. } => file("the closing", *number),
            Command::FileSetView { file: number, .. } => file("the view", *number),
            Command::FileRead { file: number, .. } => file("a read", *number),
            Command::FileWrite { file: number, .. } => file("a write", *number),
            Command::FileReadAll { file: number, .. } => file("a collective read", *number),
            Command::FileWriteAll { file: number, .. } => file("a collective write", *number),
        }
    }

    fn file_name(&self, file: FileId) -> String {
        self.files.get(file as usize).map_or_else(|| format!("file {file}"), |file| format!("`{}`", file.name))
    }
}
