//! Programs other than the victim.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::kernel::smaps;

/// A process that is ended when this is dropped.
pub struct Process(Child);

impl Process {
    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    pub fn id(&self) -> String {
        self.pid().to_string()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a 32-bit program that holds `bytes` bytes: `tail` keeps the end of its input. `None` if there is none,
/// or the kernel does not run such programs (arm64 with base pages of 16K).
pub fn of_32_bits(bytes: u64) -> Option<Process> {
    let program = Path::new("/payload/bin/busybox-32");
    if !program.is_file() {
        return None;
    }
    let count = bytes.to_string();
    let child = Command::new(program)
        .args(["tail", "-c", &count])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .ok()?;
    let mut process = Process(child);
    let mut input = process.0.stdin.take().unwrap();
    let block = vec![b'x'; 1 << 16];
    for _ in 0..bytes / (1 << 16) {
        std::io::Write::write_all(&mut input, &block).unwrap();
    }
    // The input stays open, so that it waits for more.
    std::mem::forget(input);
    let held = || {
        smaps(process.pid())
            .iter()
            .map(|m| m.get("Rss"))
            .sum::<u64>()
    };
    while held() < bytes * 9 / 10 {
        std::thread::yield_now();
    }
    Some(process)
}
