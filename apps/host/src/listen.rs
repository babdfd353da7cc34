//! Listening at an address that a user has given.

use std::fmt::Display;
use std::io::ErrorKind;
use std::net::{TcpListener, ToSocketAddrs};

use anyhow::{Error, Result, anyhow};

/// Listens on an address of TCP.
///
/// # Errors
/// If that cannot be; says what to do where another process listens there.
pub fn listen(address: impl ToSocketAddrs + Display) -> Result<TcpListener> {
    TcpListener::bind(&address).map_err(|error| match error.kind() {
        ErrorKind::AddrInUse => {
            anyhow!("cannot listen on {address}: another process listens there (`ss -ltp` shows which): end it, or give another address")
        }
        _ => Error::new(error).context(format!("cannot listen on {address}")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_to_do_about_an_address_that_is_taken() {
        let listener = listen("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let error = listen(address).unwrap_err().to_string();
        assert!(error.starts_with(&format!("cannot listen on {address}: another process listens there")), "{error}");
        assert_eq!(listen("127.0.0.1").unwrap_err().to_string(), "cannot listen on 127.0.0.1");
    }
}
