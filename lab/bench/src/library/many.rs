//! Whole small files, many of them in each call of the library.

use anyhow::{Result, ensure};
use weft_client::run_window;

use super::{Folder, Part};

impl Part<'_> {
    /// Whole files of all folders in a drawn order.
    pub(super) fn read_many(&self, folders: &[Folder]) -> Result<()> {
        let files = self.work.files_of(self.number) as usize;
        let calls = self.work.drawn_calls(self.number, folders.len() * files);
        let calls = calls.iter().map(|call| self.read_call(folders, files, call));
        self.fs().run(run_window(calls, self.depth())).into_iter().collect()
    }

    async fn read_call(&self, folders: &[Folder], files: usize, call: &[usize]) -> Result<()> {
        let fs = self.fs();
        let place = |number: usize| (&folders[number / files], number % files);
        let named: Vec<_> =
            call.iter().map(|number| place(*number)).map(|(folder, file)| (folder.handle, folder.names[file].clone())).collect();
        let mut bytes = 0;
        for (number, file) in call.iter().zip(fs.client.read_many(&fs.who, &named).await) {
            let (number, data) = (place(*number).1 as u64, file.map_err(|error| fs.explain(self.path, error))?.data);
            let wanted = self.work.bytes_of(number);
            ensure!(data.len() == wanted, "a file of {wanted} bytes was read as one of {}", data.len());
            bytes += wanted;
            if wanted > 0 {
                let first = self.work.block_of(self.number, number, 0);
                self.check(&[data.slice(0, first.bytes)], number, first)?;
            }
        }
        match (self.work.depth, call.len()) {
            (1, 1) => self.meter.borrow_mut().done(bytes),
            (_, files) => self.meter.borrow_mut().done_among_others(files as u64, bytes),
        }
        Ok(())
    }
}
