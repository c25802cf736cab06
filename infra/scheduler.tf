# The two clocks. A run of a job waits for the one before it; both calls are safe to repeat.
locals {
  clocks = {
    repair = { schedule = "* * * * *", attempt_seconds = local.repair_attempt_seconds, retries = 0 } # the next minute comes anyway
    audit  = { schedule = "13 * * * *", attempt_seconds = local.audit_seconds, retries = 2 }         # a window closes ten past
  }
}

resource "google_cloud_scheduler_job" "reconcile" {
  for_each         = local.clocks
  name             = "empanel-${each.key}"
  description      = "Calls reconcile, mode ${each.key}"
  region           = var.region
  schedule         = each.value.schedule
  time_zone        = "Etc/UTC"
  attempt_deadline = "${each.value.attempt_seconds}s"

  retry_config {
    retry_count          = each.value.retries
    min_backoff_duration = "30s"
    max_backoff_duration = "300s"
  }

  http_target {
    http_method = "POST"
    uri         = "${google_cloud_run_v2_service.service["reconcile"].uri}/?mode=${each.key}"

    oidc_token {
      service_account_email = google_service_account.scheduler.email
      audience              = local.audiences["reconcile"]
    }
  }

  depends_on = [google_cloud_run_v2_service_iam_member.scheduler]
}
