{{/*
The nodes of a plan, as a JSON list: those named in the values, otherwise those of the cluster that have its labels. One Job
for each, because the pods of a single Job may share a node after the first of them has ended. Takes {plan, values}.
*/}}
{{- define "hugeleaf.planNodes" -}}
{{- $found := list }}
{{- if .values.nodes }}
{{- $found = .values.nodes }}
{{- else }}
{{- range $node := (lookup "v1" "Node" "" "").items }}
{{- $has := true }}
{{- range $key, $value := $.values.nodeSelector }}
{{- if ne (dig $key "" (default dict $node.metadata.labels)) $value }}
{{- $has = false }}
{{- end }}
{{- end }}
{{- if $has }}
{{- $found = append $found $node.metadata.name }}
{{- end }}
{{- end }}
{{- end }}
{{- if not $found }}
{{- $labels := include "hugeleaf.pairs" .values.nodeSelector }}
{{- fail (printf "\npoolSetter.plans.%s: no node has the labels %s\n  next: kubectl label node NODE %s; where Helm does not reach the cluster (helm template, Argo CD), name the nodes: poolSetter.plans.%s.nodes={NODE,NODE}" .plan $labels (replace "," " " $labels) .plan) }}
{{- end }}
{{- sortAlpha $found | uniq | toJson }}
{{- end }}

{{- define "hugeleaf.setterAction" -}}
{{- .undo | default false | ternary "undo" "apply" }}
{{- end }}

{{/*
The pod that applies a plan on one node, or undoes all of the node. Each folder that apply writes to is mounted at its own
path, and no other. Takes {root, values, map, account, node}.
*/}}
{{- define "hugeleaf.setterPod" -}}
{{- $cgroup := dict "name" "cgroup" "path" "/sys/fs/cgroup" "type" "Directory" "readOnly" true }}
{{- $state := dict "name" "state" "path" "/var/lib/hugeleaf" "type" "DirectoryOrCreate" }}
{{- $mounts := list
  $state
  (dict "name" "mm" "path" "/sys/kernel/mm" "type" "Directory")
  (dict "name" "nodes" "path" "/sys/devices/system/node" "type" "Directory")
  (dict "name" "sysctl" "path" "/etc/sysctl.d" "type" "DirectoryOrCreate")
  (dict "name" "tmpfiles" "path" "/etc/tmpfiles.d" "type" "DirectoryOrCreate")
  (dict "name" "machine-id" "path" "/etc/machine-id" "type" "File" "readOnly" true)
  (dict "name" "systemd" "path" "/run/systemd/system" "type" "Directory" "readOnly" true)
  $cgroup
}}
{{- $container := dict "root" .root "resources" .root.Values.poolSetter.resources }}
{{- $action := include "hugeleaf.setterAction" .values }}
{{- $arguments := eq $action "undo" | ternary (list "undo" "--all") (list "apply" "/etc/hugeleaf/plan.toml") }}
{{ include "hugeleaf.pod" (dict "root" .root "account" .account "nodeSelector" .values.nodeSelector) }}
# The report looks for a kubelet that started before the pools were set.
hostPID: true
restartPolicy: Never
terminationGracePeriodSeconds: 30
affinity:
  nodeAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      nodeSelectorTerms:
        - matchFields:
            - key: metadata.name
              operator: In
              values:
                - {{ .node | quote }}
tolerations:
  - operator: Exists
initContainers:
  - name: {{ $action }}
    {{- include "hugeleaf.container" (merge (dict "arguments" $arguments) $container) | nindent 4 }}
    volumeMounts:
      # A single file: apply refuses a plan in a folder that others may write to, as the folder of a ConfigMap is.
      - name: plan
        mountPath: /etc/hugeleaf/plan.toml
        subPath: plan.toml
        readOnly: true
      {{- include "hugeleaf.hostMounts" $mounts | trim | nindent 6 }}
containers:
  # Reports a kubelet that must be restarted to see the pools. Nothing here restarts it.
  - name: report
    {{- include "hugeleaf.container" (merge (dict "arguments" (list "status")) $container) | nindent 4 }}
    volumeMounts:
      {{- include "hugeleaf.hostMounts" (list $cgroup (merge (dict "readOnly" true) $state)) | trim | nindent 6 }}
volumes:
  - name: plan
    configMap:
      name: {{ .map }}
      defaultMode: 0400
  {{- include "hugeleaf.hostVolumes" $mounts | trim | nindent 2 }}
{{- end }}
