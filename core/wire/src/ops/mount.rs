//! What a mount says over its socket (`docs/wire.md`), beside what servers say.

use weft_base::ServerId;

use crate::wire_struct;

/// The whole body of the question for [`MountErrors`]. It is no body of an operation.
pub const MOUNT_ERRORS: [u8; 1] = [255];

wire_struct! {
    /// The errors of servers that a mount has seen since it began.
    pub struct MountErrors {
        /// For each server and reason how many.
        pub rows: Vec<MountErrorRow>,
    }

    /// Operations that failed for one reason.
    pub struct MountErrorRow {
        /// The server that answered so, or did not answer; `None`: nobody knows.
        pub server: Option<ServerId>,
        /// The number of the status.
        pub status: u16,
        /// How many.
        pub count: u64,
    }
}

#[cfg(test)]
mod tests {
    use weft_base::Status;

    use super::*;
    use crate::Wire;
    use crate::ops::TraceRequest;

    #[test]
    fn the_question_is_no_command_of_another_kind() {
        assert_eq!(TraceRequest::from_bytes(MOUNT_ERRORS.to_vec().into()), Err(Status::BadMessage));
        let errors = MountErrors { rows: vec![MountErrorRow { server: Some(ServerId(3)), status: Status::Io.code(), count: 7 }] };
        assert_eq!(MountErrors::from_bytes(errors.to_bytes()), Ok(errors));
    }
}
