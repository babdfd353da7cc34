//! ListDatafiles: which datafiles this server has, page by page.

use weft_base::Handle;
use weft_rt::ServerRuntime;
use weft_store::objects::ObjectKey;
use weft_wire::ops::{DATAFILES_LISTED_MAX, ListDatafilesReply, ListDatafilesRequest, ListedDatafile};

use crate::done::Done;
use crate::state::Server;

/// Those behind the one that the request names.
pub fn list<R: ServerRuntime>(server: &Server<R>, request: &ListDatafilesRequest) -> Done {
    let behind = (request.handle != Handle(0)).then_some(ObjectKey { handle: request.handle, index: request.index });
    let most = DATAFILES_LISTED_MAX.min(request.datafiles_max as usize).max(1);
    let table = server.objects.table.borrow();
    let mut found = table.iter_behind(behind).map(|(ObjectKey { handle, index }, stat)| ListedDatafile {
        handle,
        index,
        allocated_bytes: stat.allocated_bytes,
    });
    let datafiles = found.by_ref().take(most).collect();
    Done::now(&ListDatafilesReply { datafiles, is_end: found.next().is_none() })
}
