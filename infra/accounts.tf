# Who may do what. One account a service, one that pushes, one that schedules; none has a key.
resource "google_service_account" "service" {
  for_each     = local.services
  account_id   = local.names[each.key]
  display_name = "Empanel ${each.key}"
  depends_on   = [google_project_service.used]
}

resource "google_service_account" "push" {
  account_id   = "empanel-push"
  display_name = "Empanel: pushes messages, may invoke and nothing else"
  depends_on   = [google_project_service.used]
}

resource "google_service_account" "scheduler" {
  account_id   = "empanel-scheduler"
  display_name = "Empanel: calls reconcile, may invoke and nothing else"
  depends_on   = [google_project_service.used]
}

# The ledger: create, read and update. Nothing is ever deleted by a service; Firestore's TTL does it.
resource "google_project_iam_custom_role" "ledger" {
  role_id     = "empanelLedger"
  title       = "Empanel ledger"
  description = "Create, read and update documents; no deletion, no administration"
  permissions = [
    "datastore.databases.get",
    "datastore.entities.create",
    "datastore.entities.get",
    "datastore.entities.list",
    "datastore.entities.update",
  ]
}

resource "google_project_iam_member" "ledger" {
  for_each = local.services
  project  = var.project_id
  role     = google_project_iam_custom_role.ledger.id
  member   = google_service_account.service[each.key].member

  condition {
    title      = "empanel-ledger-only"
    expression = "resource.name == \"projects/${var.project_id}/databases/${local.ledger_database}\""
  }
}

# The bucket. Reading includes listing: without it a missing object is a 403, which proves nothing.
resource "google_project_iam_custom_role" "purge" {
  role_id     = "empanelPurge"
  title       = "Empanel purge"
  description = "Delete the objects of a job that an operator purges"
  permissions = ["storage.objects.delete"]
}

locals {
  bucket_roles = {
    read   = "roles/storage.objectViewer"
    create = "roles/storage.objectCreator"
    purge  = google_project_iam_custom_role.purge.id
  }
  bucket_grants = merge([
    for target, service in local.services : {
      for right in service.bucket : "${target}/${right}" => { target = target, right = right }
    }
  ]...)
  topic_grants = merge([
    for target, service in local.services : {
      for topic in service.publishes : "${target}/${topic}" => { target = target, topic = topic }
    }
  ]...)
}

resource "google_storage_bucket_iam_member" "service" {
  for_each = local.bucket_grants
  bucket   = google_storage_bucket.objects.name
  role     = local.bucket_roles[each.value.right]
  member   = google_service_account.service[each.value.target].member
}

resource "google_pubsub_topic_iam_member" "service" {
  for_each = local.topic_grants
  topic    = google_pubsub_topic.topic[each.value.topic].id
  role     = "roles/pubsub.publisher"
  member   = google_service_account.service[each.value.target].member
}

# Vertex AI takes the caller's own identity instead of a key.
resource "google_project_iam_member" "vertex" {
  for_each = contains(keys(var.provider_settings), "GOOGLE_CLOUD_LOCATION") ? toset(["evaluate"]) : toset([])
  project  = var.project_id
  role     = "roles/aiplatform.user"
  member   = google_service_account.service[each.key].member
}

# Invoking. Nobody else may: there is no project-wide invoker.
resource "google_cloud_run_v2_service_iam_member" "push" {
  for_each = local.pushed
  location = var.region
  name     = google_cloud_run_v2_service.service[each.key].name
  role     = "roles/run.invoker"
  member   = google_service_account.push.member
}

resource "google_cloud_run_v2_service_iam_member" "scheduler" {
  location = var.region
  name     = google_cloud_run_v2_service.service["reconcile"].name
  role     = "roles/run.invoker"
  member   = google_service_account.scheduler.member
}

resource "google_cloud_run_v2_service_iam_member" "api" {
  for_each = var.api_invokers == null ? toset([]) : var.api_invokers
  location = var.region
  name     = google_cloud_run_v2_service.service["api"].name
  role     = "roles/run.invoker"
  member   = each.key
}
