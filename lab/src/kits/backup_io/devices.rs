//! Devices, and the part of a device that a thread works on.
//!
//! New files in a folder are unlinked at once, and memory-backed devices clear themselves. Nothing
//! remains, whatever ends the program. Existing data is overwritten only if
//! [`DeviceOptions::overwrite`] is set.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use hugeleaf_host::Host;
use hugeleaf_io::{
    DirectIoSupport, MemoryDevice, OpenMode, allocate_file, direct_rules, length_of, open_direct,
};
use hugeleaf_sys::{Errno, SysError, errno_of};
use hugeleaf_units::Bytes;

use super::block::{BlockOrigin, expect, fill};
use super::error::{BackupIoError, BlockProblem};
use super::memory::{IoMemory, IoPages};
use hugeleaf_workload::chase::PageArm;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeviceLocation {
    Folder(PathBuf),
    /// New block devices whose blocks are memory.
    Memory,
    /// An existing file or block device, with its contents.
    Existing(PathBuf),
}

#[derive(Debug, Clone)]
pub struct DeviceOptions {
    /// Places of the devices; threads are assigned to them in turn.
    pub places: Vec<DeviceLocation>,
    pub sources: usize,
    pub targets: usize,
    pub each: Bytes,
    pub block: Bytes,
    pub overwrite: bool,
    pub seed: u64,
}

/// The devices of a run, filled with blocks.
#[derive(Debug)]
pub struct Devices {
    pub sources: Vec<DeviceRange>,
    pub targets: Vec<DeviceRange>,
    pub places: Vec<String>,
    _memory: Vec<MemoryDevice>,
}

/// A device or a part of one: consecutive blocks, used in order and again from the start.
#[derive(Debug)]
pub struct DeviceRange {
    name: String,
    file: File,
    offset: u64,
    blocks: u64,
    block: Bytes,
    next: AtomicU64,
    /// Blocks written since the last verification.
    unverified: AtomicU64,
    stamps: Mutex<Vec<BlockOrigin>>,
}

impl DeviceRange {
    pub(super) const fn file(&self) -> &File {
        &self.file
    }

    /// Returns the offset of a block in the device, in bytes.
    pub const fn offset_of(&self, index: u64) -> u64 {
        self.offset + index * self.block.get()
    }

    /// Returns the number of the next block; the first follows the last.
    pub(crate) fn take_next(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed) % self.blocks
    }

    pub(super) fn note_write(&self, index: u64, stamp: BlockOrigin) {
        let mut stamps = self.stamps.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = usize::try_from(index).ok().and_then(|i| stamps.get_mut(i)) {
            *at = stamp;
        }
        self.unverified.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn stamp(&self, index: u64) -> BlockOrigin {
        let stamps = self.stamps.lock().unwrap_or_else(PoisonError::into_inner);
        let at = usize::try_from(index).unwrap_or(usize::MAX);
        stamps.get(at).copied().unwrap_or_default()
    }

    /// Checks the device's answer to a transfer.
    pub(super) fn judge(
        &self,
        what: &'static str,
        index: u64,
        moved: Result<usize, Errno>,
    ) -> Result<(), BackupIoError> {
        let problem = match moved {
            Ok(moved) if moved as u64 == self.block.get() => return Ok(()),
            Ok(moved) => BlockProblem::Short(Bytes(moved as u64), self.block),
            Err(errno) => BlockProblem::Io(errno),
        };
        Err(self.problem(what, index, problem))
    }

    fn problem(&self, what: &'static str, index: u64, problem: BlockProblem) -> BackupIoError {
        BackupIoError::Block {
            what,
            device: self.name.clone(),
            offset: self.offset_of(index),
            problem,
        }
    }

    /// Checks that a block read from the device is the expected one.
    pub(super) fn check(&self, index: u64, block: &[u8]) -> Result<BlockOrigin, BackupIoError> {
        let stamp = self.stamp(index);
        let wrong = |wrong| self.problem("wrong data from", index, BlockProblem::Wrong(wrong));
        expect(block, stamp).map_err(wrong)?;
        Ok(stamp)
    }

    /// Fills all blocks, each with its own content.
    fn fill(
        &self,
        number: u64,
        buffer: &mut [u8],
        seed: u64,
        stop: &AtomicBool,
    ) -> Result<(), BackupIoError> {
        let mut random = fastrand::Rng::with_seed(seed ^ number.rotate_left(32));
        for index in 0..self.blocks {
            if stop.load(Ordering::Relaxed) {
                return Err(BackupIoError::Stopped);
            }
            let stamp = BlockOrigin {
                source: number,
                index,
            };
            fill(buffer, stamp, &mut random);
            let moved = retry(|| self.file.write_at(buffer, self.offset_of(index)));
            self.judge("write", index, moved)?;
            self.note_write(index, stamp);
        }
        self.unverified.store(0, Ordering::Relaxed);
        Ok(())
    }

    /// Reads back the blocks written since the last verification, and returns their number.
    pub(super) fn verify(&self, buffer: &mut [u8]) -> Result<u64, BackupIoError> {
        let count = self.unverified.swap(0, Ordering::Relaxed).min(self.blocks);
        let next = self.next.load(Ordering::Relaxed);
        for back in 1..=count {
            let index = (next + self.blocks - back) % self.blocks;
            let moved = retry(|| self.file.read_at(buffer, self.offset_of(index)));
            self.judge("read", index, moved)?;
            self.check(index, buffer)?;
        }
        Ok(count)
    }
}

