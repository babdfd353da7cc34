//! Whole files: written in one message, or many read in few.

use bytes::Bytes;
use weft_rt::ThreadRuntime;

use crate::error::Result;
use crate::filesystem::FileSystem;

impl<R: ThreadRuntime> FileSystem<R> {
    /// Makes the file at a path, with these permission bits less the umask, or replaces its
    /// content; with `exclusive` it must not be there. In a directory with the hint `inline_limit`
    /// a small file is one message behind the walk to its directory.
    ///
    /// # Errors
    /// As [`weft_posix::Posix::put_path`].
    pub fn put(&self, path: &[u8], mode: u32, exclusive: bool, content: &Bytes) -> Result<()> {
        let mode = mode & 0o7777 & !self.umask;
        self.run("write", path, async |posix| posix.put_path(&self.who, path, mode, exclusive, content).await).map(drop)
    }

    /// Reads whole files by their paths; one result for each, in their order. Up to 1024 small ones
    /// at a time cost one message for each metadata server and one for each data server (and 8
    /// MiB), behind one walk to each directory.
    ///
    /// # Errors
    /// For each file: as [`weft_client::Client::read_paths`].
    pub fn read_many(&self, paths: &[Bytes]) -> Vec<Result<Bytes>> {
        if let Err(error) = self.check_process("read") {
            return paths.iter().map(|_| Err(error.clone())).collect();
        }
        let results = self.drive(self.posix().read_paths(&self.who, paths));
        let told = paths.iter().zip(results).map(|(path, result)| match result {
            Ok(file) => Ok(file.data.to_bytes()),
            Err(error) => Err(self.told("read", path, &error)),
        });
        told.collect()
    }
}
