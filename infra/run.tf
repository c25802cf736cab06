# Five services from one image. FUNCTION_TARGET says which function a process serves.
resource "google_cloud_run_v2_service" "service" {
  for_each            = local.services
  name                = local.names[each.key]
  location            = var.region
  deletion_protection = var.protect
  labels              = { app = "empanel", target = each.key, owner = var.owner }

  # Pub/Sub and Cloud Scheduler of the same project count as internal.
  ingress          = each.key == "api" ? "INGRESS_TRAFFIC_ALL" : "INGRESS_TRAFFIC_INTERNAL_ONLY"
  custom_audiences = [local.audiences[each.key]]
  # Only the API may stand without Cloud Run's guard, where Empanel's own keys decide.
  invoker_iam_disabled = each.key == "api" && var.api_invokers == null

  template {
    service_account                  = google_service_account.service[each.key].email
    timeout                          = "${each.value.timeout}s"
    max_instance_request_concurrency = var.concurrency
    execution_environment            = "EXECUTION_ENVIRONMENT_GEN2"

    scaling {
      min_instance_count = each.key == "api" ? var.min_instances : 0
      max_instance_count = each.value.instances
    }

    containers {
      image = var.image

      resources {
        limits            = { cpu = "1", memory = "512Mi" }
        cpu_idle          = true # billed while requests are there; an idle instance costs nothing
        startup_cpu_boost = true
      }

      ports {
        container_port = 8080
      }

      # A revision that does not answer never becomes ready, and the apply fails.
      startup_probe {
        http_get {
          path = "/health"
        }
        period_seconds    = 2
        timeout_seconds   = 2
        failure_threshold = 30
      }

      dynamic "env" {
        for_each = local.environment[each.key]
        content {
          name  = env.key
          value = env.value
        }
      }

      dynamic "env" {
        for_each = local.secret_environment[each.key]
        content {
          name = env.key
          value_source {
            secret_key_ref {
              secret  = env.value.secret
              version = env.value.version
            }
          }
        }
      }

      dynamic "volume_mounts" {
        for_each = local.providers_file[each.key]
        content {
          name       = "providers"
          mount_path = "/etc/empanel"
        }
      }

      # A folder of its own: a mounted secret hides whatever else is in its folder.
      dynamic "volume_mounts" {
        for_each = local.tenants_file[each.key]
        content {
          name       = "tenants"
          mount_path = "/etc/empanel-tenants"
        }
      }
    }

    dynamic "volumes" {
      for_each = local.providers_file[each.key]
      content {
        name = "providers"
        secret {
          secret = google_secret_manager_secret.secret["empanel-providers"].secret_id
          items {
            path    = "providers.toml"
            version = volumes.value
          }
        }
      }
    }

    dynamic "volumes" {
      for_each = local.tenants_file[each.key]
      content {
        name = "tenants"
        secret {
          secret = google_secret_manager_secret.secret["empanel-tenants"].secret_id
          items {
            path    = "tenants.toml"
            version = volumes.value
          }
        }
      }
    }
  }

  # All traffic to the named revision while there is one; the latest keeps an address of its own
  # (tag candidate) for the smoke test.
  dynamic "traffic" {
    for_each = contains(keys(var.serving_revisions), each.key) ? [var.serving_revisions[each.key]] : []
    content {
      type     = "TRAFFIC_TARGET_ALLOCATION_TYPE_REVISION"
      revision = traffic.value
      percent  = 100
    }
  }

  traffic {
    type    = "TRAFFIC_TARGET_ALLOCATION_TYPE_LATEST"
    percent = contains(keys(var.serving_revisions), each.key) ? 0 : 100
    tag     = "candidate"
  }

  lifecycle {
    precondition {
      condition     = each.value.timeout >= var.handler_deadline_seconds || !contains(local.pushed, each.key)
      error_message = "A pushed service must not be cut off before its handler's deadline."
    }
  }

  # Without its rights a new revision would start and fail at its first request.
  depends_on = [
    google_project_iam_member.ledger,
    google_storage_bucket_iam_member.service,
    google_pubsub_topic_iam_member.service,
    google_secret_manager_secret_iam_member.reader,
  ]
}

