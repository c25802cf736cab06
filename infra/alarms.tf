# Alarms. Each has an owner, a severity and a link to its section of RUNBOOK.md, which a test holds
# against the sections there are.
locals {
  # Every kind of incident is in one alarm (functions/incidents.py has the kinds; a test compares).
  incident_alarms = {
    aged-gaps = {
      title    = "A job is past its time and has not ended"
      severity = "CRITICAL"
      kinds    = ["aged_gap"]
    }
    missing-outputs = {
      title    = "A stored answer or an input is gone or damaged"
      severity = "CRITICAL"
      kinds    = ["output_missing", "output_damaged", "input_missing"]
    }
    records = {
      title    = "A record is missing, unreadable or changed"
      severity = "ERROR"
      kinds    = ["failure_missing", "unreadable_record", "malformed_record", "off_window", "changed_after_seal"]
    }
    dead-letters = {
      title    = "A message was given up or cannot be read"
      severity = "ERROR"
      kinds    = ["dead_letter", "unreadable_message"]
    }
    lost-notifications = {
      title    = "The end of a job could not be told"
      severity = "WARNING"
      kinds    = ["notification_lost"]
    }
    orphan-outputs = {
      title    = "An answer was paid for and belongs to nothing"
      severity = "WARNING"
      kinds    = ["orphan_output"]
    }
    unsealed-windows = {
      title    = "Records will expire before their window is sealed"
      severity = "ERROR"
      kinds    = ["window_unsealed"]
    }
  }

  # Sums of a counter over a while.
  count_alarms = merge(
    {
      for section, alarm in local.incident_alarms : section => {
        title     = alarm.title
        severity  = alarm.severity
        metric    = "incidents"
        filter    = " AND metric.labels.kind=one_of(${join(",", [for kind in alarm.kinds : "\"${kind}\""])})"
        threshold = 0
        window    = 300
      }
    },
    {
      audit-incomplete = {
        title     = "The audit could not look at everything"
        severity  = "ERROR"
        metric    = "audit_failures"
        filter    = ""
        threshold = 1 # twice in a row, not once: the next hour looks again
        window    = 7200
      }
      budget = {
        title     = "More provider requests in an hour than stated"
        severity  = "ERROR"
        metric    = "attempts_ended"
        filter    = ""
        threshold = var.attempts_per_hour_alarm
        window    = 3600
      }
      refused-callers = {
        title     = "Internal services refuse their callers"
        severity  = "ERROR"
        metric    = "refusals"
        filter    = ""
        threshold = 10
        window    = 600
      }
      failed-starts = {
        title     = "A process refuses its settings"
        severity  = "CRITICAL"
        metric    = "starts_failed"
        filter    = ""
        threshold = 0
        window    = 300
      }
    },
  )

  our_services = "resource.type=\"cloud_run_revision\" AND resource.labels.service_name=starts_with(\"empanel-\")"
}

resource "google_monitoring_notification_channel" "email" {
  for_each     = var.alarm_emails
  display_name = each.key
  type         = "email"
  labels       = { email_address = each.key }
  user_labels  = { owner = var.owner }
  depends_on   = [google_project_service.used]
}

resource "google_monitoring_alert_policy" "count" {
  for_each              = local.count_alarms
  display_name          = "Empanel: ${each.value.title}"
  combiner              = "OR"
  severity              = each.value.severity
  notification_channels = [for channel in google_monitoring_notification_channel.email : channel.id]
  user_labels           = { owner = var.owner, runbook = each.key }

  conditions {
    display_name = each.value.title
    condition_threshold {
      filter          = "resource.type=\"cloud_run_revision\" AND metric.type=\"logging.googleapis.com/user/${google_logging_metric.event[each.value.metric].name}\"${each.value.filter}"
      comparison      = "COMPARISON_GT"
      threshold_value = each.value.threshold
      duration        = "0s"
      aggregations {
        alignment_period     = "${each.value.window}s"
        per_series_aligner   = "ALIGN_SUM"
        cross_series_reducer = "REDUCE_SUM"
      }
    }
  }

  alert_strategy {
    auto_close = "86400s"
  }

  documentation {
    content   = "${each.value.title}. Owner: ${var.owner}."
    mime_type = "text/markdown"
    links {
      display_name = "Runbook"
      url          = "${var.runbook_url}#${each.key}"
    }
  }
}

