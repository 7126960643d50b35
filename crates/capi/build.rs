//! Sets the shared library's soname to `libhugeleaf.so.0`, with the version of the C interface. A program then loads
//! the interface with which it was built. The library is never unloaded, because threads of managers may run in it
//! after the last dlclose(3).

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let version = env!("CARGO_PKG_VERSION_MAJOR");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libhugeleaf.so.{version}");
}
