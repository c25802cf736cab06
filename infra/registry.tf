# The one image. Old builds go, the last twenty stay for roll-backs.
resource "google_artifact_registry_repository" "images" {
  repository_id = "empanel"
  location      = var.region
  format        = "DOCKER"
  labels        = { app = "empanel" }

  docker_config {
    immutable_tags = true
  }

  cleanup_policies {
    id     = "keep-the-last"
    action = "KEEP"
    most_recent_versions {
      keep_count = 20
    }
  }

  cleanup_policies {
    id     = "delete-the-old"
    action = "DELETE"
    condition {
      older_than = "7776000s"
    }
  }

  depends_on = [google_project_service.used]
}
