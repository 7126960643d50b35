//! `hugeleaf plan --kubernetes`: requests of pods as YAML, the node's side as comments above them, and values for the chart.

use hugeleaf_plan::{KubernetesPlan, PodRequest, RESTART_KUBELET, all_pages_text};
use hugeleaf_units::{Bytes, PageSize};
use hugeleaf_verdict::findings::shell_word;
use serde_json::{Map, Value as Json, json};

use crate::yaml;

#[derive(Debug, Clone, Copy)]
pub struct KubernetesView<'a> {
    pub plan: &'a KubernetesPlan,
    /// The text of the plan for the nodes.
    pub for_nodes: &'a str,
    /// Notes of the plan, and services that could not be queried.
    pub notes: &'a [String],
    /// The file with the chart's values.
    pub written: Option<&'a str>,
}

impl KubernetesView<'_> {
    /// Returns the pods as YAML documents.
    pub fn text(&self) -> String {
        let comments = self.node().into_iter().map(|line| format!("# {line}\n"));
        let mut text: String = comments.collect();
        for pod in &self.plan.pods {
            text += &format!(
                "---\n# Add to the template of the pods of {}:\n",
                pod.service
            );
            for way in &pod.ways {
                text += &format!("# {way}\n");
            }
            if pod.memory.is_none() {
                text += "# A pod with huge pages also needs a request for memory or cpu.\n";
            }
            text += &yaml::document(&self::pod(pod));
        }
        text
    }

    /// Describes the node's side.
    fn node(&self) -> Vec<String> {
        let plan = self.plan;
        let bytes: Bytes = plan.pools.iter().map(|p| p.bytes()).sum();
        let mut lines = vec![format!(
            "Each node: {} ({bytes})",
            all_pages_text(&plan.pools)
        )];
        lines.extend(plan.boot_arguments.iter().map(|arguments| {
            format!("Kernel command line, before memory is fragmented: {arguments}")
        }));
        let file = self.written.map_or("FILE".into(), shell_word);
        let upgrade = format!("helm upgrade hugeleaf CHART --reuse-values --values {file}");
        lines.push(match self.written {
            Some(_) => format!("Values for the chart's pool setter are in {file}: {upgrade}"),
            None => {
                format!("Values for the chart's pool setter: add --output FILE, then: {upgrade}")
            }
        });
        lines.push(format!(
            "Nodes of this plan: kubectl label node NODE {}",
            self.label()
        ));
        lines.push(format!(
            "Then restart the kubelet of each node: {RESTART_KUBELET}"
        ));
        if !plan.of_others.is_empty() {
            lines.push(format!(
                "Included: {} that other programs hold on this host. The kubelet offers them to pods \
                 too, because it cannot reserve huge pages (systemReserved refuses them)",
                all_pages_text(&plan.of_others)
            ));
        }
        let left_out = plan.left_out.iter();
        lines.extend(left_out.map(|what| format!("Not for pods, set it on the host: {what}")));
        lines.extend(self.notes.iter().cloned());
        lines
    }

    fn label(&self) -> String {
        format!("{LABEL}={}", self.plan.name)
    }

    /// Returns a file of values for the chart.
    pub fn values(&self) -> String {
        format!(
            "# Values of the Helm chart hugeleaf, for the nodes with the label {}.\n# Where Helm does not reach \
             the cluster (helm template, Argo CD), add below the plan's name: nodes: [NODE]\n{}",
            self.label(),
            yaml::document(&self.values_json())
        )
    }

    fn values_json(&self) -> Json {
        let name = &self.plan.name;
        let plan = json!({ "nodeSelector": { LABEL: name }, "plan": self.for_nodes });
        json!({ "poolSetter": { "enabled": true, "plans": { name.as_str(): plan } } })
    }

    pub fn json(&self) -> Json {
        let plan = self.plan;
        json!({
            "name": plan.name,
            "pods": plan.pods.iter().map(pod).collect::<Json>(),
            "node": {
                "pools": plan.pools,
                "of_others": plan.of_others,
                "boot_arguments": plan.boot_arguments,
                "left_out": plan.left_out,
                "then": RESTART_KUBELET,
            },
            "values": self.values_json(),
        })
    }
}

/// The node label that the chart's values select.
const LABEL: &str = "hugeleaf/plan";

/// Returns a pod with the request, as an object of the API.
fn pod(pod: &PodRequest) -> Json {
    let resources: Map<String, Json> = pod
        .pages
        .iter()
        .map(|p| (format!("hugepages-{}i", p.page), quantity(p.bytes())))
        .chain(
            pod.memory
                .map(|memory| ("memory".to_owned(), quantity(memory))),
        )
        .collect();
    let mut container = json!({
        "name": pod.name,
        "resources": { "limits": resources, "requests": resources },
    });
    let mounts = pod.mounts.iter();
    let mounts: Vec<Json> = mounts
        .map(|(path, page)| json!({ "mountPath": path, "name": volume(*page) }))
        .collect();
    let mut sizes: Vec<PageSize> = pod.mounts.iter().map(|(_, page)| *page).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let medium = |page: &PageSize| json!({ "medium": format!("HugePages-{page}i") });
    let volumes: Vec<Json> = sizes
        .iter()
        .map(|page| json!({ "emptyDir": medium(page), "name": volume(*page) }))
        .collect();
    if !mounts.is_empty() {
        container["volumeMounts"] = mounts.into();
    }
    let mut spec = json!({ "containers": [container] });
    if !volumes.is_empty() {
        spec["volumes"] = volumes.into();
    }
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": pod.name },
        "spec": spec,
    })
}

fn volume(page: PageSize) -> String {
    format!("hugepages-{page}i").to_ascii_lowercase()
}

/// Formats bytes as a quantity of the API.
fn quantity(bytes: Bytes) -> Json {
    let mebibyte = Bytes::from_mib(1).get();
    match bytes.get() % mebibyte {
        0 => format!("{}Mi", bytes.get() / mebibyte).into(),
        _ => format!("{bytes:#}").into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hugeleaf_plan::PageCount;
    use hugeleaf_units::Pages;

    fn request() -> PodRequest {
        let size = |text: &str| text.parse().unwrap();
        PodRequest {
            service: "db".to_owned(),
            name: "db".to_owned(),
            pages: vec![
                PageCount::new(size("1G"), Pages(2)),
                PageCount::new(size("2M"), Pages(3)),
            ],
            memory: Some(Bytes::from_mib(100)),
            mounts: vec![("/mnt/huge".into(), size("2M"))],
            ways: Vec::new(),
        }
    }

    #[test]
    fn a_pod_as_yaml() {
        let resources =
            "hugepages-1Gi: 2048Mi\n          hugepages-2Mi: 6Mi\n          memory: 100Mi\n";
        let expected = format!(
            "apiVersion: v1\nkind: Pod\nmetadata:\n  name: db\nspec:\n  containers:\n    - name: db\n      \
             resources:\n        limits:\n          {resources}        requests:\n          {resources}      \
             volumeMounts:\n        - mountPath: /mnt/huge\n          name: hugepages-2mi\n  volumes:\n    \
             - emptyDir:\n        medium: HugePages-2Mi\n      name: hugepages-2mi\n"
        );
        assert_eq!(yaml::document(&pod(&request())), expected);
    }

    #[test]
    fn a_size_below_a_mebibyte() {
        let size: PageSize = "64K".parse().unwrap();
        let mut request = request();
        request.pages = vec![PageCount::new(size, Pages(3))];
        let limits = &pod(&request)["spec"]["containers"][0]["resources"]["limits"];
        assert_eq!(limits["hugepages-64Ki"], "196608");
    }
}
