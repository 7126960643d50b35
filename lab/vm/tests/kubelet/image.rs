//! Container images of programs that are installed in the guest.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use hugeleaf_vm::cache::sum_of;
use hugeleaf_vm::process::output;
use serde_json::{Value, json};

/// Imports an image of one program with its libraries into the runtime. `content` is the text of a file in it, so that two
/// images of one program differ.
pub fn import(name: &str, program: &Path, place: &str, content: &str) {
    let folder = tempfile::tempdir_in("/var/lib").unwrap();
    let root = folder.path().join("root");
    lay_out(&root, program, place, content);
    let image = folder.path().join("image");
    fs::create_dir_all(image.join("blobs/sha256")).unwrap();
    pack(&root, &image, name);
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

fn lay_out(root: &Path, program: &Path, place: &str, content: &str) {
    for folder in ["dev", "etc", "proc", "sys", "tmp"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    fs::write(root.join("etc/content"), content).unwrap();
    copy(program, &root.join(place.trim_start_matches('/')));
    // A static program has none.
    let libraries = output(Command::new("ldd").arg(program)).unwrap_or_default();
    for word in libraries
        .split_ascii_whitespace()
        .filter(|word| word.starts_with('/'))
    {
        copy(Path::new(word), &root.join(word.trim_start_matches('/')));
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

/// Makes an image layout of a root (https://github.com/opencontainers/image-spec/blob/main/image-layout.md).
fn pack(root: &Path, image: &Path, name: &str) {
    let layer = image.join("layer");
    tar(root, &layer);
    let layer = blob(image, layer, "application/vnd.oci.image.layer.v1.tar");
    let config = json!({
        "architecture": "amd64", "os": "linux", "config": {},
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
    let index = json!({"schemaVersion": 2, "manifests": [manifest]});
    fs::write(image.join("index.json"), index.to_string()).unwrap();
    fs::write(
        image.join("oci-layout"),
        json!({"imageLayoutVersion": "1.0.0"}).to_string(),
    )
    .unwrap();
}

fn text(image: &Path, content: &Value, kind: &str) -> Value {
    let file = image.join("text");
    fs::write(&file, content.to_string()).unwrap();
    blob(image, file, kind)
}

/// Moves a file into an image, and returns its descriptor.
fn blob(image: &Path, file: PathBuf, kind: &str) -> Value {
    let sum = sum_of(&file).unwrap();
    let size = fs::metadata(&file).unwrap().len();
    fs::rename(file, image.join("blobs/sha256").join(&sum)).unwrap();
    json!({"mediaType": kind, "digest": format!("sha256:{sum}"), "size": size})
}
