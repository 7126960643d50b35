//! Frames and stacks during collection, each stored once and numbered. A user frame is stored by
//! its file and offset at the time of the sample, so that it can be named after the process has
//! exited. Names are resolved at the end.

use std::collections::HashMap;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Frame {
    Kernel(u64),
    /// In a file (an index in [`Stacks::modules`]), at an offset.
    File(u32, u64),
    /// In no known file, at an address of a process (its PID).
    Process(u32, u64),
    /// In a process that ended before its code was read.
    Ended,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Module {
    /// Its path as the process saw it.
    pub path: String,
    /// Its inode, if known: another inode at that path is another program.
    pub inode: u64,
    /// A process that mapped it, through which even a deleted file can be opened.
    pub pid: u32,
}

#[derive(Debug, Default)]
pub struct Stacks {
    frames: Vec<Frame>,
    frame_numbers: HashMap<Frame, u32>,
    stacks: Vec<Box<[u32]>>,
    stack_numbers: HashMap<Box<[u32]>, u32>,
    kernel: HashMap<Box<[u64]>, u32>,
    modules: Vec<Module>,
    module_numbers: HashMap<(String, u64), u32>,
}

/// Marks between the contexts of a stack (`PERF_CONTEXT_*`): the 4095 largest numbers.
const MARKS: u64 = u64::MAX - 4095; // not a page size

/// `PERF_CONTEXT_KERNEL`.
const KERNEL: u64 = 0u64.wrapping_sub(128);

/// `PERF_CONTEXT_USER`.
const USER: u64 = 0u64.wrapping_sub(512);

fn number(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

/// Returns the frames of a raw stack without marks, with true for kernel frames.
pub fn contexts(raw: &[u64]) -> impl Iterator<Item = (u64, bool)> {
    let mut kernel = false;
    raw.iter().filter_map(move |word| {
        if *word >= MARKS {
            kernel = match *word {
                KERNEL => true,
                USER => false,
                _ => kernel,
            };
            return None;
        }
        Some((*word, kernel))
    })
}

impl Stacks {
    pub fn module(&mut self, path: &str, inode: u64, pid: u32) -> u32 {
        // A pair of text and number has no borrowed form; one allocation per mapping is cheap.
        let key = (path.to_owned(), inode);
        let next = number(self.modules.len());
        let modules = &mut self.modules;
        *self.module_numbers.entry(key).or_insert_with(|| {
            modules.push(Module {
                path: path.to_owned(),
                inode,
                pid,
            });
            next
        })
    }

    pub fn frame(&mut self, frame: Frame) -> u32 {
        let next = number(self.frames.len());
        let frames = &mut self.frames;
        *self.frame_numbers.entry(frame).or_insert_with(|| {
            frames.push(frame);
            next
        })
    }

    pub fn stack(&mut self, frames: &[u32]) -> u32 {
        if let Some(known) = self.stack_numbers.get(frames) {
            return *known;
        }
        let next = number(self.stacks.len());
        self.stacks.push(frames.into());
        self.stack_numbers.insert(frames.into(), next);
        next
    }

    /// Returns the number of a kernel-only stack directly from a record: a fast path for events
    /// that occur a hundred thousand times a second.
    pub fn kernel_stack(&mut self, raw: &[u64]) -> u32 {
        if let Some(known) = self.kernel.get(raw) {
            return *known;
        }
        let addresses: Vec<u64> = contexts(raw).map(|(address, _)| address).collect();
        let frames: Vec<u32> = addresses
            .iter()
            .map(|address| self.frame(Frame::Kernel(*address)))
            .collect();
        let stack = self.stack(&frames);
        self.kernel.insert(raw.into(), stack);
        stack
    }

    pub fn frames(&self) -> &[Frame] {
        &self.frames
    }

    pub fn modules(&self) -> &[Module] {
        &self.modules
    }

    pub fn stacks(&self) -> &[Box<[u32]>] {
        &self.stacks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_are_told_apart() {
        let raw = [KERNEL, 0xffff_ffff_8100_0000, USER, 0x1000, 0x2000];
        let frames: Vec<_> = contexts(&raw).collect();
        assert_eq!(
            frames,
            [
                (0xffff_ffff_8100_0000, true),
                (0x1000, false),
                (0x2000, false)
            ]
        );
    }

    #[test]
    fn each_is_kept_once() {
        let mut stacks = Stacks::default();
        let one = stacks.kernel_stack(&[KERNEL, 1, 2]);
        assert_eq!(stacks.kernel_stack(&[KERNEL, 1, 2]), one);
        assert_ne!(stacks.kernel_stack(&[KERNEL, 1, 3]), one);
        assert_eq!(stacks.frames().len(), 3);
        let bin = stacks.module("/bin/a", 5, 1);
        assert_eq!(stacks.module("/bin/a", 5, 2), bin);
        // The same path, replaced.
        assert_ne!(stacks.module("/bin/a", 6, 2), bin);
    }
}
