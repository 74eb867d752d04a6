{{- /* The name of all resources: that of the release, which names Dragoman. */}}
{{- define "dragoman.name" -}}
{{- contains "dragoman" .Release.Name | ternary .Release.Name (printf "%s-dragoman" .Release.Name) | trunc 50 | trimSuffix "-" }}
{{- end }}

{{- define "dragoman.selector" -}}
app.kubernetes.io/name: dragoman
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "dragoman.labels" -}}
{{ include "dragoman.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "dragoman.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default (printf "%s%s" .Chart.AppVersion (empty .Values.gpu.count | ternary "" "-cuda")) }}
{{- end }}

{{- /* Not empty if the volume of models is in use. */}}
{{- define "dragoman.hasModels" -}}
{{- if or .Values.models.pull .Values.models.onDemand .Values.models.claim }}yes{{ end }}
{{- end }}

{{- /* All settings of the server as YAML: those that follow from other values, then those of the operator. */}}
{{- define "dragoman.settings" -}}
{{- $made := dict }}
{{- with .Values }}
{{- if .gpu.count }}{{ $made = dict "device" "cuda" "slots" 256 "prefill_token_budget" 4096 }}{{ end }}
{{- if .models.pull }}{{ $_ := set $made "bundle" "/models/served" }}{{ end }}
{{- if .models.onDemand }}{{ $_ := set $made "on_demand" .models.onDemand }}{{ end }}
{{- if .state.enabled }}{{ $_ := set $made "state_dir" "/state" }}{{ end }}
{{- if .keys.secret }}
{{- with .keys.apiKeys }}{{ $_ := set $made "api_keys_file" (printf "/keys/%s" .) }}{{ end }}
{{- with .keys.adminKey }}{{ $_ := set $made "admin_key_file" (printf "/keys/%s" .) }}{{ end }}
{{- end }}
{{- if .tls.secret }}
{{- $_ := set $made "tls_certificate_file" "/tls/tls.crt" }}
{{- $_ := set $made "tls_key_file" "/tls/tls.key" }}
{{- with .tls.clientCa }}{{ $_ := set $made "tls_client_ca_file" (printf "/tls/%s" .) }}{{ end }}
{{- end }}
{{- toYaml (merge (deepCopy .settings) $made) }}
{{- end }}
{{- end }}

{{- /* A setting as the text of its environment variable. Helm reads all numbers as floats. */}}
{{- define "dragoman.text" -}}
{{- if or (kindIs "map" .) (kindIs "slice" .) }}{{ toJson . }}
{{- else if and (kindIs "float64" .) (eq (floor .) .) }}{{ int64 . }}
{{- else }}{{ . }}
{{- end }}
{{- end }}

{{- /* Slots of a pod: the server has an engine per GPU or CPU, unless settings say otherwise. */}}
{{- define "dragoman.slots" -}}
{{- $settings := fromYaml (include "dragoman.settings" .) }}
{{- $cpu := toString .Values.resources.cpu }}
{{- $cpus := hasSuffix "m" $cpu | ternary (divf (trimSuffix "m" $cpu) 1000) $cpu | ceil | int }}
{{- $engines := div $cpus ($settings.threads_per_engine | default 1) | max 1 }}
{{- if eq ($settings.mode | default "throughput") "latency" }}{{ $engines = 1 }}{{ end }}
{{- mul ($settings.slots | default 32) ($settings.engines | default .Values.gpu.count | default $engines) }}
{{- end }}

{{- /* Fails with the name of a value that does not fit the others. */}}
{{- define "dragoman.check" -}}
{{- $several := or .Values.autoscaling.enabled (gt (int .Values.replicas) 1) }}
{{- with .Values.autoscaling }}
{{- if lt (int .maxReplicas) (int .minReplicas) }}
{{- fail (printf "autoscaling.maxReplicas: expected at least minReplicas, %v, got %v" .minReplicas .maxReplicas) }}
{{- end }}
{{- end }}
{{- range $name, $used := dict "models" (include "dragoman.hasModels" .) "state" .Values.state.enabled }}
{{- $mode := get (get $.Values $name) "accessMode" }}
{{- if and $used $several (ne $mode "ReadWriteMany") }}
{{- fail (printf "%s.accessMode: expected ReadWriteMany for several pods, got %s; or set replicas: 1" $name $mode) }}
{{- end }}
{{- end }}
{{- $needed := dict "tls.clientCa" (list .Values.tls.clientCa "tls.secret" .Values.tls.secret) "keys.adminKey" (list .Values.keys.adminKey "keys.secret" .Values.keys.secret) "state.urlSecret" (list .Values.state.urlSecret "state.enabled" .Values.state.enabled) }}
{{- range $name, $pair := $needed }}
{{- if and (index $pair 0) (not (index $pair 2)) }}
{{- fail (printf "%s: expected %s with it, got none" $name (index $pair 1)) }}
{{- end }}
{{- end }}
{{- if and .Values.gpu.count (or .Values.models.pull .Values.models.onDemand) }}
{{- fail "gpu.count: models of a hub are for CPUs; expected bundles with the variant cuda in models.claim or the image, or gpu.count: 0" }}
{{- end }}
{{- if and .Values.monitoring.serviceMonitor .Values.keys.secret .Values.keys.apiKeys (eq (toString .Values.settings.open_metrics) "false") }}
{{- fail "settings.open_metrics: false: the ServiceMonitor has no API key; expected true, or monitoring.serviceMonitor: false" }}
{{- end }}
{{- $taken := list }}
{{- range $setting, $_ := fromYaml (include "dragoman.settings" .) }}{{ $taken = append $taken (printf "DRAGOMAN_%s" (upper $setting)) }}{{ end }}
{{- if or .Values.models.pull .Values.models.onDemand }}{{ $taken = append (append $taken "DRAGOMAN_CACHE") "HF_HOME" }}{{ end }}
{{- range .Values.env }}
{{- if has .name $taken }}{{ fail (printf "env: %s: the chart sets it; expected the value that it follows from, as settings.NAME" .name) }}{{ end }}
{{- end }}
{{- $volumes := list }}
{{- range .Values.volumes }}
{{- if has .name (concat $volumes (list "models" "temporary" "state" "keys" "tls")) }}{{ fail (printf "volumes: %s: in use, expected another name" .name) }}{{ end }}
{{- $volumes = append $volumes .name }}
{{- end }}
{{- $paths := list "/models" "/state" "/keys" "/tls" "/tmp" }}
{{- range .Values.volumeMounts }}
{{- if not (has .name $volumes) }}{{ fail (printf "volumeMounts: %s: expected a name of volumes, got %s" .name (toJson $volumes)) }}{{ end }}
{{- if has (trimSuffix "/" .mountPath) $paths }}{{ fail (printf "volumeMounts: %s: in use, expected another mountPath" .mountPath) }}{{ end }}
{{- $paths = append $paths (trimSuffix "/" .mountPath) }}
{{- end }}
{{- $outside := ne .Values.service.type "ClusterIP" }}
{{- if and $outside .Values.networkPolicy.enabled (eq (toJson .Values.networkPolicy.from) `[{"namespaceSelector":{}}]`) }}
{{- fail (printf "networkPolicy.from: admits pods only, expected an ipBlock of the clients for service.type: %s, as {ipBlock: {cidr: 10.0.0.0/8}}" .Values.service.type) }}
{{- end }}
{{- if and .Values.state.enabled $several (not .Values.state.urlSecret) }}
{{- fail "state.urlSecret: expected a Secret with the address of PostgreSQL for several pods, got none; or set replicas: 1" }}
{{- end }}
{{- end }}