pub(super) fn retry(mut call: impl FnMut() -> std::io::Result<usize>) -> Result<usize, Errno> {
    loop {
        match call() {
            Ok(moved) => return Ok(moved),
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(errno_of(&e)),
        }
    }
}

impl Devices {
    /// Makes and fills the devices.
    ///
    /// # Errors
    /// [`BackupIoError`]; all created devices are removed then.
    pub fn make(
        wanted: &DeviceOptions,
        host: &Host,
        stop: &AtomicBool,
    ) -> Result<Devices, BackupIoError> {
        refuse_what_is_there(wanted)?;
        let mut maker = DeviceMaker {
            wanted,
            memory: Vec::new(),
            dealt: vec![0; wanted.places.len()],
        };
        let mut areas = Vec::new();
        for number in 0..wanted.sources + wanted.targets {
            areas.push(maker.area(number)?);
        }
        let pages = IoPages::Pages(PageArm::base(host));
        let mut memory = IoMemory::take(pages, wanted.block, host, wanted.seed)?;
        for (number, area) in areas.iter().enumerate() {
            area.fill(number as u64, memory.bytes(), wanted.seed, stop)?;
        }
        let targets = areas.split_off(wanted.sources);
        Ok(Devices {
            sources: areas,
            targets,
            places: wanted.places.iter().map(name_of).collect(),
            _memory: maker.memory,
        })
    }
}

fn name_of(place: &DeviceLocation) -> String {
    match place {
        DeviceLocation::Folder(path) => format!("files in {}", path.display()),
        DeviceLocation::Memory => "loop devices on memory".to_owned(),
        DeviceLocation::Existing(path) => path.display().to_string(),
    }
}

fn refuse_what_is_there(wanted: &DeviceOptions) -> Result<(), BackupIoError> {
    for place in &wanted.places {
        let DeviceLocation::Existing(path) = place else {
            continue;
        };
        let name = path.display().to_string();
        if !path.exists() {
            return Err(SysError::new("open(O_DIRECT)", name, Errno::NOENT).into());
        }
        if !wanted.overwrite {
            return Err(BackupIoError::There(name));
        }
    }
    Ok(())
}

struct DeviceMaker<'a> {
    wanted: &'a DeviceOptions,
    memory: Vec<MemoryDevice>,
    /// Number of areas that each place has given so far.
    dealt: Vec<usize>,
}

