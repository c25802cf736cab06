# Topics, push subscriptions, and the three grants of Pub/Sub's own account. Each of these, when it
# is missing, fails silently: messages are pushed without a token, or never leave their subscription.
locals {
  pubsub_agent    = "serviceAccount:service-${data.google_project.this.number}@gcp-sa-pubsub.iam.gserviceaccount.com"
  most_deliveries = 100 # so that an outage of the ledger, at up to 600 s a try, does not spend them
  pushed_topics   = { evaluate = "evaluate", notify = "notify", dead_letter = "dead-letter" }
}

resource "google_pubsub_topic" "topic" {
  for_each   = toset(["evaluate", "notify", "events", "dead-letter"])
  name       = "empanel-${each.key}"
  labels     = { app = "empanel" }
  depends_on = [google_project_service.used]

  message_storage_policy {
    allowed_persistence_regions = [var.region]
  }
}

resource "google_pubsub_subscription" "push" {
  for_each                   = local.pushed_topics
  name                       = "empanel-${each.value}-push"
  topic                      = google_pubsub_topic.topic[each.value].id
  ack_deadline_seconds       = var.ack_deadline_seconds # for a push also the time it may take
  message_retention_duration = "604800s"
  labels                     = { app = "empanel" }

  expiration_policy {
    ttl = "" # never, however long nothing is sent
  }

  retry_policy {
    minimum_backoff = "10s"
    maximum_backoff = "600s"
  }

  # What the last subscription cannot deliver comes again until it is recorded: there is nowhere else.
  dynamic "dead_letter_policy" {
    for_each = each.key == "dead_letter" ? [] : [local.most_deliveries]
    content {
      dead_letter_topic     = google_pubsub_topic.topic["dead-letter"].id
      max_delivery_attempts = dead_letter_policy.value
    }
  }

  push_config {
    push_endpoint = "${google_cloud_run_v2_service.service[each.key].uri}/"

    oidc_token {
      service_account_email = google_service_account.push.email
      audience              = local.audiences[each.key]
    }
  }

  depends_on = [
    google_cloud_run_v2_service_iam_member.push,
    google_service_account_iam_member.agent_makes_push_tokens,
    google_pubsub_topic_iam_member.agent_publishes_dead_letters,
  ]
}

# 1 of 3: tokens of the push account.
resource "google_service_account_iam_member" "agent_makes_push_tokens" {
  service_account_id = google_service_account.push.name
  role               = "roles/iam.serviceAccountTokenCreator"
  member             = local.pubsub_agent
}

# 2 of 3: dead letters into their topic.
resource "google_pubsub_topic_iam_member" "agent_publishes_dead_letters" {
  topic  = google_pubsub_topic.topic["dead-letter"].id
  role   = "roles/pubsub.publisher"
  member = local.pubsub_agent
}

# 3 of 3: and out of the subscription they come from.
resource "google_pubsub_subscription_iam_member" "agent_takes_dead_letters" {
  for_each     = toset([for target in keys(local.pushed_topics) : target if target != "dead_letter"])
  subscription = google_pubsub_subscription.push[each.key].id
  role         = "roles/pubsub.subscriber"
  member       = local.pubsub_agent
}
