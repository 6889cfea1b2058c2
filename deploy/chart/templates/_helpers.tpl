{{- define "weir.labels" -}}
{app.kubernetes.io/name: {{ .Release.Name }}}
{{- end }}
