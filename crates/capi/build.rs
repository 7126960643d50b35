//! Gives the shared library its name for the linker: `libhugeleaf.so.0`, with the number of the C
//! interface, so that a program asks at its start for the interface that it was built with. It stays loaded once it is:
//! threads of managers may run in it after the last dlclose(3).

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let version = env!("CARGO_PKG_VERSION_MAJOR");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libhugeleaf.so.{version}");
}
