//! The node: containerd, the kubelet, and pods as files.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};

use hugeleaf_vm::process::{last_lines, output};
use serde_json::{Value, json};

use crate::image::{Images, import};
use crate::until;

/// The files that `lab/vm/kubelet/files.sh` has made.
const FILES: &str = "/payload/files";
const MANIFESTS: &str = "/etc/kubernetes/manifests";
/// The ConfigMaps of the chart, as folders.
const CONFIG: &str = "/etc/hugeleaf-pods/config";
/// An address of the node, because a kubelet accepts no loopback address.
const ADDRESS: &str = "10.0.0.1";

const IMAGES: [Images<'static>; 3] = [
    Images {
        names: &["hugeleaf.test/pause:1"],
        program: "/bin/busybox",
        place: "/bin/busybox",
        command: &["/bin/busybox", "sleep", "2147483647"],
    },
    Images {
        names: &["hugeleaf.test/redis:1"],
        program: "/usr/bin/redis-server",
        place: "/usr/bin/redis-server",
        command: &[],
    },
    Images {
        names: &["hugeleaf.test/hugeleaf:1", "hugeleaf.test/hugeleaf:2"],
        program: "/payload/files/hugeleaf",
        place: "/usr/bin/hugeleaf",
        command: &[],
    },
];

