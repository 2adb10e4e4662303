{{- define "toolfleet.name" -}}
{{- printf "%s" .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "toolfleet.labels" -}}
app.kubernetes.io/name: toolfleet
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | quote }}
{{- end -}}

{{- /* Labels by which a component's pods are found: (dict "top" $ "component" "orchestrator"). */ -}}
{{- define "toolfleet.selector" -}}
app.kubernetes.io/name: toolfleet
app.kubernetes.io/instance: {{ .top.Release.Name | quote }}
app.kubernetes.io/component: {{ .component | quote }}
{{- end -}}

{{- define "toolfleet.secretName" -}}
{{- .Values.existingSecret | default (printf "%s-toolfleet" (include "toolfleet.name" .)) -}}
{{- end -}}

{{- define "toolfleet.serviceAccountName" -}}
{{- .Values.serviceAccount.name | default (printf "%s-toolfleet" (include "toolfleet.name" .)) -}}
{{- end -}}

{{- /* What must be set, said in one line each. */ -}}
{{- define "toolfleet.check" -}}
{{- if .Values.over.url -}}
{{- if not .Values.over.keySecret -}}
{{- fail "over.url is asked with a key: set over.keySecret to a Secret that has one under `key` (toolfleet keys add --scope work --tools …)" -}}
{{- end -}}
{{- if or .Values.secret .Values.existingSecret .Values.redis.url .Values.redis.shards -}}
{{- fail "workers over HTTPS have neither Redis nor the fleet's secret: leave out secret, existingSecret and redis, or over.url" -}}
{{- end -}}
{{- if .Values.flower.enabled -}}
{{- fail "flower looks into Redis, which workers over HTTPS do not reach: leave out flower.enabled, or over.url" -}}
{{- end -}}
{{- else if not .Values.existingSecret -}}
{{- if not .Values.secret -}}
{{- fail "set `secret` (for example to the output of `openssl rand -hex 32`), or `existingSecret` to a Secret that has TOOLFLEET_SECRET and TOOLFLEET_REDIS_URL" -}}
{{- end -}}
{{- if and .Values.redis.url .Values.redis.shards -}}
{{- fail "redis.url and redis.shards both say where Redis is: leave one of them out" -}}
{{- end -}}
{{- if not (or .Values.redis.url .Values.redis.shards) -}}
{{- fail "set `redis.url` (redis://host:6379/0, for example), or `existingSecret` to a Secret that has TOOLFLEET_SECRET and TOOLFLEET_REDIS_URL" -}}
{{- end -}}
{{- end -}}
{{- if and .Values.redis.shards (not .Values.redis.shard) -}}
{{- if .Values.flower.enabled -}}
{{- fail "Flower is for one shard: set redis.shard and install one release for each, or flower.enabled to false" -}}
{{- end -}}
{{- end -}}
{{- range $name, $pool := .Values.pools -}}
{{- if has $name (list "orchestrator" "serve" "flower") -}}
{{- fail (printf "pools.%s: this name is another component's, choose another" $name) -}}
{{- end -}}
{{- if (($pool.autoscaling).enabled) -}}
{{- if $.Values.over.url -}}
{{- fail (printf "pools.%s.autoscaling asks the API of this release, and over.url is another's: set replicas" $name) -}}
{{- end -}}
{{- if not $.Values.serve.enabled -}}
{{- fail (printf "pools.%s.autoscaling asks the API how many calls wait: set serve.enabled" $name) -}}
{{- end -}}
{{- if not $.Values.autoscaling.keySecret -}}
{{- fail (printf "pools.%s.autoscaling asks the API with a key: set autoscaling.keySecret to a Secret that has one under `key` (toolfleet keys add --scope admin)" $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and .Values.flower.enabled (not .Values.flower.authSecret) -}}
{{- fail "flower can shut workers down: set flower.authSecret to a Secret that has TOOLFLEET_FLOWER_AUTH (user:password)" -}}
{{- end -}}
{{- end -}}

{{- define "toolfleet.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "toolfleet.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
capabilities: {drop: [ALL]}
{{- end -}}

{{- define "toolfleet.image" -}}
image: {{ printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- end -}}

{{- /* The environment of every process. */ -}}
{{- define "toolfleet.environment" -}}
{{- if .Values.over.url }}
- name: TOOLFLEET_WORKER_KEY
  valueFrom: {secretKeyRef: {name: {{ .Values.over.keySecret | quote }}, key: key}}
{{- else }}
- name: TOOLFLEET_SECRET
  valueFrom: {secretKeyRef: {name: {{ include "toolfleet.secretName" . | quote }}, key: TOOLFLEET_SECRET}}
- name: TOOLFLEET_PREVIOUS_SECRET
  valueFrom: {secretKeyRef: {name: {{ include "toolfleet.secretName" . | quote }}, key: TOOLFLEET_PREVIOUS_SECRET, optional: true}}
- name: TOOLFLEET_REDIS_URL
  valueFrom: {secretKeyRef: {name: {{ include "toolfleet.secretName" . | quote }}, key: TOOLFLEET_REDIS_URL, optional: true}}
- name: TOOLFLEET_SHARDS
  valueFrom: {secretKeyRef: {name: {{ include "toolfleet.secretName" . | quote }}, key: TOOLFLEET_SHARDS, optional: true}}
{{- with .Values.redis.shard }}
- name: TOOLFLEET_SHARD
  value: {{ . | quote }}
{{- end }}
{{- end }}
- name: TOOLFLEET_ALIVE_DIR
  value: /tmp/alive
{{- if not (hasKey .Values.settings "TOOLFLEET_BLOCKED_LOOP_S") }}
# A worker whose event loop a tool blocks ends itself before the probe finds out, so that its log names what blocks it.
- name: TOOLFLEET_BLOCKED_LOOP_S
  value: "20"
{{- end }}
{{- if .Values.metrics.enabled }}
- name: TOOLFLEET_METRICS_PORT
  value: {{ .Values.metrics.port | toString | quote }}
- name: TOOLFLEET_METRICS_HOST
  value: "0.0.0.0"
{{- end }}
- name: HOME
  value: /tmp
{{- range $name, $value := .Values.settings }}
- name: {{ $name }}
  value: {{ $value | toString | quote }}
{{- end }}
{{- end -}}

{{- define "toolfleet.model" -}}
{{- if .Values.modelSecret }}
envFrom:
  - secretRef: {name: {{ .Values.modelSecret | quote }}}
{{- end }}
{{- end -}}

{{- /* Alive: every file there is is younger than 30 s, and there is one. A shell and find, no start of Python. */ -}}
{{- define "toolfleet.probes" -}}
startupProbe:
  exec: {command: [sh, -c, test -n "$(ls $TOOLFLEET_ALIVE_DIR)"]}
  periodSeconds: 2
  failureThreshold: 60
livenessProbe:
  exec:
    command:
      - sh
      - -c
      - test -n "$(ls $TOOLFLEET_ALIVE_DIR)" && test -z "$(find $TOOLFLEET_ALIVE_DIR -type f ! -newermt '-30 seconds')"
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 1
{{- end -}}

{{- /* Scheduling: (dict "top" $ "component" … "of" values of the component). */ -}}
{{- define "toolfleet.scheduling" -}}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{- include "toolfleet.selector" . | nindent 8 }}
  - maxSkew: 1
    topologyKey: topology.kubernetes.io/zone
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{- include "toolfleet.selector" . | nindent 8 }}
{{- with .of.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .of.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "toolfleet.podMeta" -}}
labels:
  {{- include "toolfleet.labels" .top | nindent 2 }}
  app.kubernetes.io/component: {{ .component | quote }}
annotations:
  # New pods when a Secret of this chart changes; one of yours is changed in steps, by hand.
  checksum/secret: {{ include (print .top.Template.BasePath "/secret.yaml") .top | sha256sum | quote }}
  {{- if and .top.Values.metrics.enabled (ne .component "flower") }}
  prometheus.io/scrape: "true"
  prometheus.io/port: {{ .top.Values.metrics.port | toString | quote }}
  prometheus.io/path: /metrics
  {{- end }}
  {{- with .top.Values.podAnnotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{- define "toolfleet.podBasics" -}}
serviceAccountName: {{ include "toolfleet.serviceAccountName" . | quote }}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . | quote }}
  {{- end }}
{{- end }}
securityContext: {{- include "toolfleet.podSecurity" . | nindent 2 }}
volumes:
  - {name: tmp, emptyDir: {}}
{{- end -}}