locals {
  common_environment = {
    GOOGLE_CLOUD_PROJECT              = var.project_id
    EMPANEL_BUCKET                    = google_storage_bucket.objects.name
    EMPANEL_EVALUATE_TOPIC            = "empanel-evaluate"
    EMPANEL_NOTIFY_TOPIC              = "empanel-notify"
    EMPANEL_EVENTS_TOPIC              = "empanel-events"
    EMPANEL_LEASE_SECONDS             = tostring(var.lease_seconds)
    EMPANEL_PROVIDER_DEADLINE_SECONDS = tostring(var.provider_deadline_seconds)
    EMPANEL_HANDLER_DEADLINE_SECONDS  = tostring(var.handler_deadline_seconds)
    EMPANEL_GRACE_SECONDS             = "8" # Cloud Run kills 10 s after SIGTERM
    EMPANEL_REPAIR_SECONDS            = "60"
    EMPANEL_REQUEST_SLOTS             = tostring(var.concurrency)
    EMPANEL_PROVIDER_CONCURRENCY      = tostring(var.provider_concurrency)
    EMPANEL_RETENTION_DAYS            = tostring(var.retention_days)
    EMPANEL_TENANT_DAY_REQUESTS       = tostring(var.tenant_day.requests)
    EMPANEL_TENANT_DAY_COST_USD       = tostring(var.tenant_day.cost_usd)
  }
  # Whose tokens an internal service takes. Cloud Run checks their signature and then removes it
  # ("SIGNATURE_REMOVED_BY_GOOGLE"), which the service is told to expect.
  callers = {
    evaluate    = google_service_account.push.email
    notify      = google_service_account.push.email
    dead_letter = google_service_account.push.email
    reconcile   = google_service_account.scheduler.email
  }
  environment = {
    for target, service in local.services : target => merge(
      local.common_environment,
      { FUNCTION_TARGET = target },
      target == "api" ? {
        EMPANEL_KEY_REQUESTS_PER_MINUTE = tostring(var.api_limits.key_requests_per_minute)
        EMPANEL_TENANT_OPEN_SEATS       = tostring(var.api_limits.tenant_open_seats)
        EMPANEL_WAITS                   = tostring(local.waits)
        EMPANEL_TENANT_WAITS            = tostring(ceil(local.waits / 2))
      } : {},
      # ID tokens of the accounts in the file are meant for the audience that Cloud Run knows too.
      target == "api" && var.tenants_file_version != null ? {
        EMPANEL_TENANTS      = "/etc/empanel-tenants/tenants.toml"
        EMPANEL_API_AUDIENCE = local.audiences["api"]
      } : {},
      target == "api" && var.operator_tenant != null ? { EMPANEL_OPERATOR_TENANT = var.operator_tenant } : {},
      var.otlp == null ? {} : {
        OTEL_EXPORTER_OTLP_ENDPOINT = var.otlp.endpoint
        OTEL_TRACES_SAMPLER         = var.otlp.sampler
      },
      service.keys ? var.provider_settings : {},
      service.keys && var.providers_file_version != null ? { EMPANEL_PROVIDERS = "/etc/empanel/providers.toml" } : {},
      contains(local.internal, target) ? {
        EMPANEL_PUSH_AUDIENCE  = local.audiences[target]
        EMPANEL_PUSH_ACCOUNTS  = local.callers[target]
        EMPANEL_PUSH_SIGNATURE = "platform"
      } : {},
    )
  }
  secret_environment = {
    for target, service in local.services : target => merge(
      service.keys ? {
        for name, version in var.provider_keys : name => {
          secret  = google_secret_manager_secret.secret[local.key_secrets[name]].secret_id
          version = version
        }
      } : {},
      target == "notify" ? {
        EMPANEL_WEBHOOK_SECRETS = {
          secret  = google_secret_manager_secret.secret["empanel-webhook-secrets"].secret_id
          version = var.webhook_secrets_version
        }
      } : {},
    )
  }
  providers_file = {
    for target, service in local.services :
    target => service.keys && var.providers_file_version != null ? [var.providers_file_version] : []
  }
  tenants_file = {
    for target in keys(local.services) :
    target => target == "api" && var.tenants_file_version != null ? [var.tenants_file_version] : []
  }
}
