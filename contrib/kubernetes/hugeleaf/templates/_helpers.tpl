{{- define "hugeleaf.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 30 | trimSuffix "-" }}
{{- end }}

{{/* Short, because the name of a Job has 31 more characters. */}}
{{- define "hugeleaf.fullname" -}}
{{- $name := include "hugeleaf.name" . }}
{{- $both := contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name) }}
{{- default $both .Values.fullnameOverride | trunc 30 | trimSuffix "-" }}
{{- end }}

{{/* Takes {root, part}. */}}
{{- define "hugeleaf.selector" -}}
app.kubernetes.io/name: {{ include "hugeleaf.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end }}

{{/* Takes {root, part}. */}}
{{- define "hugeleaf.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
app.kubernetes.io/part-of: hugeleaf
{{ include "hugeleaf.selector" . }}
{{- end }}

{{/* Selects the pods that serve metrics, whichever part they are. */}}
{{- define "hugeleaf.metricsSelector" -}}
app.kubernetes.io/name: {{ include "hugeleaf.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
hugeleaf/metrics: "true"
{{- end }}

{{- define "hugeleaf.servesMetrics" -}}
{{- if or (include "hugeleaf.runsExporter" .) .Values.guard.enabled }}true{{ end }}
{{- end }}

{{/* A guard on all nodes leaves none to the exporter. */}}
{{- define "hugeleaf.runsExporter" -}}
{{- if and .Values.exporter.enabled (or (not .Values.guard.enabled) .Values.guard.nodeSelector) }}true{{ end }}
{{- end }}

{{/* Labels as in key=value,key=value. */}}
{{- define "hugeleaf.pairs" -}}
{{- $pairs := list }}
{{- range $key, $value := . }}
{{- $pairs = append $pairs (printf "%s=%s" $key $value) }}
{{- end }}
{{- join "," $pairs }}
{{- end }}

{{/*
The fields that the pods of all parts share. Root, because Kubernetes gives added capabilities to no other user. AppArmor's
default profile forbids reading processes with another profile, and writes below /sys. Takes {root, account, nodeSelector}.
*/}}
{{- define "hugeleaf.pod" -}}
serviceAccountName: {{ .account }}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
nodeSelector:
  {{- merge (dict "kubernetes.io/os" "linux") .nodeSelector | toYaml | nindent 2 }}
securityContext:
  runAsUser: 0
  runAsGroup: 0
  runAsNonRoot: false
  seccompProfile:
    type: RuntimeDefault
  appArmorProfile:
    type: Unconfined
  {{- with .root.Values.seLinuxType }}
  seLinuxOptions:
    type: {{ . }}
  {{- end }}
{{- end }}

{{/*
The fields that all containers share. The end of the output says why a container failed. Takes {root, arguments, capabilities,
resources}.
*/}}
{{- define "hugeleaf.container" -}}
{{- $image := .root.Values.image -}}
image: {{ $image.repository }}{{ if $image.digest }}@{{ $image.digest }}{{ else }}:{{ default .root.Chart.AppVersion $image.tag }}{{ end }}
imagePullPolicy: {{ $image.pullPolicy }}
command:
  - /usr/bin/hugeleaf
args:
  {{- toYaml .arguments | nindent 2 }}
terminationMessagePolicy: FallbackToLogsOnError
securityContext:
  privileged: false
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop:
      - ALL
    {{- with .capabilities }}
    add:
      {{- toYaml . | nindent 6 }}
    {{- end }}
resources:
  {{- toYaml .resources | nindent 2 }}
{{- end }}

{{/* Takes a list of {name, path, type, readOnly}. Every path is the same in the container. */}}
{{- define "hugeleaf.hostMounts" -}}
{{- range . }}
- name: {{ .name }}
  mountPath: {{ .path }}
  {{- if .readOnly }}
  readOnly: true
  {{- end }}
{{- end }}
{{- end }}

{{- define "hugeleaf.hostVolumes" -}}
{{- range . }}
- name: {{ .name }}
  hostPath:
    path: {{ .path }}
    type: {{ .type }}
{{- end }}
{{- end }}

{{/* The chart's part of the configuration. It comes last, so that rules cannot move the port away from the probes. */}}
{{- define "hugeleaf.listen" -}}
schema = 1
listen = "off"
listen_beyond_host = true
metrics = "{{ .Values.metrics.address }}:{{ .Values.metrics.port }}"
{{- end }}

{{/*
A DaemonSet with its configuration and account. Takes {root, part, values, arguments, capabilities, mounts, ownRun, config,
grace, avoid}.
*/}}
{{- define "hugeleaf.daemon" -}}
{{- $name := printf "%s-%s" (include "hugeleaf.fullname" .root) .part }}
{{- $about := dict "root" .root "part" .part }}
{{- $listen := include "hugeleaf.listen" .root }}
{{- $config := printf "%s\n---\n%s" .config $listen }}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ $name }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "hugeleaf.labels" $about | nindent 4 }}
automountServiceAccountToken: false
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ $name }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "hugeleaf.labels" $about | nindent 4 }}
data:
  guard.toml: |2
    {{- .config | trimSuffix "\n" | nindent 4 }}
  chart.toml: |2
    {{- $listen | nindent 4 }}
---
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: {{ $name }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "hugeleaf.labels" $about | nindent 4 }}
spec:
  selector:
    matchLabels:
      {{- include "hugeleaf.selector" $about | nindent 6 }}
  updateStrategy:
    type: RollingUpdate
    rollingUpdate:
      maxUnavailable: {{ .values.maxUnavailable }}
  template:
    metadata:
      labels:
        {{- include "hugeleaf.selector" $about | nindent 8 }}
        hugeleaf/metrics: "true"
      annotations:
        # Changed rules replace the pods, one after the other.
        hugeleaf/config: {{ sha256sum $config | trunc 16 | quote }}
    spec:
      {{- include "hugeleaf.pod" (dict "root" .root "account" $name "nodeSelector" .values.nodeSelector) | nindent 6 }}
      hostPID: true
      {{- with .values.priorityClassName }}
      priorityClassName: {{ . }}
      {{- end }}
      terminationGracePeriodSeconds: {{ .grace }}
      {{- with .avoid }}
      affinity:
        nodeAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
            # Terms are alternatives: a node that lacks one of the labels has no guard.
            nodeSelectorTerms:
              {{- range $key, $value := . }}
              - matchExpressions:
                  - key: {{ $key }}
                    operator: NotIn
                    values:
                      - {{ $value | quote }}
              {{- end }}
      {{- end }}
      {{- with .values.tolerations }}
      tolerations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      containers:
        - name: {{ .part }}
          {{- include "hugeleaf.container" (dict
            "root" .root "arguments" .arguments "capabilities" .capabilities "resources" .values.resources
          ) | nindent 10 }}
          ports:
            - name: metrics
              containerPort: {{ .root.Values.metrics.port }}
              protocol: TCP
          livenessProbe:
            httpGet:
              path: /healthz
              port: metrics
            periodSeconds: 30
            timeoutSeconds: 10
            failureThreshold: 4
          readinessProbe:
            httpGet:
              path: /readyz
              port: metrics
            periodSeconds: 10
            timeoutSeconds: 5
          volumeMounts:
            - name: config
              mountPath: /etc/hugeleaf
              readOnly: true
            {{- if .ownRun }}
            - name: run
              mountPath: /run/hugeleaf
            {{- end }}
            {{- include "hugeleaf.hostMounts" .mounts | trim | nindent 12 }}
      volumes:
        - name: config
          configMap:
            name: {{ $name }}
            items:
              - key: guard.toml
                path: guard.toml
              - key: chart.toml
                path: guard.d/chart.toml
        {{- if .ownRun }}
        - name: run
          emptyDir:
            medium: Memory
            sizeLimit: 1Mi
        {{- end }}
        {{- include "hugeleaf.hostVolumes" .mounts | trim | nindent 8 }}
{{- end }}
