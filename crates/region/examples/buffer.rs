//! Example of a buffer on huge pages, such as a buffer pool, a sort heap or a log buffer.
//!
//! ```text
//! buffer [MEGABYTES [LADDER [shared]]]
//! ```
//!
//! Shows the progress of populating, the pages of each extent with the reason for smaller ones, and
//! frees the buffer. The C version is `buffer.c`.
#![allow(unsafe_code)]

use std::process::ExitCode;

use hugeleaf::{Bytes, MemoryError, PageKind, Region, RegionOptions};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("buffer: {message}");
            ExitCode::FAILURE
        }
    }
}

/// Formats an error with its remedy.
fn in_words(error: MemoryError) -> String {
    format!("{error}\n        try: {}", error.next())
}

fn run() -> Result<(), String> {
    let mut arguments = std::env::args().skip(1);
    let megabytes = arguments.next().unwrap_or_else(|| "64".to_owned());
    let megabytes = megabytes.parse().map_err(|e| format!("{megabytes}: {e}"))?;
    let ladder = arguments.next().unwrap_or_else(|| "2M".to_owned());
    let ladder = ladder
        .parse()
        .map_err(|e: hugeleaf::ParseError| e.to_string())?;

    let mut options = RegionOptions::new(Bytes::from_mib(megabytes), ladder);
    if arguments.next().as_deref() == Some("shared") {
        options = options.shared();
    }
    let mut seen = Bytes::ZERO;
    let region = Region::with_progress(&options, &mut |done, total| {
        seen = done;
        eprint!("\rpopulated {:3} %", done.get() * 100 / total.get());
    })
    .map_err(in_words)?;
    eprintln!();

    // The whole region is populated: an access neither fails nor stalls in the kernel.
    let length = usize::try_from(region.len().get()).map_err(|e| e.to_string())?;
    // SAFETY: the region is populated over `length` bytes, and no other code has its address.
    unsafe { region.as_ptr().write_bytes(0x5a, length) };

    println!("length: {:#} of {seen:#} populated", region.len());
    for extent in region.extents().map_err(in_words)? {
        let kind = match extent.kind {
            PageKind::Hugetlb => "reserved pages",
            PageKind::Thp => "transparent huge pages",
            PageKind::Base => "base pages",
        };
        let kib = |bytes: Bytes| bytes.get() / 1024;
        let (length, page) = (kib(extent.range.len()), kib(extent.page.bytes()));
        println!("extent: {length}K on {kind} of {page}K");
        if let Some(why) = &extent.why {
            println!("   why: {why}\n  next: {}", why.next());
        }
    }
    println!("coverage: {:.3}", region.coverage().map_err(in_words)?);
    Ok(())
}
