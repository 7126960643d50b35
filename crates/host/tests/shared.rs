//! Processes that attach one shared-memory object: read once, and distinguished if they differ.
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use hugeleaf_host::{PageUsage, Process, Root, SharedMemoryObject, read_all_processes, read_host};
use hugeleaf_sys::{Kernel, Pid};
use hugeleaf_units::{Bytes, PageKind};

/// A holder process that ends when dropped.
struct Holder(Child);

impl Holder {
    fn start(file: &str, size: Bytes, skew: Bytes, collapse: bool) -> Holder {
        let mut command = Command::new(holder());
        command.args([file, &format!("{size:#}"), &format!("{skew:#}")]);
        if collapse {
            command.env("HOLD_COLLAPSE", "1");
        }
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("holder");
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        assert_eq!(line, "ready\n");
        Holder(child)
    }

    fn pid(&self) -> Pid {
        Pid(self.0.id())
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// Cargo builds examples next to the tests: target/PROFILE/examples.
fn holder() -> PathBuf {
    let mut path = std::env::current_exe().unwrap();
    path.pop();
    path.pop();
    path.join("examples/hold")
}

fn shared_file(name: &str, size: Bytes) -> (PathBuf, File) {
    let path = PathBuf::from(format!(
        "/dev/shm/hugeleaf-test-{name}-{}",
        std::process::id()
    ));
    let file = OpenOptions::new()
        .create_new(true)
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    file.set_len(size.get()).unwrap();
    (path, file)
}

fn look() -> (Vec<Process>, Vec<SharedMemoryObject>) {
    let kernel = Kernel::new();
    let host = read_host(&Root::live(), &kernel).unwrap();
    read_all_processes(&Root::live(), &kernel, &host)
}

fn on_thp(process: &Process) -> Bytes {
    let table = process.by_page_size.known().unwrap();
    table
        .iter()
        .filter(|h| h.kind == PageKind::Thp)
        .map(|h| h.bytes)
        .sum()
}

/// Returns true if shared memory can have huge pages here.
fn thp_here(test: &str) -> bool {
    let kernel = Kernel::new();
    let here = read_host(&Root::live(), &kernel)
        .unwrap()
        .pmd_page
        .get()
        .is_some();
    if !here {
        println!("not run: {test}: needs a kernel with transparent huge pages");
    }
    here
}

#[test]
fn one_of_many_that_attached_misaligned_is_told_apart() {
    let _host = hugeleaf_testkit::host_lock::shared();
    if !thp_here("one_of_many_that_attached_misaligned_is_told_apart") {
        return;
    }
    const PROCESSES: usize = 48;
    let size = Bytes::from_mib(32);
    let (path, _file) = shared_file("aligned", size);
    let name = path.to_str().unwrap();
    let base = Kernel::new().base_page().bytes();
    // The first one collapses the object. Later ones map it in that state.
    let mut holders = vec![Holder::start(name, size, Bytes::ZERO, true)];
    for i in 1..PROCESSES {
        let skew = if i == 31 { base } else { Bytes::ZERO };
        holders.push(Holder::start(name, size, skew, false));
    }
    let odd = holders[31].pid();
    let (processes, shared) = look();
    std::fs::remove_file(&path).unwrap();
    let object = shared
        .iter()
        .find(|o| o.attached.contains(&odd))
        .expect("the object");
    assert_eq!(object.attached.len(), PROCESSES);
    assert_eq!(object.misaligned, [odd]);
    assert!(
        PageUsage::coverage(&object.by_page_size).unwrap() > 0.9,
        "{object:?}"
    );
    assert_eq!(
        object.worse.iter().map(|(pid, _)| *pid).collect::<Vec<_>>(),
        [odd]
    );
    for holder in &holders {
        let process = processes.iter().find(|p| p.pid == holder.pid()).unwrap();
        if holder.pid() == odd {
            assert_eq!(on_thp(process), Bytes::ZERO);
        } else {
            assert!(on_thp(process) >= Bytes::from_mib(28), "{process:?}");
        }
    }
}

#[test]
fn memory_on_base_pages_is_not_taken_for_large() {
    let _host = hugeleaf_testkit::host_lock::shared();
    if !thp_here("memory_on_base_pages_is_not_taken_for_large") {
        return;
    }
    let size = Bytes::from_mib(32);
    let (path, _file) = shared_file("base", size);
    let name = path.to_str().unwrap();
    let holders: Vec<Holder> = (0..3)
        .map(|_| Holder::start(name, size, Bytes::ZERO, false))
        .collect();
    let (processes, shared) = look();
    std::fs::remove_file(&path).unwrap();
    let object = shared
        .iter()
        .find(|o| o.attached.contains(&holders[0].pid()))
        .unwrap();
    assert_eq!(PageUsage::coverage(&object.by_page_size), Some(0.0));
    assert_eq!(PageUsage::on_base(&object.by_page_size), size);
    for holder in &holders {
        let process = processes.iter().find(|p| p.pid == holder.pid()).unwrap();
        assert_eq!(on_thp(process), Bytes::ZERO);
    }
}

#[test]
fn private_memory_is_seen_by_size() {
    let _host = hugeleaf_testkit::host_lock::shared();
    if !thp_here("private_memory_is_seen_by_size") {
        return;
    }
    let size = Bytes::from_mib(16);
    let small = Holder::start("-", size, Bytes::ZERO, false);
    let large = Holder::start("-", size, Bytes::ZERO, true);
    let (processes, _) = look();
    let of = |h: &Holder| on_thp(processes.iter().find(|p| p.pid == h.pid()).unwrap());
    // With THP `always`, both are on huge pages, so only the process that collapsed it is certain.
    assert!(of(&large) >= Bytes::from_mib(12));
    let host = read_host(&Root::live(), &Kernel::new()).unwrap();
    if host
        .thp
        .known()
        .and_then(|t| t.enabled.known())
        .is_some_and(|e| e != "always")
    {
        assert_eq!(of(&small), Bytes::ZERO);
    }
}
