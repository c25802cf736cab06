output "api_url" {
  description = "Where callers go: EMPANEL_URL."
  value       = google_cloud_run_v2_service.service["api"].uri
}

output "urls" {
  description = "The address of every service."
  value       = { for target, service in google_cloud_run_v2_service.service : target => service.uri }
}

output "candidate_url" {
  description = "The API's latest revision, whether or not it has traffic."
  value       = replace(google_cloud_run_v2_service.service["api"].uri, "https://", "https://candidate---")
}

output "audiences" {
  description = "The fixed audience of every service: what a caller's identity token must name."
  value       = local.audiences
}

output "api_audience" {
  description = "The API's own entry of audiences."
  value       = local.audiences["api"]
}

output "services" {
  description = "The name of every service in Cloud Run."
  value       = local.names
}

output "bucket" {
  description = "Inputs, outputs and audit reports."
  value       = google_storage_bucket.objects.name
}

output "events_topic" {
  description = "The topic that says when runs end; subscribe to it."
  value       = google_pubsub_topic.topic["events"].id
}

output "secrets" {
  description = "The secrets whose versions are added by hand."
  value       = sort(local.secrets)
}

output "max_instances" {
  description = "The most instances of each service, computed from the stated throughput."
  value       = { for target, service in local.services : target => service.instances }
}

output "repository" {
  description = "Where images are pushed."
  value       = "${var.region}-docker.pkg.dev/${var.project_id}/${google_artifact_registry_repository.images.repository_id}"
}
