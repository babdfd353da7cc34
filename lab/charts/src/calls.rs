//! What a call of a program is by its name, however it is spelt: `app.write_all` of a simulated
//! program, `File_write_at` of a traced one, `client.create` of Weft's own library.

/// What a program does in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallClass {
    /// It computes.
    Compute,
    /// It exchanges messages with other processes, or waits for them.
    Communication,
    /// It reads bytes of a file.
    Read,
    /// It writes bytes of a file, or waits until they are safe.
    Write,
    /// It opens, closes, names or describes a file.
    Metadata,
}

/// Beginnings of names between processes.
const COMMUNICATION: [&str; 19] = [
    "send",
    "recv",
    "isend",
    "irecv",
    "ssend",
    "bsend",
    "rsend",
    "wait",
    "test",
    "barrier",
    "bcast",
    "reduce",
    "allreduce",
    "gather",
    "allgather",
    "scatter",
    "alltoall",
    "scan",
    "probe",
];
/// Names of calls about files.
const METADATA: [&str; 17] = [
    "open",
    "close",
    "create",
    "stat",
    "unlink",
    "mkdir",
    "rmdir",
    "rename",
    "readdir",
    "getattr",
    "setattr",
    "lookup",
    "view",
    "other",
    "setview",
    "delete",
    "getposition",
];

impl CallClass {
    /// What the call of this name is; `None` for names that say nothing of it.
    pub fn of(name: &str) -> Option<CallClass> {
        let plain: String = name.rsplit('.').next().unwrap_or(name).to_lowercase().replace('_', "");
        let plain = plain.strip_prefix("mpi").unwrap_or(&plain);
        let in_file = plain.strip_prefix("file").unwrap_or(plain);
        let begins = |names: &[&str]| names.iter().any(|known| in_file.starts_with(known));
        match in_file {
            "compute" => Some(CallClass::Compute),
            "sync" | "fsync" => Some(CallClass::Write),
            _ if in_file.starts_with("read") && in_file != "readdir" => Some(CallClass::Read),
            _ if in_file.starts_with("iread") => Some(CallClass::Read),
            _ if in_file.starts_with("write") || in_file.starts_with("iwrite") => Some(CallClass::Write),
            _ if METADATA.contains(&in_file) || in_file.len() < plain.len() => Some(CallClass::Metadata),
            _ if begins(&COMMUNICATION) => Some(CallClass::Communication),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::CallClass::{self, Communication, Compute, Metadata, Read, Write};

    #[test]
    fn calls_are_known_however_they_are_spelt() {
        let of = |names: &[&str]| names.iter().map(|name| CallClass::of(name)).collect::<Vec<_>>();
        assert_eq!(of(&["app.compute", "Compute"]), [Some(Compute); 2]);
        assert_eq!(of(&["app.read_all", "File_read_at", "FileRead", "client.read", "MPI_File_iread"]), [Some(Read); 5]);
        assert_eq!(of(&["app.write", "File_write_at_all", "FileWrite", "client.fsync", "File_sync"]), [Some(Write); 5]);
        assert_eq!(of(&["app.open", "File_set_view", "client.readdir", "FileClose", "File_get_size"]), [Some(Metadata); 5]);
        assert_eq!(of(&["app.sendrecv", "Sendrecv", "MPI_Allreduce", "Waitall", "Barrier"]), [Some(Communication); 5]);
        assert_eq!(of(&["Init", "Type_commit", "Comm_free", "meta.turn"]), [None; 4]);
    }
}
