# Secrets, made empty. Their versions are added by hand (RUNBOOK.md), so that no value is in a state
# file, and are pinned by number: a new value is a new revision, which can be rolled back.
locals {
  key_secrets = { for name in keys(var.provider_keys) : name => "empanel-${lower(replace(name, "_", "-"))}" }
  secrets = toset(concat(
    values(local.key_secrets),
    ["empanel-webhook-secrets"],
    var.providers_file_version == null ? [] : ["empanel-providers"],
    var.tenants_file_version == null ? [] : ["empanel-tenants"],
  ))
  # Not for whoever reads the providers' keys.
  own_readers = toset(["empanel-webhook-secrets", "empanel-tenants"])
  with_keys   = toset([for target, service in local.services : target if service.keys])
  secret_readers = merge(
    { notify = { target = "notify", secret = "empanel-webhook-secrets" } },
    # Only the API meets callers, and reserves what a tenant may take.
    var.tenants_file_version == null ? {} : { tenants = { target = "api", secret = "empanel-tenants" } },
    merge([
      for target in local.with_keys : {
        for secret in local.secrets : "${target}/${secret}" => { target = target, secret = secret }
        if !contains(local.own_readers, secret)
      }
    ]...),
  )
}

resource "google_secret_manager_secret" "secret" {
  for_each            = local.secrets
  secret_id           = each.key
  labels              = { app = "empanel" }
  version_destroy_ttl = "604800s" # a version destroyed by mistake can be had back for a week

  replication {
    user_managed {
      replicas {
        location = var.region
      }
    }
  }

  depends_on = [google_project_service.used]
}

resource "google_secret_manager_secret_iam_member" "reader" {
  for_each  = local.secret_readers
  secret_id = google_secret_manager_secret.secret[each.value.secret].id
  role      = "roles/secretmanager.secretAccessor"
  member    = google_service_account.service[each.value.target].member
}
