//! The name under which programs ask for the shared library.

/// Counts changes that programs of before would not survive. `scripts/install-library.sh` reads it.
const ABI: u32 = 0;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libweft.so.{ABI}");
}
