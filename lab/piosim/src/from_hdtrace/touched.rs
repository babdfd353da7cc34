//! Which bytes of its file a single call touches, for viewers.

use std::collections::BTreeMap;

use weft_hdtrace::{Project, RankTypes, State};

use super::{Mapped, RankReader, communicators, datatypes};
use crate::program::{Access, Application, Command, Datatype, Extent, FileView, Rank};

/// What a call does to its file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Touched {
    /// What the rank sees of the file.
    pub view: Option<FileView>,
    /// The ranges of the file, in the order of the data.
    pub ranges: Vec<Extent>,
}

/// What the last of these calls of a rank does to its file. They are all on the same file, in their
/// order: at least the one that opened it, and the one that set its view.
///
/// # Errors
/// A sentence: a call lacks something, or its view has no counterpart.
pub fn touched(project: &Project, rank: Rank, calls: &[State]) -> Result<Touched, String> {
    let members = project.communicators.iter().flat_map(|communicator| &communicator.members);
    let ranks = members.map(|member| member.global).max().unwrap_or(0).max(rank).saturating_add(1);
    let mut application = Application::new("", ranks);
    let communicators = communicators(project, &mut application).map_err(|error| error.problem)?;
    for file in &project.files {
        application.file(&file.name, file.initial_bytes);
    }
    let mut reader = RankReader {
        rank,
        project,
        simulated: project.is_simulated(),
        communicators: &communicators,
        application: &mut application,
        open: BTreeMap::new(),
        notes: &mut Vec::new(),
        mapped_end: None,
        matched: BTreeMap::new(),
    };
    let mut touched = Touched::default();
    for call in calls {
        touched.ranges = match reader.command(call).map_err(|error| error.problem)? {
            Mapped::Skipped(why) => return Err(why),
            Mapped::Unknown => Vec::new(),
            Mapped::Command(command) => {
                if let Command::FileSetView { view, .. } = &command {
                    touched.view = Some(view.clone());
                }
                if let Command::FileOpen { .. } = command {
                    touched.view = None;
                }
                ranges(&command, touched.view.as_ref())
            }
        };
    }
    Ok(touched)
}

fn ranges(command: &Command, view: Option<&FileView>) -> Vec<Extent> {
    match command {
        Command::FileRead { access, .. }
        | Command::FileWrite { access, .. }
        | Command::FileReadAll { access, .. }
        | Command::FileWriteAll { access, .. } => match (access, view) {
            (Access::Contiguous(extent), _) => vec![*extent],
            (Access::List(list), _) => list.clone(),
            (Access::View { offset, bytes }, Some(view)) => view.map(*offset, *bytes),
            (Access::View { offset, bytes }, None) => vec![Extent { offset: *offset, bytes: *bytes }],
        },
        _ => Vec::new(),
    }
}

/// A datatype of a rank as a tree of all that it is made of.
///
/// # Errors
/// A sentence: why it has no counterpart.
pub fn datatype(types: &RankTypes, id: i64) -> Result<Datatype, String> {
    datatypes::convert(types, id)
}
