//! Many changes of one directory with many requests in flight.

use bytes::Bytes;
use weft_base::{Attr, Credentials, Handle, check_name};
use weft_call::run_window;
use weft_rt::Runtime;

use crate::files::file_request;
use crate::flow::Flow;
use crate::{Client, CreateOptions, Result};

impl<R: Runtime> Client<R> {
    /// Makes many files without opening them (`rights` and `truncate` of the options are not used),
    /// with up to [`crate::ClientOptions::window`] requests in flight. One result for each name, in
    /// their order. The deadline holds for each file, counted from the moment when its request is
    /// sent first.
    pub async fn create_many(&self, who: &Credentials, dir: Handle, names: &[Bytes], options: &CreateOptions) -> Vec<Result<Attr>> {
        let flows = names.iter().map(async |name| {
            let flow = self.flow("create", dir);
            let _op = weft_trace::operation(weft_trace::event::CLIENT_CREATE);
            check_name(name).map_err(|status| flow.error(status))?;
            self.make_unopened(flow, dir, name, |at| file_request(at, name, options, who)).await
        });
        run_window(flows, self.options().window).await
    }

    /// Removes many names that lead to anything but directories. One result for each name, in their
    /// order. Window and deadline as for [`Client::create_many`].
    pub async fn unlink_many(&self, who: &Credentials, dir: Handle, names: &[Bytes]) -> Vec<Result<()>> {
        let flows = names.iter().map(async |name| {
            let flow: Flow = self.flow("unlink", dir);
            let _op = weft_trace::operation(weft_trace::event::CLIENT_UNLINK);
            check_name(name).map_err(|status| flow.error(status))?;
            self.unlink_in(flow, who, dir, name, false).await
        });
        run_window(flows, self.options().window).await
    }
}
