use super::*;
use proptest::prelude::*;
use weft_base::Handle;

#[test]
fn operation_numbers_round_trip() {
    for op in Op::ALL {
        assert_eq!(Op::from_code(op.code()), Some(*op));
    }
    assert_eq!(Request::decode(9999, Bytes::new()), Err(Status::NotSupported));
}

#[test]
fn a_row_agrees_with_itself() {
    // Executed exactly once, and no change for a person: opens, closes, locks and parts of
    // transactions.
    let not_a_change = [Op::Open, Op::Close, Op::CloseMany, Op::Lock, Op::Unlock, Op::TxPrepare, Op::TxDecide];
    for op in Op::ALL {
        let name = op.name();
        assert_eq!(op.class() == Class::MetaChange, op.changes() && !not_a_change.contains(op), "{name}");
        assert!(!op.changes() || (op.role() == Some(ServerRole::Meta) && op.space() != Space::Untouched), "{name}");
        assert!(op.role().is_some() || op.space() == Space::Untouched, "{name}");
        assert_eq!(op.role().is_none(), op.event_name() == "other", "{name}");
    }
}

#[test]
fn left_over_bytes_are_refused() {
    let mut body = GetAttrRequest { handle: Handle(1) }.to_bytes().to_vec();
    assert!(Request::decode(Op::GetAttr.code(), body.clone().into()).is_ok());
    body.push(0);
    assert_eq!(Request::decode(Op::GetAttr.code(), body.into()), Err(Status::BadMessage));
}

proptest! {
    #[test]
    fn random_bodies_never_panic(op in 0u16..110, body in proptest::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(request) = Request::decode(op, body.into()) {
            prop_assert_eq!(request.op().code(), op);
        }
    }
}
