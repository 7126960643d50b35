//! The data path on real files and devices: an error ends the run, and names its place.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hugeleaf_host::{Host, Root, read_memory_facts};
use hugeleaf_io::MemoryDevice;
use hugeleaf_lab::kits::backup_io::{
    BackupIoError, BackupIoLoad, BlockProblem, DeviceLocation, DeviceOptions, Devices, IoMemory,
    IoMode, IoPages, run, verify,
};
use hugeleaf_sys::{Errno, Kernel, MemoryFile, MemorySyscalls};
use hugeleaf_units::Bytes;
use hugeleaf_workload::PageArm;

const BLOCK: Bytes = Bytes::from_kib(64);
const EACH: Bytes = Bytes::from_kib(1024);

fn host() -> Host {
    read_memory_facts(&Root::live(), &Kernel::new()).unwrap()
}

fn is_wrong(error: &BackupIoError) -> bool {
    matches!(
        error,
        BackupIoError::Block {
            problem: BlockProblem::Wrong(_),
            ..
        }
    )
}

/// Makes a folder on a disk, in the build's own.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// Makes an existing file.
fn file(folder: &Path) -> PathBuf {
    let path = folder.join("device");
    File::create(&path).unwrap().set_len(EACH.get()).unwrap();
    path
}

fn wanted(path: &Path, sources: usize, targets: usize) -> DeviceOptions {
    DeviceOptions {
        places: vec![DeviceLocation::Existing(path.to_owned())],
        sources,
        targets,
        each: EACH,
        block: BLOCK,
        overwrite: true,
        seed: 1,
    }
}

