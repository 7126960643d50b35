//! A kernel from its packages: the image that QEMU boots, and an initial RAM disk with the modules
//! that guests may need.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, bail};

use crate::architecture::Architecture;
use crate::cache::{ArtifactCache, hex};
use crate::debian::{DebianSuite, named};
use crate::guest_config::KernelPackage;
use crate::process::{need, output, program};

/// Modules that guests may load; a module that is built into a kernel has no file.
const MODULES: [&str; 12] = [
    "virtio_pci",
    "virtio_console",
    "virtio_blk",
    "ext4",
    "zram",
    "loop",
    "xfs",
    "btrfs",
    "zsmalloc",
    "lz4",
    "lzo_rle",
    "configfs",
];

/// The first program of the initial RAM disk.
const INIT: &str = include_str!("../guest/init");

#[derive(Debug, Clone)]
pub struct BootFiles {
    /// Name of its release, such as `7.3.4+deb13-cloud-amd64`.
    pub release: String,
    pub image: PathBuf,
    pub ram_disk: PathBuf,
}

/// Fetches a kernel, or returns the cached one.
///
/// # Errors
/// [`MissingPrecondition`](crate::missing_precondition::MissingPrecondition) if a package or a program is unavailable.
pub fn bootable(
    cache: &ArtifactCache,
    kernel: &KernelPackage,
    architecture: Architecture,
) -> anyhow::Result<BootFiles> {
    let suite = DebianSuite::open(cache, &kernel.suite, architecture.debian())?;
    let closure = suite.closure(&kernel.package)?;
    // From 7.2 on Debian ships the image and the modules in separate packages.
    let image = named(&closure, &["linux-binary-", "linux-image-"])?;
    let modules = named(&closure, &["linux-modules-", "linux-image-"])?;
    let key = format!("{}_{}_{}", image.name, image.version, version_of_init());
    let folder = cache.kept("kernels", &key, |folder| {
        eprintln!("fetching {} {}", image.name, image.version);
        let unpacked = tempfile::tempdir_in(cache.folder("kernels")?)?;
        suite.unpack(&image.name, unpacked.path())?;
        if modules.name != image.name {
            suite.unpack(&modules.name, unpacked.path())?;
        }
        suite.unpack("busybox-static", unpacked.path())?;
        make(unpacked.path(), folder)
    })?;
    let release = fs::read_to_string(folder.join("release"))?;
    Ok(BootFiles {
        release,
        image: folder.join("image"),
        ram_disk: folder.join("ram-disk"),
    })
}

/// Hashes init and the list of modules, since a change of either makes another RAM disk.
fn version_of_init() -> String {
    use sha2::{Digest, Sha256};
    hex(&Sha256::digest(format!("{INIT}{MODULES:?}"))[..4])
}

fn make(unpacked: &Path, folder: &Path) -> anyhow::Result<()> {
    let (release, modules) = modules_of(unpacked)?;
    let image = [
        unpacked.join(format!("boot/vmlinuz-{release}")),
        modules.join("vmlinuz"),
    ];
    let image = image
        .iter()
        .find(|path| path.is_file())
        .with_context(|| format!("the packages of {release} have no image"))?;
    fs::copy(image, folder.join("image"))?;
    fs::write(folder.join("release"), &release)?;
    let tree = tempfile::tempdir_in(folder)?;
    lay_out(unpacked, &modules, tree.path())?;
    pack(tree.path(), &folder.join("ram-disk"))
}

/// Returns the release of a kernel, and the folder of its modules.
fn modules_of(unpacked: &Path) -> anyhow::Result<(String, PathBuf)> {
    for place in ["usr/lib/modules", "lib/modules"] {
        let Ok(entries) = fs::read_dir(unpacked.join(place)) else {
            continue;
        };
        for entry in entries {
            let entry = entry?;
            if entry.path().join("kernel").is_dir() {
                let release = entry.file_name().to_string_lossy().into_owned();
                return Ok((release, entry.path()));
            }
        }
    }
    bail!("the packages have no modules")
}

/// Makes the files of the initial RAM disk: a shell, modules, and the load order of each module.
fn lay_out(unpacked: &Path, modules: &Path, tree: &Path) -> anyhow::Result<()> {
    for folder in ["bin", "modules", "proc", "sys", "dev", "root"] {
        fs::create_dir(tree.join(folder))?;
    }
    fs::copy(busybox(unpacked)?, tree.join("bin/busybox"))?;
    let init = tree.join("init");
    fs::write(&init, INIT)?;
    set_executable(&init)?;
    let files = module_files(modules)?;
    for name in MODULES {
        let mut order = Vec::new();
        load_order(&files, name, tree, &mut order)?;
        if !order.is_empty() {
            fs::write(tree.join("modules").join(name), order.join("\n") + "\n")?;
        }
    }
    Ok(())
}

/// Returns busybox in its unpacked package.
fn busybox(unpacked: &Path) -> anyhow::Result<PathBuf> {
    ["usr/bin/busybox", "bin/busybox"]
        .map(|path| unpacked.join(path))
        .into_iter()
        .find(|path| path.is_file())
        .context("busybox-static has no busybox")
}