impl DeviceMaker<'_> {
    fn area(&mut self, number: usize) -> Result<DeviceRange, BackupIoError> {
        let places = &self.wanted.places;
        let at = number % places.len().max(1);
        let place = &places[at];
        let nth = self.dealt[at];
        self.dealt[at] += 1;
        let (name, file, offset, length) = match place {
            DeviceLocation::Folder(folder) => {
                let (name, file) = self.new_file(folder, number)?;
                (name, file, 0, self.wanted.each)
            }
            DeviceLocation::Memory => {
                let device = MemoryDevice::new(self.wanted.each).map_err(BackupIoError::Device)?;
                let file = device.file().try_clone();
                let file = file.map_err(|e| SysError::new("dup", "", errno_of(&e)))?;
                let name = device.path().display().to_string();
                self.memory.push(device);
                (name, file, 0, self.wanted.each)
            }
            DeviceLocation::Existing(path) => self.part(path, at, nth)?,
        };
        self.check_direct(&file, &name)?;
        let blocks = length.get() / self.wanted.block.get();
        let count = usize::try_from(blocks).unwrap_or(usize::MAX);
        Ok(DeviceRange {
            name,
            file,
            offset,
            blocks,
            block: self.wanted.block,
            next: AtomicU64::new(0),
            unverified: AtomicU64::new(0),
            stamps: Mutex::new(vec![BlockOrigin::default(); count]),
        })
    }

    /// Makes a new file with all its space allocated, and unlinks it at once.
    fn new_file(&self, folder: &Path, number: usize) -> Result<(String, File), BackupIoError> {
        let path = folder.join(format!(".hugeleaf-mover-{}-{number}", std::process::id()));
        let file = open(&path, OpenMode::New)?;
        let gone = std::fs::remove_file(&path);
        gone.map_err(|e| SysError::new("unlink", path.display().to_string(), errno_of(&e)))?;
        match allocate_file(&file, self.wanted.each) {
            Ok(()) => {}
            // The file is written from end to end next, which reports a full disk.
            Err(error) if error.errno == Errno::OPNOTSUPP => {}
            Err(error) => {
                return Err(BackupIoError::NoRoom {
                    folder: folder.display().to_string(),
                    threads: self.wanted.sources + self.wanted.targets,
                    each: self.wanted.each,
                    errno: error.errno,
                });
            }
        }
        Ok((format!("{} (file {number})", folder.display()), file))
    }

    /// Returns the `nth` part of an existing device.
    fn part(
        &self,
        path: &Path,
        at: usize,
        nth: usize,
    ) -> Result<(String, File, u64, Bytes), BackupIoError> {
        let wanted = self.wanted;
        let file = open(path, OpenMode::Write)?;
        let length = length_of(&file)?;
        let all = wanted.sources + wanted.targets;
        let (places, block) = (wanted.places.len(), wanted.block.get());
        let users = all / places + usize::from(at < all % places);
        let each = (length.get() / users.max(1) as u64).min(wanted.each.get()) / block * block;
        if each == 0 {
            return Err(BackupIoError::TooSmall {
                path: path.display().to_string(),
                length,
                threads: users,
                least: wanted.block,
            });
        }
        let name = path.display().to_string();
        Ok((name, file, nth as u64 * each, Bytes(each)))
    }

    fn check_direct(&self, file: &File, name: &str) -> Result<(), BackupIoError> {
        let path = name.to_owned();
        match direct_rules(file)? {
            DirectIoSupport::None => Err(BackupIoError::NotDirect(path)),
            DirectIoSupport::Aligned { offset, .. }
                if !self.wanted.block.get().is_multiple_of(offset.into()) =>
            {
                Err(BackupIoError::Alignment {
                    path,
                    step: Bytes(offset.into()),
                    block: self.wanted.block,
                })
            }
            _ => Ok(()),
        }
    }
}

fn open(path: &Path, how: OpenMode) -> Result<File, BackupIoError> {
    open_direct(path, how).map_err(|error| match error.errno {
        Errno::INVAL => {
            // open(2) makes the file before it refuses the flag.
            if how == OpenMode::New {
                let _ = std::fs::remove_file(path);
            }
            BackupIoError::NotDirect(path.display().to_string())
        }
        _ => BackupIoError::Sys(error),
    })
}
