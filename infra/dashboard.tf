# One page to look at first. Rows: is work done, is anything lost, does the platform keep up.
locals {
  event_type = "logging.googleapis.com/user/empanel"
  charts = [
    { title = "Jobs accepted, by owner", filter = "metric.type=\"${local.event_type}/jobs_accepted\" resource.type=\"cloud_run_revision\"", by = ["metric.labels.owner"], aligner = "ALIGN_SUM", reducer = "REDUCE_SUM" },
    { title = "Runs closed, by state", filter = "metric.type=\"${local.event_type}/runs_closed\" resource.type=\"cloud_run_revision\"", by = ["metric.labels.state"], aligner = "ALIGN_SUM", reducer = "REDUCE_SUM" },
    { title = "Attempts ended, by result and code", filter = "metric.type=\"${local.event_type}/attempts_ended\" resource.type=\"cloud_run_revision\"", by = ["metric.labels.result", "metric.labels.code"], aligner = "ALIGN_SUM", reducer = "REDUCE_SUM" },
    { title = "Incidents opened, by kind", filter = "metric.type=\"${local.event_type}/incidents\" resource.type=\"cloud_run_revision\"", by = ["metric.labels.kind"], aligner = "ALIGN_SUM", reducer = "REDUCE_SUM" },
    { title = "Repairs, by kind", filter = "metric.type=\"${local.event_type}/repairs\" resource.type=\"cloud_run_revision\"", by = ["metric.labels.kind"], aligner = "ALIGN_SUM", reducer = "REDUCE_SUM" },
    { title = "Errors of ours", filter = "metric.type=\"${local.event_type}/failures\" resource.type=\"cloud_run_revision\"", by = ["resource.labels.service_name"], aligner = "ALIGN_SUM", reducer = "REDUCE_SUM" },
    { title = "Answers, by service and class", filter = "metric.type=\"run.googleapis.com/request_count\" ${replace(local.our_services, " AND ", " ")}", by = ["resource.labels.service_name", "metric.labels.response_code_class"], aligner = "ALIGN_SUM", reducer = "REDUCE_SUM" },
    { title = "Instances, by service", filter = "metric.type=\"run.googleapis.com/container/instance_count\" ${replace(local.our_services, " AND ", " ")}", by = ["resource.labels.service_name"], aligner = "ALIGN_MAX", reducer = "REDUCE_SUM" },
    { title = "Age of the oldest message, by subscription", filter = "metric.type=\"pubsub.googleapis.com/subscription/oldest_unacked_message_age\" resource.type=\"pubsub_subscription\" resource.labels.subscription_id=starts_with(\"empanel-\")", by = ["resource.labels.subscription_id"], aligner = "ALIGN_MAX", reducer = "REDUCE_MAX" },
  ]
}

resource "google_monitoring_dashboard" "empanel" {
  dashboard_json = jsonencode({
    displayName = "Empanel"
    mosaicLayout = {
      columns = 12
      tiles = [
        for position, chart in local.charts : {
          xPos   = (position % 3) * 4
          yPos   = floor(position / 3) * 4
          width  = 4
          height = 4
          widget = {
            title = chart.title
            xyChart = {
              dataSets = [{
                plotType = "LINE"
                timeSeriesQuery = {
                  timeSeriesFilter = {
                    filter = chart.filter
                    aggregation = {
                      alignmentPeriod    = "300s"
                      perSeriesAligner   = chart.aligner
                      crossSeriesReducer = chart.reducer
                      groupByFields      = chart.by
                    }
                  }
                }
              }]
            }
          }
        }
      ]
    }
  })

  depends_on = [google_logging_metric.event]
}