/// Returns a 32-bit program that runs on a 64-bit kernel: busybox, as the file `busybox-32`.
///
/// # Errors
/// [`MissingPrecondition`](crate::missing_precondition::MissingPrecondition) if its package cannot be fetched.
pub fn busybox_32(
    cache: &ArtifactCache,
    suite: &str,
    architecture: Architecture,
) -> anyhow::Result<PathBuf> {
    let narrow = architecture.debian_32();
    let key = format!("busybox-32_{suite}_{narrow}");
    let suite = DebianSuite::open(cache, suite, narrow)?;
    let folder = cache.kept("programs", &key, |folder| {
        let unpacked = tempfile::tempdir_in(cache.folder("programs")?)?;
        suite.unpack("busybox-static", unpacked.path())?;
        fs::copy(busybox(unpacked.path())?, folder.join("busybox-32"))?;
        Ok(())
    })?;
    Ok(folder.join("busybox-32"))
}

/// Makes a file executable.
///
/// # Errors
/// If its rights cannot be changed.
pub fn set_executable(path: &Path) -> anyhow::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
    Ok(())
}

/// Returns the files of modules by name; `-` and `_` are equivalent in names.
fn module_files(modules: &Path) -> anyhow::Result<BTreeMap<String, PathBuf>> {
    let mut files = BTreeMap::new();
    let mut folders = vec![modules.join("kernel")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if let Some((name, _)) = name.split_once(".ko") {
                files.insert(name.replace('-', "_"), path.clone());
            }
        }
    }
    Ok(files)
}

/// Copies a module and all modules that it needs, and lists them in load order.
fn load_order(
    files: &BTreeMap<String, PathBuf>,
    name: &str,
    tree: &Path,
    order: &mut Vec<String>,
) -> anyhow::Result<()> {
    let file = format!("{name}.ko");
    let Some(path) = files.get(name).filter(|_| !order.contains(&file)) else {
        return Ok(());
    };
    let code = decompressed(path)?;
    for needed in needed_by(&code) {
        load_order(files, &needed, tree, order)?;
    }
    fs::write(tree.join("modules").join(&file), code)?;
    order.push(file);
    Ok(())
}

fn decompressed(path: &Path) -> anyhow::Result<Vec<u8>> {
    let (tool, package) = match path.extension().and_then(|e| e.to_str()) {
        Some("xz") => ("xz", "xz-utils"),
        Some("zst") => ("zstd", "zstd"),
        Some("gz") => ("gzip", "gzip"),
        _ => return Ok(fs::read(path)?),
    };
    let out = program(need(tool, package)?, &["-dc"]).arg(path).output()?;
    if !out.status.success() {
        bail!("{}: {tool} ended in {}", path.display(), out.status);
    }
    Ok(out.stdout)
}

/// Returns the modules that a module needs: the entry `depends=` of its section `.modinfo`.
fn needed_by(code: &[u8]) -> Vec<String> {
    let key = b"\0depends=";
    let Some(at) = code.windows(key.len()).position(|part| part == key) else {
        return Vec::new();
    };
    let rest = &code[at + key.len()..];
    let end = rest.iter().position(|b| *b == 0).unwrap_or(rest.len());
    String::from_utf8_lossy(&rest[..end])
        .split(',')
        .filter(|name| !name.is_empty())
        .map(|name| name.replace('-', "_"))
        .collect()
}

/// Packs a folder in the kernel's format (Documentation/driver-api/early-userspace/buffer-format.rst).
fn pack(tree: &Path, into: &Path) -> anyhow::Result<()> {
    let names = output(program("find", &["."]).current_dir(tree))?;
    let arguments = ["--quiet", "-o", "-H", "newc", "-R", "+0:+0"];
    let mut packer = program(need("cpio", "cpio")?, &arguments)
        .current_dir(tree)
        .stdin(Stdio::piped())
        .stdout(fs::File::create(into)?)
        .spawn()?;
    let mut input = packer.stdin.take().context("cpio has no input")?;
    input.write_all(names.as_bytes())?;
    drop(input);
    let status = packer.wait()?;
    if !status.success() {
        bail!("cpio ended in {status}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_module_needs_is_in_its_file() {
        let code = b"license=GPL\0depends=crc16,jbd2,crypto-hash\0retpoline=Y\0";
        assert_eq!(needed_by(code), ["crc16", "jbd2", "crypto_hash"]);
        assert!(needed_by(b"license=GPL\0depends=\0x").is_empty());
        assert!(needed_by(b"").is_empty());
    }

    #[test]
    fn modules_load_after_what_they_need() {
        let folder = tempfile::tempdir().unwrap();
        let modules = folder.path().join("m");
        let tree = folder.path().join("t");
        fs::create_dir_all(modules.join("kernel/fs")).unwrap();
        fs::create_dir_all(tree.join("modules")).unwrap();
        let write = |name: &str, needs: &str| {
            let code = format!("a=b\0depends={needs}\0");
            fs::write(modules.join("kernel/fs").join(name), code).unwrap();
        };
        write("ext4.ko", "jbd2,crc-x");
        write("jbd2.ko", "crc-x");
        write("crc-x.ko", "");
        let files = module_files(&modules).unwrap();
        let mut order = Vec::new();
        load_order(&files, "ext4", &tree, &mut order).unwrap();
        assert_eq!(order, ["crc_x.ko", "jbd2.ko", "ext4.ko"]);
        load_order(&files, "built_in", &tree, &mut order).unwrap();
        assert_eq!(order.len(), 3);
    }
}
