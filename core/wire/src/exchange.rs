//! The exchange of keys in the handshake (X25519, RFC 7748): both sides send the public half of a
//! key pair that only this connection has, and come to a secret that nobody on the way can compute,
//! not even with the long-term keys. The private halves are gone after the handshake, so whoever
//! records a connection and learns a long-term key later cannot read it (forward secrecy).
//!
//! Public keys travel as extension 2 of Hello and Challenge. The proofs cover all extensions, so a
//! public key that was changed or taken out on the way ends the handshake.

use ring::agreement::{EphemeralPrivateKey, UnparsedPublicKey, X25519, agree_ephemeral};
use ring::rand::SecureRandom;
use weft_base::{Result, Status};

use crate::codec::ExtensionList;

/// Bytes of a public key.
pub const PUBLIC_KEY_BYTES: usize = 32;

/// Extension of Hello and Challenge in which public keys travel. Even: a program that does not know
/// it connects without forward secrecy.
pub(crate) const EXCHANGE_TAG: u16 = 2;

/// What is said of a public key that is refused.
pub(crate) const REFUSED_KEY: &str = "its public key for the exchange of keys is malformed";

/// A key pair for one connection.
pub struct KeyPair {
    private: EphemeralPrivateKey,
    public: [u8; PUBLIC_KEY_BYTES],
}

impl std::fmt::Debug for KeyPair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeyPair(secret)")
    }
}

impl KeyPair {
    /// Drawn from the generator of the runtime.
    ///
    /// # Panics
    /// If the generator fails. That of the kernel is always there after boot.
    pub fn generate(random: &dyn SecureRandom) -> KeyPair {
        let private = EphemeralPrivateKey::generate(&X25519, random).expect("the generator gives random bytes");
        let public = private.compute_public_key().expect("each private key of X25519 has a public one");
        let public = public.as_ref().try_into().expect("a public key of X25519 has 32 bytes");
        KeyPair { private, public }
    }

    /// The half that travels.
    pub fn public_key(&self) -> &[u8; PUBLIC_KEY_BYTES] {
        &self.public
    }

    /// As an extension of Hello or Challenge.
    pub(crate) fn extensions(&self) -> ExtensionList {
        ExtensionList::of(&[(EXCHANGE_TAG, &self.public)])
    }

    /// The secret that only the holder of the other pair comes to as well.
    ///
    /// # Errors
    /// [`Status::BadMessage`] for a public key of low order: the secret would be zero, whatever our
    /// half is (RFC 7748, section 6.1).
    pub(crate) fn agree(self, theirs: &[u8; PUBLIC_KEY_BYTES]) -> Result<SharedSecret> {
        let secret = |bytes: &[u8]| SharedSecret(bytes.try_into().expect("a secret of X25519 has 32 bytes"));
        agree_ephemeral(self.private, &UnparsedPublicKey::new(&X25519, theirs), secret).map_err(|_| Status::BadMessage)
    }
}

/// What both sides have come to.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct SharedSecret(pub(crate) [u8; 32]);

impl std::fmt::Debug for SharedSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SharedSecret(secret)")
    }
}

/// The public key among the extensions of a message, if there is one.
///
/// # Errors
/// [`Status::BadMessage`] if it has another length or is zero.
pub(crate) fn public_key_in(extensions: &ExtensionList) -> Result<Option<[u8; PUBLIC_KEY_BYTES]>> {
    let Some(bytes) = extensions.get(EXCHANGE_TAG) else { return Ok(None) };
    let key: [u8; PUBLIC_KEY_BYTES] = bytes.try_into().map_err(|_| Status::BadMessage)?;
    if key == [0; PUBLIC_KEY_BYTES] { Err(Status::BadMessage) } else { Ok(Some(key)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ring::rand::SystemRandom;

    fn pair() -> KeyPair {
        KeyPair::generate(&SystemRandom::new())
    }

    #[test]
    fn both_sides_come_to_one_secret_and_nobody_else_does() {
        let (ours, theirs, other) = (pair(), pair(), pair());
        let (our_key, their_key) = (*ours.public_key(), *theirs.public_key());
        let secret = ours.agree(&their_key).unwrap();
        assert_eq!(theirs.agree(&our_key).unwrap(), secret);
        assert_ne!(other.agree(&their_key).unwrap(), secret);
        assert!(secret.0 != our_key && secret.0 != their_key);
    }

    #[test]
    fn keys_that_lead_to_no_secret_are_refused() {
        // Zero, one, and the point of order 8 of RFC 7748's curve.
        let mut one = [0; PUBLIC_KEY_BYTES];
        one[0] = 1;
        let order_8: [u8; PUBLIC_KEY_BYTES] = [
            0xe0, 0xeb, 0x7a, 0x7c, 0x3b, 0x41, 0xb8, 0xae, 0x16, 0x56, 0xe3, 0xfa, 0xf1, 0x9f, 0xc4, 0x6a, 0xda, 0x09, 0x8d, 0xeb, 0x9c,
            0x32, 0xb1, 0xfd, 0x86, 0x62, 0x05, 0x16, 0x5f, 0x49, 0xb8, 0x00,
        ];
        for key in [[0; PUBLIC_KEY_BYTES], one, order_8] {
            assert_eq!(pair().agree(&key), Err(Status::BadMessage), "{key:?}");
        }
        let of = |value: &[u8]| public_key_in(&ExtensionList::of(&[(EXCHANGE_TAG, value)]));
        for value in [&[][..], &[1; 31], &[1; 33], &[0; 32]] {
            assert_eq!(of(value), Err(Status::BadMessage), "{value:?}");
        }
        assert_eq!(of(&[1; 32]), Ok(Some([1; 32])));
        assert_eq!(public_key_in(&ExtensionList::default()), Ok(None));
    }
}
