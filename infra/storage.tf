# The bucket of inputs, outputs and audit reports. Objects are created once and never overwritten.
resource "google_storage_bucket" "objects" {
  name                        = local.bucket_name
  location                    = var.region
  force_destroy               = !var.protect
  uniform_bucket_level_access = true
  public_access_prevention    = "enforced"
  labels                      = { app = "empanel" }

  soft_delete_policy {
    retention_duration_seconds = 604800 # seven days to have back what was deleted by mistake
  }

  # No object goes before its records: those carry the same retention, and a day's grace.
  lifecycle_rule {
    action {
      type = "Delete"
    }
    condition {
      age = var.retention_days + 1
    }
  }

  lifecycle_rule {
    action {
      type = "AbortIncompleteMultipartUpload"
    }
    condition {
      age = 1
    }
  }

  depends_on = [google_project_service.used]
}