/// Makes devices; returns `None`, with a note, without direct I/O.
fn devices(test: &str, wanted: &DeviceOptions) -> Option<Devices> {
    match Devices::make(wanted, &host(), &AtomicBool::new(false)) {
        Ok(devices) => Some(devices),
        Err(BackupIoError::NotDirect(path)) => {
            println!("not run: {test}: no direct I/O at {path}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn memory() -> IoMemory {
    let host = host();
    let pages = IoPages::Pages(PageArm::base(&host));
    IoMemory::take(pages, Bytes(BLOCK.get() * 16), &host, 1).unwrap()
}

fn load(devices: &Devices, mode: IoMode) -> BackupIoLoad<'_> {
    BackupIoLoad {
        mode,
        depth: 2,
        block: BLOCK,
        rate: None,
        sources: &devices.sources,
        targets: &devices.targets,
        warm: Duration::from_millis(1),
        time: Duration::from_millis(60),
        base: host().base_page,
    }
}

fn go(devices: &Devices, memory: &mut IoMemory, mode: IoMode) -> Result<Bytes, BackupIoError> {
    let stop = AtomicBool::new(false);
    let mut edges = 0;
    let moved = run(memory, &load(devices, mode), &stop, &mut |_| edges += 1)?;
    assert_eq!(edges, 2);
    Ok(moved.read + moved.written)
}

#[test]
fn all_modes_move_what_they_should() {
    let folder = folder();
    let path = file(folder.path());
    let Some(devices) = devices("all_modes_move_what_they_should", &wanted(&path, 1, 2)) else {
        return;
    };
    let mut memory = memory();
    for mode in IoMode::ALL {
        match go(&devices, &mut memory, mode) {
            Ok(moved) => assert!(moved > Bytes::ZERO, "{mode}"),
            Err(BackupIoError::Sys(error)) if error.call == "io_uring_setup" => {
                println!(
                    "not run: the part of all_modes_move_what_they_should with {mode}: {error}"
                );
                continue;
            }
            Err(error) => panic!("{mode}: {error}"),
        }
        assert!(verify(&mut memory, &devices.targets, BLOCK).unwrap() > 0);
        // Nothing was written since.
        assert_eq!(verify(&mut memory, &devices.targets, BLOCK).unwrap(), 0);
    }
}

#[test]
fn a_flipped_byte_ends_the_run() {
    let folder = folder();
    let path = file(folder.path());
    let Some(devices) = devices("a_flipped_byte_ends_the_run", &wanted(&path, 1, 0)) else {
        return;
    };
    let mut memory = memory();
    go(&devices, &mut memory, IoMode::Direct).unwrap();
    flip(&path, BLOCK.get() * 3 + 1000);
    let error = go(&devices, &mut memory, IoMode::Direct).unwrap_err();
    let text = error.to_string();
    assert!(is_wrong(&error), "{text}");
    assert!(text.contains("device at 192K: the checksum is"), "{text}");
    assert!(error.next().contains("do not trust this device"));
}

#[test]
fn a_byte_that_is_flipped_after_it_was_written_is_found() {
    let folder = folder();
    let path = file(folder.path());
    let test = "a_byte_that_is_flipped_after_it_was_written_is_found";
    let Some(devices) = devices(test, &wanted(&path, 0, 1)) else {
        return;
    };
    let mut memory = memory();
    go(&devices, &mut memory, IoMode::Direct).unwrap();
    flip(&path, BLOCK.get() + 7000);
    let found = verify(&mut memory, &devices.targets, BLOCK);
    assert!(found.as_ref().is_err_and(is_wrong), "{found:?}");
}

/// A block that was written to the wrong place has a good checksum, but is not the expected one.
#[test]
fn a_block_in_the_wrong_place_is_found() {
    let folder = folder();
    let path = file(folder.path());
    let test = "a_block_in_the_wrong_place_is_found";
    let Some(devices) = devices(test, &wanted(&path, 1, 0)) else {
        return;
    };
    let open = File::options().read(true).write(true).open(&path).unwrap();
    let mut block = vec![0; usize::try_from(BLOCK.get()).unwrap()];
    open.read_exact_at(&mut block, 0).unwrap();
    open.write_all_at(&block, BLOCK.get()).unwrap();
    open.sync_all().unwrap();
    let error = go(&devices, &mut memory(), IoMode::Direct).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("block 0 of source 0 instead of block 1"),
        "{text}"
    );
}

#[test]
fn a_device_that_gets_shorter_is_told() {
    let folder = folder();
    let path = file(folder.path());
    let test = "a_device_that_gets_shorter_is_told";
    let Some(devices) = devices(test, &wanted(&path, 1, 0)) else {
        return;
    };
    let open = File::options().write(true).open(&path).unwrap();
    let length = BLOCK.get() * 2 + host().base_page.bytes().get();
    open.set_len(length).unwrap();
    for mode in [IoMode::Direct, IoMode::Uring] {
        let error = go(&devices, &mut memory(), mode).unwrap_err();
        if let BackupIoError::Sys(error) = &error {
            println!("not run: the part of {test} with {mode}: {error}");
            continue;
        }
        let text = error.to_string();
        assert!(
            matches!(
                error,
                BackupIoError::Block {
                    problem: BlockProblem::Short(..),
                    ..
                }
            ),
            "{text}"
        );
        assert!(
            text.starts_with("read ") && text.ends_with("of 64K"),
            "{text}"
        );
    }
}

/// A loop device over memory that may not grow: data written past its end is lost, and the device
/// reports EIO.
#[test]
fn an_error_of_the_device_is_told() {
    let test = "an_error_of_the_device_is_told";
    let memory_calls = MemorySyscalls::new();
    let file = memory_calls.create_file("test", EACH, None).unwrap();
    let handle = MemoryFile::from_fd(file.file().try_clone().unwrap().into());
    let device = match MemoryDevice::over(file) {
        Ok(device) => device,
        Err(error) => {
            println!("not run: {test}: {error}");
            return;
        }
    };
    let Some(devices) = devices(test, &wanted(device.path(), 0, 1)) else {
        return;
    };
    memory_calls.set_length(&handle, BLOCK).unwrap();
    memory_calls.seal_length(&handle).unwrap();
    let error = go(&devices, &mut memory(), IoMode::Direct).unwrap_err();
    let text = error.to_string();
    let is_io = matches!(
        error,
        BackupIoError::Block {
            problem: BlockProblem::Io(Errno::IO),
            ..
        }
    );
    assert!(is_io, "{text}");
    assert!(text.starts_with("write /dev/loop"), "{text}");
}

#[test]
fn what_is_there_is_left_alone() {
    let folder = folder();
    let path = file(folder.path());
    std::fs::write(&path, "precious").unwrap();
    let mut wanted = wanted(&path, 1, 1);
    wanted.overwrite = false;
    let stop = AtomicBool::new(false);
    let error = Devices::make(&wanted, &host(), &stop).unwrap_err();
    assert!(matches!(error, BackupIoError::There { .. }), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    wanted.overwrite = true;
    let error = Devices::make(&wanted, &host(), &stop).unwrap_err();
    assert!(matches!(error, BackupIoError::TooSmall { .. }), "{error}");
    wanted.places = vec![DeviceLocation::Existing(folder.path().join("none"))];
    let error = Devices::make(&wanted, &host(), &stop).unwrap_err();
    assert!(error.to_string().contains("none: No such file"), "{error}");
    stop.store(true, Ordering::Relaxed);
    wanted.places = vec![DeviceLocation::Folder(folder.path().to_owned())];
    let error = Devices::make(&wanted, &host(), &stop).unwrap_err();
    assert!(matches!(error, BackupIoError::Stopped), "{error}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

fn flip(path: &Path, at: u64) {
    let open = File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    open.read_exact_at(&mut byte, at).unwrap();
    open.write_all_at(&[byte[0] ^ 1], at).unwrap();
    open.sync_all().unwrap();
}