#[derive(Debug)]
pub struct Node {
    runtime: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container {
    pub id: String,
    pub image: String,
    pub restarts: u64,
    pub is_ready: bool,
    /// UID of its pod, as in the names of cgroups.
    pub uid: String,
}

/// A container that has ended.
#[derive(Debug)]
pub struct Ended {
    pub name: String,
    pub status: i64,
    pub said: String,
}

/// Starts the node at its first use. Returns it to one test at a time, without pods, and with this runtime; none outside
/// the guest.
pub fn node(test: &str, runtime: &'static str) -> Option<MutexGuard<'static, Node>> {
    static NODE: OnceLock<Mutex<Node>> = OnceLock::new();
    if !Path::new(FILES).join("kubelet").is_file() {
        println!("not run: {test}: needs the guest kubelet (make vm-test HOST=kubelet)");
        return None;
    }
    let mut node = NODE
        .get_or_init(|| Mutex::new(Node::start(runtime)))
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    node.clear();
    if node.runtime != runtime {
        node.runtime = runtime;
        containerd(runtime);
        output(Command::new("systemctl").args(["restart", "containerd", "kubelet"])).unwrap();
        healthy();
    }
    Some(node)
}

impl Node {
    fn start(runtime: &'static str) -> Node {
        containerd(runtime);
        systemctl(&["restart", "containerd"]);
        // The package's own server, on the port of the pod's.
        systemctl(&["stop", "redis-server"]);
        import(&IMAGES);
        output(Command::new("ip").args(["addr", "replace", &format!("{ADDRESS}/32"), "dev", "lo"]))
            .unwrap();
        // The runtime copies these for pods in the node's network.
        fs::write("/etc/hosts", "127.0.0.1 localhost\n").unwrap();
        fs::write("/etc/resolv.conf", "").unwrap();
        fs::create_dir_all(MANIFESTS).unwrap();
        fs::write(
            "/etc/kubernetes/kubelet.json",
            kubelet_configuration().to_string(),
        )
        .unwrap();
        fs::write("/etc/systemd/system/kubelet.service", unit()).unwrap();
        systemctl(&["daemon-reload"]);
        systemctl(&["start", "kubelet"]);
        healthy();
        Node { runtime }
    }

    /// Deletes all pods.
    pub fn clear(&self) {
        for entry in fs::read_dir(MANIFESTS).unwrap() {
            fs::remove_file(entry.unwrap().path()).unwrap();
        }
        gone("kubepods*-pod*.slice");
    }

    /// Starts a pod, or replaces the one with its name.
    pub fn run(&self, pod: &Value) {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = pod["metadata"]["name"].as_str().unwrap();
        let staged = Path::new("/etc/kubernetes").join(name);
        // The UID of a static pod is a hash of its file. The kubelet knows the state of an earlier pod with the same UID.
        let mut pod = pod.clone();
        let count = COUNT.fetch_add(1, Ordering::Relaxed).to_string();
        pod["metadata"]["annotations"]["test/run"] = count.into();
        fs::write(&staged, pod.to_string()).unwrap();
        fs::rename(staged, Path::new(MANIFESTS).join(format!("{name}.json"))).unwrap();
    }

    /// Deletes a pod, and waits for the end of its containers.
    pub fn delete(&self, name: &str) {
        let found = pod(name).unwrap_or_else(|| panic!("there is no pod {name}"));
        fs::remove_file(Path::new(MANIFESTS).join(format!("{name}.json"))).unwrap();
        gone(&cgroup_pattern(uid(&found)));
    }

    /// Returns a pod of the chart, and copies its configuration to the node. `version` is that of its image.
    pub fn of_chart(&self, version: u32, part: &str) -> Value {
        let folder = Path::new(FILES).join(format!("pods-{version}"));
        fs::create_dir_all(CONFIG).unwrap();
        output(
            Command::new("cp")
                .arg("-rT")
                .arg(folder.join("config"))
                .arg(CONFIG),
        )
        .unwrap();
        let text = fs::read_to_string(folder.join(format!("{part}.json"))).unwrap();
        serde_json::from_str(&text).unwrap()
    }

    /// Waits until the containers of a pod are ready, and returns the first.
    #[track_caller]
    pub fn ready(&self, name: &str, image: &str) -> Container {
        let wanted = format!("pod {name} with {image}");
        let is_it = |one: &Container| one.is_ready && one.image == format!("hugeleaf.test/{image}");
        until(&wanted, || match self.container(name) {
            Some(one) if is_it(&one) => Ok(one),
            other => Err(format!("{other:?}; {}", journal("kubelet"))),
        })
        .0
    }

    /// Returns the first container of a pod while it runs.
    pub fn container(&self, name: &str) -> Option<Container> {
        let pod = pod(name)?;
        let status = &pod["status"]["containerStatuses"][0];
        Some(Container {
            id: status["containerID"]
                .as_str()?
                .strip_prefix("containerd://")?
                .to_owned(),
            image: status["image"].as_str()?.to_owned(),
            restarts: status["restartCount"].as_u64()?,
            is_ready: status["ready"].as_bool()?,
            uid: uid(&pod).to_owned(),
        })
    }

    /// Waits for the end of a pod's containers, and returns their names, exit statuses and output.
    pub fn ended(&self, name: &str) -> Vec<Ended> {
        let (pod, _) = until(&format!("the end of pod {name}"), || {
            let pod = pod(name).unwrap_or_default();
            match pod["status"]["phase"].as_str() {
                Some("Succeeded" | "Failed") => Ok(pod),
                _ => Err(pod["status"].to_string()),
            }
        });
        let folder = format!("/var/log/pods/hugeleaf_{name}-node_{}", uid(&pod));
        let lists = ["initContainerStatuses", "containerStatuses"];
        let all = lists
            .iter()
            .filter_map(|list| pod["status"][list].as_array());
        let ended = |status: &Value| {
            let name = status["name"].as_str()?.to_owned();
            Some(Ended {
                status: status["state"]["terminated"]["exitCode"].as_i64()?,
                said: fs::read_to_string(format!("{folder}/{name}/0.log")).unwrap_or_default(),
                name,
            })
        };
        all.flatten().filter_map(ended).collect()
    }

    pub fn restart_kubelet(&self) {
        systemctl(&["restart", "kubelet"]);
        healthy();
    }
}

impl Container {
    /// Returns the cgroup of its pod.
    pub fn pod_cgroup(&self) -> PathBuf {
        let found = cgroups(&cgroup_pattern(&self.uid));
        let first = found.lines().next();
        PathBuf::from(first.unwrap_or_else(|| panic!("no cgroup of {self:?}")))
    }

    /// Returns its process with this name.
    pub fn process(&self, name: &str) -> u32 {
        let listed = output(Command::new("pgrep").args(["-x", name])).unwrap();
        let is_own = |pid: &u32| {
            let cgroup = fs::read_to_string(format!("/proc/{pid}/cgroup"));
            cgroup.is_ok_and(|text| text.contains(&self.id))
        };
        let mut pids = listed.lines().map(|line| line.parse().unwrap());
        pids.find(is_own)
            .unwrap_or_else(|| panic!("{self:?} has no {name}: {listed}"))
    }

    /// Returns the anonymous memory of its pod in bytes, and how much of it is on huge pages: the kernel's counters.
    pub fn memory(&self) -> (u64, u64) {
        let text = fs::read_to_string(self.pod_cgroup().join("memory.stat")).unwrap();
        let of = |name: &str| {
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line.unwrap().parse().unwrap()
        };
        (of("anon"), of("anon_thp"))
    }
}

/// Returns the pods that the kubelet knows; none if it does not answer.
fn items() -> Option<Vec<Value>> {
    let mut pods: Value = serde_json::from_str(&get(10255, "/pods").ok()?).ok()?;
    match pods["items"].take() {
        Value::Array(items) => Some(items),
        _ => Some(Vec::new()),
    }
}

fn pod(name: &str) -> Option<Value> {
    // The kubelet adds the node's name.
    let name = format!("{name}-node");
    items()?
        .into_iter()
        .find(|pod| pod["metadata"]["name"] == name)
}

fn uid(pod: &Value) -> &str {
    pod["metadata"]["uid"].as_str().unwrap()
}

/// Returns the pattern of the name of a pod's cgroup.
fn cgroup_pattern(uid: &str) -> String {
    format!("kubepods*-pod{}.slice", uid.replace('-', "_"))
}

/// Returns the cgroups of pods whose names have a pattern.
fn cgroups(pattern: &str) -> String {
    let arguments = ["/sys/fs/cgroup", "-type", "d", "-name", pattern];
    output(Command::new("find").args(arguments)).unwrap_or_default()
}

/// Waits until the kubelet has removed the cgroups of pods: it does so after their containers have ended.
fn gone(pattern: &str) {
    until("the end of pods", || match cgroups(pattern) {
        left if left.is_empty() => Ok(()),
        left => Err(left),
    });
}

/// Returns the body of an answer.
pub fn get(port: u16, path: &str) -> Result<String, String> {
    TcpStream::connect(("127.0.0.1", port))
        .map_err(|error| error.to_string())
        .and_then(|stream| ask(stream, path))
}

/// Returns the status of the guard, by its socket on the node.
pub fn guard_status() -> Result<Value, String> {
    let stream = UnixStream::connect("/run/hugeleaf/guard.sock").map_err(|e| e.to_string())?;
    serde_json::from_str(&ask(stream, "/status.json")?).map_err(|error| error.to_string())
}

fn ask(mut stream: impl Read + Write, path: &str) -> Result<String, String> {
    let mut text = String::new();
    write!(stream, "GET {path} HTTP/1.0\r\nHost: node\r\n\r\n")
        .and_then(|()| stream.read_to_string(&mut text))
        .map_err(|error| error.to_string())?;
    match text.split_once("\r\n\r\n") {
        Some((head, body)) if head.contains(" 200 ") => Ok(body.to_owned()),
        _ => Err(text),
    }
}

fn healthy() {
    until("the kubelet", || match get(10255, "/pods") {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("{error}\n{}", journal("kubelet"))),
    });
}

fn journal(unit: &str) -> String {
    let text = output(Command::new("journalctl").args([
        "-u",
        unit,
        "-o",
        "cat",
        "-n",
        "40",
        "--no-pager",
    ]));
    last_lines(&text.unwrap_or_default(), 40)
}

fn systemctl(arguments: &[&str]) {
    output(Command::new("systemctl").args(arguments)).unwrap();
}

/// Writes the configuration of containerd. The snapshotter that copies needs no kernel module.
/// Configures containerd. Its default is to leave containers without limits on hugetlb pages; only their pod has some then.
fn containerd(runtime: &str) {
    let cri = "plugins.\"io.containerd.grpc.v1.cri\"";
    let mut text = format!(
        "version = 2\n[{cri}]\nsandbox_image = 'hugeleaf.test/pause:1'\n\
         disable_hugetlb_controller = false\n\
         [{cri}.containerd]\nsnapshotter = 'native'\ndefault_runtime_name = '{runtime}'\n"
    );
    for each in ["runc", "crun"] {
        text.push_str(&format!(
            "[{cri}.containerd.runtimes.{each}]\nruntime_type = 'io.containerd.runc.v2'\n\
             [{cri}.containerd.runtimes.{each}.options]\nBinaryName = '{each}'\nSystemdCgroup = true\n"
        ));
    }
    fs::write("/etc/containerd/config.toml", text).unwrap();
}

fn kubelet_configuration() -> Value {
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": "127.0.0.1",
        "authentication": {"anonymous": {"enabled": true}, "webhook": {"enabled": false}},
        "authorization": {"mode": "AlwaysAllow"},
        "cgroupDriver": "systemd",
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "evictionHard": {"memory.available": "1Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "imageGCHighThresholdPercent": 100,
        "makeIPTablesUtilChains": false,
        "readOnlyPort": 10255,
        "resolvConf": "",
        "runtimeRequestTimeout": "15m",
        "staticPodPath": MANIFESTS,
    })
}

fn unit() -> String {
    // Pods outlive a restart of the kubelet.
    format!(
        "[Service]\nExecStart={FILES}/kubelet --config=/etc/kubernetes/kubelet.json --hostname-override=node --node-ip={ADDRESS}\n\
         KillMode=process\n[Unit]\nAfter=containerd.service\n"
    )
}

/// Writes a file of the node that only root reads.
pub fn write_private(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o400)).unwrap();
}