resource "google_monitoring_alert_policy" "repair" {
  display_name          = "Empanel: repair is not running"
  combiner              = "OR"
  severity              = "CRITICAL"
  notification_channels = [for channel in google_monitoring_notification_channel.email : channel.id]
  user_labels           = { owner = var.owner, runbook = "repair-not-running" }

  conditions {
    display_name = "No repair has succeeded for ten minutes"
    condition_absent {
      filter   = "resource.type=\"cloud_run_revision\" AND resource.labels.service_name=\"${local.names["reconcile"]}\" AND metric.type=\"run.googleapis.com/request_count\" AND metric.labels.response_code_class=\"2xx\""
      duration = "600s"
      aggregations {
        alignment_period     = "60s"
        per_series_aligner   = "ALIGN_DELTA"
        cross_series_reducer = "REDUCE_SUM"
      }
    }
  }

  documentation {
    content   = "Nothing brings lost work back, sends due retries or ends jobs at their deadline. Owner: ${var.owner}."
    mime_type = "text/markdown"
    links {
      display_name = "Runbook"
      url          = "${var.runbook_url}#repair-not-running"
    }
  }
}

resource "google_monitoring_alert_policy" "errors" {
  display_name          = "Empanel: error rate"
  combiner              = "OR"
  severity              = "ERROR"
  notification_channels = [for channel in google_monitoring_notification_channel.email : channel.id]
  user_labels           = { owner = var.owner, runbook = "error-rate" }

  conditions {
    display_name = "More than 2 % of a service's answers are errors"
    condition_threshold {
      filter             = "${local.our_services} AND metric.type=\"run.googleapis.com/request_count\" AND metric.labels.response_code_class=\"5xx\""
      denominator_filter = "${local.our_services} AND metric.type=\"run.googleapis.com/request_count\""
      comparison         = "COMPARISON_GT"
      threshold_value    = 0.02
      duration           = "300s"
      aggregations {
        alignment_period     = "300s"
        per_series_aligner   = "ALIGN_DELTA"
        cross_series_reducer = "REDUCE_SUM"
        group_by_fields      = ["resource.labels.service_name"]
      }
      denominator_aggregations {
        alignment_period     = "300s"
        per_series_aligner   = "ALIGN_DELTA"
        cross_series_reducer = "REDUCE_SUM"
        group_by_fields      = ["resource.labels.service_name"]
      }
    }
  }

  documentation {
    content   = "Each error of a pushed service is a message that comes again, and slows the others. Owner: ${var.owner}."
    mime_type = "text/markdown"
    links {
      display_name = "Runbook"
      url          = "${var.runbook_url}#error-rate"
    }
  }
}

resource "google_monitoring_alert_policy" "backlog" {
  display_name          = "Empanel: messages wait"
  combiner              = "OR"
  severity              = "ERROR"
  notification_channels = [for channel in google_monitoring_notification_channel.email : channel.id]
  user_labels           = { owner = var.owner, runbook = "messages-wait" }

  conditions {
    display_name = "The oldest message of a subscription is half an hour old"
    condition_threshold {
      filter          = "resource.type=\"pubsub_subscription\" AND resource.labels.subscription_id=starts_with(\"empanel-\") AND metric.type=\"pubsub.googleapis.com/subscription/oldest_unacked_message_age\""
      comparison      = "COMPARISON_GT"
      threshold_value = 1800
      duration        = "300s"
      aggregations {
        alignment_period     = "60s"
        per_series_aligner   = "ALIGN_MAX"
        cross_series_reducer = "REDUCE_MAX"
        group_by_fields      = ["resource.labels.subscription_id"]
      }
    }
  }

  documentation {
    content   = "Work is accepted faster than it is done, or pushes are refused. Owner: ${var.owner}."
    mime_type = "text/markdown"
    links {
      display_name = "Runbook"
      url          = "${var.runbook_url}#messages-wait"
    }
  }
}

# The platform's bill. What providers charge is in the tenants' caps and in the alarm "budget".
resource "google_billing_budget" "platform" {
  for_each        = var.monthly_budget == null ? {} : { platform = var.monthly_budget }
  billing_account = each.value.billing_account
  display_name    = "Empanel, ${var.project_id}"

  budget_filter {
    projects = ["projects/${data.google_project.this.number}"]
  }

  amount {
    specified_amount {
      currency_code = each.value.currency
      units         = tostring(each.value.units)
    }
  }

  dynamic "threshold_rules" {
    for_each = [0.5, 0.9, 1.0]
    content {
      threshold_percent = threshold_rules.value
    }
  }

  threshold_rules {
    threshold_percent = 1.0
    spend_basis       = "FORECASTED_SPEND"
  }

  all_updates_rule {
    monitoring_notification_channels = [for channel in google_monitoring_notification_channel.email : channel.id]
    disable_default_iam_recipients   = false
  }
}
