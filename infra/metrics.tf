# Counters read off the functions' log lines: each is an event's name, and its fields become labels.
# A test holds the names and fields against the code (tests/infra).
locals {
  log_metrics = {
    incidents      = { events = ["incident opened"], labels = ["kind"] }
    jobs_accepted  = { events = ["job accepted"], labels = ["owner"] }
    runs_closed    = { events = ["run closed"], labels = ["state", "owner"] }
    attempts_ended = { events = ["attempt ended"], labels = ["result", "code"] }
    repairs        = { events = ["repaired"], labels = ["kind"] }
    audit_failures = { events = ["audit incomplete", "window not audited", "window not audited whole"], labels = [] }
    failures       = { events = ["delivery failed", "not available", "unexpected error", "repair failed"], labels = [] }
    refusals       = { events = ["caller refused"], labels = [] }
    starts_failed  = { events = ["cannot start"], labels = ["target"] }
  }
  our_logs = "resource.type=\"cloud_run_revision\" AND resource.labels.service_name=~\"^empanel-\""
}

resource "google_logging_metric" "event" {
  for_each    = local.log_metrics
  name        = "empanel/${each.key}"
  description = "Log lines: ${join(", ", each.value.events)}"
  filter      = "${local.our_logs} AND jsonPayload.message=(${join(" OR ", [for event in each.value.events : "\"${event}\""])})"

  metric_descriptor {
    metric_kind = "DELTA"
    value_type  = "INT64"
    unit        = "1"

    dynamic "labels" {
      for_each = each.value.labels
      content {
        key        = labels.value
        value_type = "STRING"
      }
    }
  }

  label_extractors = { for label in each.value.labels : label => "EXTRACT(jsonPayload.${label})" }
  depends_on       = [google_project_service.used]
}
