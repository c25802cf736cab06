# What is not kept. Cloud Run writes a line of its own about each request; those of requests that went
# well say nothing that ours do not (COST.md). Metrics of requests do not come from these lines.
resource "google_logging_project_exclusion" "good_requests" {
  name        = "empanel-good-requests"
  description = "Cloud Run's own lines about requests that were answered without an error"
  filter      = "${local.our_logs} AND log_id(\"run.googleapis.com/requests\") AND severity<WARNING AND httpRequest.status<400"
  depends_on  = [google_project_service.used]
}
