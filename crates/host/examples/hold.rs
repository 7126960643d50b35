//! Holds memory as its arguments say and waits for its standard input to close, for tests and benchmarks of
//! the readers.
//!
//! `hold FILE SIZE SKEW` attaches the first SIZE bytes of a shared file at SKEW bytes past a multiple of the
//! PMD page size. `hold - SIZE SKEW` takes private anonymous memory. It touches every base page, collapses
//! it if HOLD_COLLAPSE is set, and prints `ready`.

use std::fs::OpenOptions;
use std::io::Read;

use hugeleaf_host::{Root, read_host};
use hugeleaf_sys::{Advice, HugetlbReservation, Kernel, MemoryFile, MemorySyscalls};
use hugeleaf_units::Bytes;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, size, skew] = arguments.as_slice() else {
        return Err("usage: hold FILE|- SIZE SKEW".into());
    };
    let (size, skew): (Bytes, Bytes) = (size.parse()?, skew.parse()?);
    let kernel = Kernel::new();
    let host = read_host(&Root::live(), &kernel)?;
    let pmd = host.pmd_page.get().ok_or("this host has no THP")?;
    let space = MemorySyscalls::new().reserve_addresses(size + pmd.bytes(), pmd)?;
    let part = space.part(skew.get(), size).ok_or("SKEW is too much")?;
    if file == "-" {
        space.map_private(part)?;
    } else {
        let file = OpenOptions::new().read(true).write(true).open(file)?;
        let file = MemoryFile::from_fd(file.into());
        space.map_file(part, &file, 0, HugetlbReservation::All)?;
    }
    space.advise(part, Advice::PopulateWrite)?;
    if std::env::var_os("HOLD_COLLAPSE").is_some() {
        // A second pass collapses blocks whose pages were held elsewhere in the first (EAGAIN).
        let _ = space.advise(part, Advice::Collapse);
        let _ = space.advise(part, Advice::Collapse);
    }
    println!("ready");
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
