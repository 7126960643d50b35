//! Container images of programs that are installed in the guest.
//!
//! The emulated processor hashes and copies slowly, so all images are imported at once, programs have no symbols, and
//! versions of an image share their layer.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use hugeleaf_vm::process::output;
use serde_json::{Value, json};

/// Images of one program: their names, the program, and its place in the image.
pub struct Images<'a> {
    pub names: &'a [&'a str],
    pub program: &'a str,
    pub place: &'a str,
    /// Command of containers that name none.
    pub command: &'a [&'a str],
}

/// Imports images into the runtime.
pub fn import(all: &[Images<'_>]) {
    let folder = tempfile::tempdir_in("/var/lib").unwrap();
    let image = folder.path().join("image");
    fs::create_dir_all(image.join("blobs/sha256")).unwrap();
    let mut manifests = Vec::new();
    for each in all {
        let root = folder.path().join("root");
        lay_out(&root, Path::new(each.program), each.place);
        let layer = pack(&root, &image);
        fs::remove_dir_all(&root).unwrap();
        manifests.extend(
            each.names
                .iter()
                .map(|name| manifest(&image, name, each.command, &layer)),
        );
    }
    let index = json!({"schemaVersion": 2, "manifests": manifests});
    fs::write(image.join("index.json"), index.to_string()).unwrap();
    let version = json!({"imageLayoutVersion": "1.0.0"});
    fs::write(image.join("oci-layout"), version.to_string()).unwrap();
    let archive = folder.path().join("image.tar");
    tar(&image, &archive);
    let arguments = [
        "-n",
        "k8s.io",
        "images",
        "import",
        "--snapshotter",
        "native",
    ];
    output(Command::new("ctr").args(arguments).arg(&archive)).unwrap();
}

/// Makes the root of an image: a program with its libraries.
fn lay_out(root: &Path, program: &Path, place: &str) {
    for folder in ["dev", "etc", "proc", "sys", "tmp"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    let inside = |path: &str| root.join(path.trim_start_matches('/'));
    copy(program, &inside(place));
    // A static program has none.
    let libraries = output(Command::new("ldd").arg(program)).unwrap_or_default();
    let words = libraries.split_ascii_whitespace();
    for library in words.filter(|word| word.starts_with('/')) {
        copy(Path::new(library), &inside(library));
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to.parent().unwrap()).unwrap();
    fs::copy(from, to).unwrap();
}

fn tar(folder: &Path, archive: &Path) {
    let mut command = Command::new("tar");
    command
        .arg("-C")
        .arg(folder)
        .arg("-cf")
        .arg(archive)
        .arg(".");
    output(&mut command).unwrap();
}

/// Packs a root as a layer (https://github.com/opencontainers/image-spec/blob/main/image-layout.md).
fn pack(root: &Path, image: &Path) -> Value {
    let layer = image.join("layer");
    tar(root, &layer);
    blob(image, layer, "application/vnd.oci.image.layer.v1.tar")
}

/// Writes the manifest of an image, and returns its descriptor.
fn manifest(image: &Path, name: &str, command: &[&str], layer: &Value) -> Value {
    let config = json!({
        "architecture": "amd64", "os": "linux", "config": {"Entrypoint": command, "Labels": {"name": name}},
        "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]},
    });
    let config = text(image, &config, "application/vnd.oci.image.config.v1+json");
    let manifest = json!({"schemaVersion": 2, "config": config, "layers": [layer]});
    let mut manifest = text(
        image,
        &manifest,
        "application/vnd.oci.image.manifest.v1+json",
    );
    manifest["annotations"] = json!({"io.containerd.image.name": name});
    manifest
}

fn text(image: &Path, content: &Value, kind: &str) -> Value {
    let file = image.join("text");
    fs::write(&file, content.to_string()).unwrap();
    blob(image, file, kind)
}

/// Moves a file into an image, and returns its descriptor.
fn blob(image: &Path, file: PathBuf, kind: &str) -> Value {
    // Faster in the guest than this program, which is not optimised.
    let line = output(Command::new("sha256sum").arg(&file)).unwrap();
    let sum = line.split_ascii_whitespace().next().unwrap();
    let size = fs::metadata(&file).unwrap().len();
    fs::rename(file, image.join("blobs/sha256").join(sum)).unwrap();
    json!({"mediaType": kind, "digest": format!("sha256:{sum}"), "size": size})
}
